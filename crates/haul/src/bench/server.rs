//! What the server says about itself before and after: INFO, or beanstalkd's stats.

use std::time::Duration;

use anyhow::Context;
use bytes::BufMut;
use haul_client::resp::encode_request;

use super::link::{Link, Seen};
use super::reply::Speech;

/// Haul's store figures are renewed four times a second.
const FIGURES_RENEWED: Duration = Duration::from_millis(700);

/// A connection apart, for questions.
pub(super) struct Server {
    link: Link,
    speech: Speech,
}

/// What was used up to a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    cpu_seconds: f64,
    fsyncs: Option<f64>,
    bytes: Option<f64>,
    own_cpu_seconds: f64,
}

/// What was used during a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) cpu_seconds: f64,
    pub(super) fsyncs: Option<f64>,
    pub(super) bytes: Option<f64>,
    /// By the load generator.
    pub(super) own_cpu_seconds: f64,
}

impl Server {
    /// HTTP is measured over the Redis protocol too.
    pub(super) async fn connect(
        address: &str,
        speech: Speech,
        token: Option<&str>,
    ) -> anyhow::Result<Server> {
        let speech = if speech == Speech::Http { Speech::Resp } else { speech };
        let mut server = Server { link: Link::connect(address, speech).await?, speech };
        if let Some(token) = token.filter(|_| speech == Speech::Resp) {
            server.ask(&["AUTH", token]).await?;
        }
        Ok(server)
    }

    async fn ask(&mut self, command: &[&str]) -> anyhow::Result<String> {
        match self.speech {
            Speech::Beanstalk => self.link.out.put_slice((command.join(" ") + "\r\n").as_bytes()),
            _ => encode_request(command, &mut self.link.out),
        }
        let mut text = String::new();
        self.link
            .exchange(1, |seen| {
                if let Seen::Answer(answer) = seen {
                    text = String::from_utf8_lossy(answer).into_owned();
                }
            })
            .await?;
        Ok(text)
    }

    /// Loads a script; answers its SHA-1.
    pub(super) async fn load_script(&mut self, text: &str) -> anyhow::Result<String> {
        let answer = self.ask(&["SCRIPT", "LOAD", text]).await?;
        answer.lines().nth(1).map(str::to_owned).context("SCRIPT LOAD did not answer with a hash")
    }

    pub(super) async fn usage(&mut self) -> anyhow::Result<Usage> {
        let (question, cpu) = match self.speech {
            Speech::Beanstalk => ("stats", ["rusage-utime", "rusage-stime"]),
            _ => ("INFO", ["used_cpu_user", "used_cpu_sys"]),
        };
        let info = self.ask(&[question]).await?;
        let field = |name: &str| -> Option<f64> {
            let mut fields = info.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(key, _)| *key == name)?.1.trim().parse().ok()
        };
        Ok(Usage {
            cpu_seconds: cpu.iter().filter_map(|name| field(name)).sum(),
            fsyncs: field("haul_fsyncs"),
            bytes: field("haul_bytes_written").or_else(|| field("aof_current_size")),
            own_cpu_seconds: own_cpu_seconds(),
        })
    }

    /// CPU up to now; fsyncs and bytes once the server has counted them.
    pub(super) async fn spent_since(&mut self, before: &Usage) -> anyhow::Result<Spent> {
        let at_once = self.usage().await?;
        let counted = if at_once.fsyncs.is_some() {
            tokio::time::sleep(FIGURES_RENEWED).await;
            self.usage().await?
        } else {
            at_once
        };
        let difference =
            |now: Option<f64>, then: Option<f64>| Some(now? - then?).filter(|spent| *spent >= 0.0);
        Ok(Spent {
            cpu_seconds: at_once.cpu_seconds - before.cpu_seconds,
            fsyncs: difference(counted.fsyncs, before.fsyncs),
            bytes: difference(counted.bytes, before.bytes),
            own_cpu_seconds: at_once.own_cpu_seconds - before.own_cpu_seconds,
        })
    }
}

impl Spent {
    /// What was used after that.
    pub(super) fn since(self, before: &Spent) -> Spent {
        let difference = |now: Option<f64>, then: Option<f64>| Some(now? - then?);
        Spent {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            fsyncs: difference(self.fsyncs, before.fsyncs),
            bytes: difference(self.bytes, before.bytes),
            own_cpu_seconds: self.own_cpu_seconds - before.own_cpu_seconds,
        }
    }
}

/// User and system time of this process, from `/proc`; in clock ticks of 10 ms.
pub(super) fn own_cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|text| text.parse::<f64>().ok()).sum::<f64>() / 100.0
}
