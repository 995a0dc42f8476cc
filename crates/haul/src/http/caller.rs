//! Who asks, and how a command of theirs is sent.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use haul_engine::{Call, Command, Name, Reply, Rules};

use super::problem::Problem;
use crate::auth::action::Action;
use crate::auth::{self, Access, Role, audit};
use crate::clock;
use crate::dialect::{DataLimits, Texts, plain};
use crate::net::Remote;
use crate::resp::Server;
use crate::shard::Outcome;
use crate::trace::Context;

/// Names the tenant where no token does.
const TENANT_HEADER: &str = "x-haul-tenant";

/// One request's sender.
pub(crate) struct Caller {
    pub(crate) server: Arc<Server>,
    pub(crate) tenant: Name,
    /// Where it came from.
    pub(crate) remote: Remote,
    /// What it may do.
    pub(crate) access: Access,
    /// The trace context that a job put by this request carries, unless it brings its own.
    pub(crate) trace: Option<Name>,
}

/// A reply and the bodies it needs.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) texts: Texts,
}

impl FromRequestParts<Arc<Server>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        // Both were put there before any route is looked for (`net::web`); without them nobody is let in.
        let (Some(access), Some(remote)) =
            (parts.extensions.get::<Access>().cloned(), parts.extensions.get::<Remote>().cloned())
        else {
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "NOAUTH", "a token is needed"));
        };
        let tenant = match parts.headers.get(TENANT_HEADER) {
            None => access.home(),
            Some(value) => tenant_name(value.as_bytes(), server.limits.data)?,
        };
        admit(&access, &tenant)?;
        let trace = parts.extensions.get::<Context>().map(|context| Name::from(context.to_string()));
        Ok(Caller { server: server.clone(), tenant, remote, access, trace })
    }
}

fn admit(access: &Access, tenant: &Name) -> Result<(), Problem> {
    if access.admits(tenant) {
        return Ok(());
    }
    let message = format!("this token is for the tenant {} only", access.scope);
    Err(Problem::new(StatusCode::FORBIDDEN, "NOPERM", message))
}

/// `default` is the one that needs no name.
fn tenant_name(text: &[u8], limits: DataLimits) -> Result<Name, Problem> {
    match text {
        b"" => {
            Err(Problem::bad("the header X-Haul-Tenant names no tenant; leave it out for the default one"))
        }
        text if text.len() > limits.name_bytes_max => Err(Problem::bad("the tenant's name is too long")),
        text => Ok(auth::tenant(text)),
    }
}

impl Caller {
    /// Asks for another tenant than the header says.
    pub(crate) fn choose(&mut self, tenant: &[u8]) -> Result<(), Problem> {
        let tenant = tenant_name(tenant, self.server.limits.data)?;
        admit(&self.access, &tenant)?;
        self.tenant = tenant;
        Ok(())
    }

    /// A name within its limit; see `plain` for bytes that are not UTF-8.
    pub(crate) fn name(&self, what: &str, text: impl AsRef<str>) -> Result<Name, Problem> {
        let (text, max) = (plain::to_bytes(text.as_ref()), self.server.limits.data.name_bytes_max);
        if text.is_empty() {
            return Err(Problem::bad(format!("{what} is empty")));
        }
        if text.len() > max {
            let message = format!(
                "{what} is a name of {} bytes, longer than the limit name-bytes-max, {max}",
                text.len()
            );
            return Err(Problem::bad(message));
        }
        Ok(Name::new(&text))
    }

    pub(crate) fn names(&self, what: &str, list: &[impl AsRef<str>]) -> Result<Vec<Name>, Problem> {
        list.iter().map(|text| self.name(what, text)).collect()
    }

    /// Complains if the caller's role is not enough.
    pub(crate) fn permit(&self, needed: Role) -> Result<(), Problem> {
        let Some(role) = self.access.lacks(needed) else { return Ok(()) };
        let (token, has) = (self.access.token().unwrap_or_default(), self.access.role);
        let message = format!("this needs the role {role}; the token {token} has the role {has}");
        Err(Problem::new(StatusCode::FORBIDDEN, "NOPERM", message))
    }

    /// The call a command makes, if the caller may make it.
    fn call(&self, command: Command) -> Result<Call, Problem> {
        if let Err(problem) = self.permit(auth::needs(&command)) {
            self.note(self.entry(&command), "NOPERM");
            return Err(problem);
        }
        Ok(Self::call_as(&self.tenant, command))
    }

    fn call_as(tenant: &Name, command: Command) -> Call {
        let clock = clock::now();
        Call { tenant: tenant.clone(), now: clock, clock, rules: Rules::NATIVE, command }
    }

    /// What the audit log is to say of a command.
    fn entry(&self, command: &Command) -> Option<audit::Entry> {
        let action = Action::of(command)?;
        Some(audit::Entry::new(&self.access, &self.remote, "http", &self.tenant, action))
    }

    /// Writes down what the caller did that is no command.
    pub(crate) fn audit(&self, action: Option<Action>) {
        let entry =
            action.map(|action| audit::Entry::new(&self.access, &self.remote, "http", &self.tenant, action));
        self.note(entry, "done");
    }

    fn note(&self, entry: Option<audit::Entry>, outcome: &'static str) {
        if let Some(entry) = entry {
            self.server.audit.note(audit::Entry { outcome, ..entry });
        }
    }

    /// Sends one command; a refusal is a problem.
    pub(crate) async fn ask(&self, command: Command) -> Result<Answer, Problem> {
        let entry = self.entry(&command);
        let delivery = self.server.shard.ask(vec![self.call(command)?], Vec::new()).await?;
        self.note(entry, audit::outcome(delivery.outcomes.iter().flatten().next()));
        let outcome = delivery.outcomes.into_iter().flatten().next().ok_or_else(Problem::unexpected)?;
        self.answer(outcome).await
    }

    /// Sends one command on behalf of a tenant that may be another's; that the caller may do that was checked.
    pub(crate) async fn ask_as(&self, tenant: &Name, command: Command) -> Result<Answer, Problem> {
        let delivery = self.server.shard.ask(vec![Self::call_as(tenant, command)], Vec::new()).await?;
        let outcome = delivery.outcomes.into_iter().flatten().next().ok_or_else(Problem::unexpected)?;
        self.answer(outcome).await
    }

    /// Sends commands that are applied together, in order; each has its own outcome.
    pub(crate) async fn ask_all(
        &self,
        commands: Vec<Command>,
    ) -> Result<Vec<Result<Answer, Problem>>, Problem> {
        let entries: Vec<_> = commands.iter().map(|command| self.entry(command)).collect();
        let calls = commands.into_iter().map(|command| self.call(command)).collect::<Result<_, _>>()?;
        let delivery = self.server.shard.ask(calls, Vec::new()).await?;
        let mut answers = Vec::new();
        for (outcome, entry) in delivery.outcomes.into_iter().flatten().zip(entries) {
            self.note(entry, audit::outcome(Some(&outcome)));
            answers.push(self.answer(outcome).await);
        }
        Ok(answers)
    }

    /// Sends a pop that waits for something to be there.
    pub(crate) async fn wait(&self, command: Command, seconds: f64) -> Result<Answer, Problem> {
        let delivery = self.server.shard.wait(self.call(command)?, seconds).await?;
        let outcome = delivery.outcomes.into_iter().flatten().next().ok_or_else(Problem::unexpected)?;
        self.answer(outcome).await
    }

    async fn answer(&self, outcome: Outcome) -> Result<Answer, Problem> {
        let (reply, texts) = crate::shard::texts(outcome).await.map_err(|fault| Problem::from(&fault))?;
        match reply {
            Ok(Reply::Stopped(Some(refusal))) | Err(refusal) => Err(refusal.into()),
            Ok(reply) => Ok(Answer { reply, texts }),
        }
    }
}

/// An answer of JSON text.
pub(crate) fn json(status: StatusCode, text: Vec<u8>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests {
    use crate::config::Raw;
    use crate::http::rig::Rig;

    #[tokio::test]
    async fn names_that_are_no_text_or_only_dots_can_be_named() {
        let rig = Rig::new(Raw::default()).await;
        let put = |jid: &str| {
            let body = format!("{{\"queue\":\"q\",\"klass\":\"k\",\"jid\":\"{jid}\"}}");
            let length = body.len();
            format!(
                "POST /api/v1/jobs\nconnection: close\ncontent-type: application/json\ncontent-length: {length}\n\n{body}"
            )
        };
        assert_eq!(rig.ask(&put("\u{10fe2e}")).await.status, 201);
        assert_eq!(rig.ask(&put("a\u{10feff}")).await.status, 201);
        let told = rig.get("/api/v1/jobs?queue=q").await.text;
        assert!(told.contains("\"jid\":\".\"") && told.contains("\"jid\":\"a\u{10feff}\""), "{told}");
        for path in ["%F4%8F%B8%AE", "a%F4%8F%BB%BF"] {
            let found = rig.get(&format!("/api/v1/jobs/{path}")).await;
            assert_eq!(found.status, 200, "{path}: {}", found.text);
        }
    }
}
