//! `haul events`: what happens, while it happens.

use haul_client::Message;
use serde_json::{Value, json};

use super::failure::{Done, Failure};
use super::moment::time_of_day;
use super::output::{complain, printable};
use super::session::Session;
use crate::clock;

/// Print what happens, a line each, until interrupted
#[derive(clap::Args)]
#[command(after_help = "Examples:
  haul events
  haul events --json | jq 'select(.payload.event == \"failed\")'
  haul events --count 1       wait for the next event

Puts, completions, failures, cancellations and lost locks of every job; every step of jobs that are tracked
(`haul track`). Times are UTC.")]
pub(super) struct Events {
    /// Stop after so many
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

impl Events {
    pub(super) async fn run(self, session: &Session) -> Done {
        tokio::select! {
            outcome = self.listen(session) => outcome,
            interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        }
    }

    async fn listen(&self, session: &Session) -> Done {
        let mut events = session.client.subscribe_patterns(["ql:*"]).await?;
        let (mut seen, mut reconnects) = (0, 0);
        while self.count.is_none_or(|count| seen < count) {
            let message = events.next().await.map_err(Failure::Call)?;
            if events.reconnects() > reconnects {
                reconnects = events.reconnects();
                complain("haul: the connection was lost and is back; events in between were missed");
            }
            seen += 1;
            let now = clock::now();
            let payload = String::from_utf8_lossy(&message.payload);
            let parsed = serde_json::from_str::<Value>(&payload).ok().filter(Value::is_object);
            let value = parsed.clone().unwrap_or_else(|| json!(payload));
            let document = json!({"when": now, "channel": message.channel, "payload": value});
            session
                .out
                .say(&document, &format!("{}  {}", time_of_day(now), told(&message, parsed.as_ref())))?;
        }
        Ok(())
    }
}

/// The event in a line: what, which job, the rest.
fn told(message: &Message, payload: Option<&Value>) -> String {
    let channel = message.channel.strip_prefix("ql:").unwrap_or(&message.channel);
    let Some(members) = payload.and_then(Value::as_object) else {
        // A tracked job's step: the channel is named for what happened, the payload is the jid.
        return printable(&format!("tracked     {}  {channel}", String::from_utf8_lossy(&message.payload)));
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let part = |key: &str| members.get(key).map(text).unwrap_or_default();
    let mut line = format!("{:<10}  {}", part("event"), part("jid"));
    let rest = members
        .iter()
        .filter(|(key, value)| !matches!(key.as_str(), "event" | "jid") && **value != json!(false));
    for (key, value) in rest {
        line.push_str(&format!("  {key} {}", text(value)));
    }
    if let Some(worker) = channel.strip_prefix("w:") {
        line.push_str(&format!("  (told to {worker})"));
    }
    printable(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(channel: &str, payload: &'static str) -> String {
        let message = Message { channel: channel.into(), payload: payload.into() };
        told(&message, serde_json::from_str(payload).ok().as_ref())
    }

    #[test]
    fn events_are_told_in_a_line() {
        assert_eq!(line("ql:log", r#"{"jid":"j","event":"put","queue":"q"}"#), "put         j  queue q");
        assert_eq!(
            line("ql:w:w1", r#"{"jid":"j","event":"canceled","queue":false,"worker":"w1"}"#),
            "canceled    j  worker w1  (told to w1)"
        );
        assert_eq!(line("ql:completed", "j"), "tracked     j  completed");
    }
}
