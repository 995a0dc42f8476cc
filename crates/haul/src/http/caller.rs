//! Who asks, and how a command of theirs is sent.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use haul_engine::{Call, Command, Name, Reply, Rules};

use super::problem::Problem;
use crate::clock;
use crate::dialect::{DataLimits, Texts};
use crate::resp::Server;
use crate::shard::Outcome;

/// Names the tenant where no token does.
const TENANT_HEADER: &str = "x-haul-tenant";

/// One request's sender.
pub(crate) struct Caller {
    pub(crate) server: Arc<Server>,
    pub(crate) tenant: Name,
    /// The machine it came from.
    pub(crate) peer: String,
}

/// A reply and the bodies it needs.
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) texts: Texts,
}

impl FromRequestParts<Arc<Server>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Arc<Server>) -> Result<Self, Problem> {
        let tenant = match parts.headers.get(TENANT_HEADER) {
            None => Name::new(b""),
            Some(value) => tenant_name(value.as_bytes(), server.limits.data)?,
        };
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or_else(|| "unknown".to_owned(), |ConnectInfo(peer)| peer.ip().to_string());
        Ok(Caller { server: server.clone(), tenant, peer })
    }
}

/// `default` is the one that needs no name.
fn tenant_name(text: &[u8], limits: DataLimits) -> Result<Name, Problem> {
    match text {
        b"default" => Ok(Name::new(b"")),
        b"" => {
            Err(Problem::bad("the header X-Haul-Tenant names no tenant; leave it out for the default one"))
        }
        text if text.len() > limits.name_bytes_max => Err(Problem::bad("the tenant's name is too long")),
        text => Ok(Name::new(text)),
    }
}

impl Caller {
    /// A name within its limit.
    pub(crate) fn name(&self, what: &str, text: impl AsRef<str>) -> Result<Name, Problem> {
        let (text, max) = (text.as_ref(), self.server.limits.data.name_bytes_max);
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
        Ok(Name::new(text.as_bytes()))
    }

    pub(crate) fn names(&self, what: &str, list: &[impl AsRef<str>]) -> Result<Vec<Name>, Problem> {
        list.iter().map(|text| self.name(what, text)).collect()
    }

    fn call(&self, command: Command) -> Call {
        let clock = clock::now();
        Call { tenant: self.tenant.clone(), now: clock, clock, rules: Rules::NATIVE, command }
    }

    /// Sends one command; a refusal is a problem.
    pub(crate) async fn ask(&self, command: Command) -> Result<Answer, Problem> {
        let delivery = self.server.shard.ask(vec![self.call(command)], Vec::new()).await?;
        let outcome = delivery.outcomes.into_iter().flatten().next().ok_or_else(Problem::unexpected)?;
        self.answer(outcome).await
    }

    /// Sends commands that are applied together, in order; each has its own outcome.
    pub(crate) async fn ask_all(
        &self,
        commands: Vec<Command>,
    ) -> Result<Vec<Result<Answer, Problem>>, Problem> {
        let calls = commands.into_iter().map(|command| self.call(command)).collect();
        let delivery = self.server.shard.ask(calls, Vec::new()).await?;
        let mut answers = Vec::new();
        for outcome in delivery.outcomes.into_iter().flatten() {
            answers.push(self.answer(outcome).await);
        }
        Ok(answers)
    }

    /// Sends a pop that waits for something to be there.
    pub(crate) async fn wait(&self, command: Command, seconds: f64) -> Result<Answer, Problem> {
        let delivery = self.server.shard.wait(self.call(command), seconds).await?;
        let outcome = delivery.outcomes.into_iter().flatten().next().ok_or_else(Problem::unexpected)?;
        self.answer(outcome).await
    }

    async fn answer(&self, outcome: Outcome) -> Result<Answer, Problem> {
        let (reply, texts) = self.server.shard.texts(outcome).await.map_err(|fault| Problem::from(&fault))?;
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
