//! The four roles, and the one each command needs. Both front ends ask here; `docs/operate/security.md` has the table.

use haul_engine::{Command, KeyCommand};
use serde::{Deserialize, Serialize};

/// Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Look at everything of the tenant
    View,
    /// Put jobs and work on them
    Work,
    /// Steer: cancel, pause, unfail, throttle
    Operate,
    /// Change options, remove everything
    Admin,
}

impl Role {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Role::View => "view",
            Role::Work => "work",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// The role a command needs. No `_` arm: a new command must be thought about here.
///
/// `work` is what a worker needs from its start to a clean end, so releasing its jobs and leaving the list of workers
/// are in it. What takes effect on other people's jobs, or on a whole queue, is `operate`.
pub(crate) fn needs(command: &Command) -> Role {
    match command {
        Command::Get { .. }
        | Command::GetMany { .. }
        | Command::Exists { .. }
        | Command::Peek { .. }
        | Command::Tagged { .. }
        | Command::TopTags { .. }
        | Command::Tracked
        | Command::QueueCounts { .. }
        | Command::AllQueueCounts
        | Command::QueueNames
        | Command::Length { .. }
        | Command::Stats { .. }
        | Command::RecurGet { .. }
        | Command::Workers
        | Command::WorkerJobs { .. }
        | Command::Jobs(_)
        | Command::FailureGroups
        | Command::Failed { .. }
        | Command::ConfigGet { .. }
        | Command::ConfigAll
        | Command::ThrottleGet { .. }
        | Command::ThrottleLocks { .. }
        | Command::ThrottlePending { .. }
        | Command::Key(_)
        | Command::Versions { .. }
        | Command::Search(_)
        | Command::List(_)
        | Command::Totals
        | Command::KeyCount
        | Command::Overview { .. }
        // Asked only for callers that may choose their tenant.
        | Command::Tenants => Role::View,
        Command::Put(_)
        | Command::PutMany(_)
        | Command::Pop(_)
        | Command::Complete(_)
        | Command::CompleteMany { .. }
        | Command::Fail(_)
        | Command::Heartbeat(_)
        | Command::HeartbeatMany { .. }
        | Command::Retry(_)
        | Command::Timeout { .. }
        | Command::Report(_)
        | Command::Register { .. }
        | Command::Deregister { .. }
        | Command::Tag { .. }
        | Command::Untag { .. }
        | Command::Track { .. }
        | Command::Untrack { .. }
        | Command::Log { .. }
        | Command::Recur(_)
        | Command::RecurUpdate { .. }
        | Command::RecurRun { .. }
        | Command::RecurTag { .. }
        | Command::RecurUntag { .. } => Role::Work,
        Command::Keyspace(command) => needs_of_key(command),
        // Blueque's clients are producers and workers at once.
        Command::Task(_) => Role::Work,
        Command::Depends { .. }
        | Command::Priority { .. }
        | Command::Pause { .. }
        | Command::Cancel { .. }
        | Command::Unfail { .. }
        | Command::Unrecur { .. }
        | Command::Drain { .. }
        | Command::Forget { .. }
        | Command::ThrottleSet { .. }
        | Command::ThrottleDelete { .. }
        | Command::ThrottleRelease { .. } => Role::Operate,
        Command::ConfigSet { .. } | Command::ConfigUnset { .. } | Command::Flush => Role::Admin,
    }
}

fn needs_of_key(command: &KeyCommand) -> Role {
    match command {
        KeyCommand::Get { .. } | KeyCommand::Ttl { .. } => Role::View,
        KeyCommand::Set { .. }
        | KeyCommand::Del { .. }
        | KeyCommand::Push { .. }
        | KeyCommand::Pop { .. }
        | KeyCommand::HashSet { .. }
        | KeyCommand::HashReplace { .. }
        | KeyCommand::ListReplace { .. }
        | KeyCommand::Expire { .. } => Role::Work,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_named() {
        assert!(Role::View < Role::Work && Role::Work < Role::Operate && Role::Operate < Role::Admin);
        assert_eq!(serde_json::to_string(&Role::Operate).unwrap(), "\"operate\"");
    }

    #[test]
    fn what_needs_no_more_than_view_is_what_only_looks() {
        let name = haul_engine::Name::new(b"x");
        let looks = [Command::Tracked, Command::Get { jid: name.clone() }, Command::Totals];
        assert!(looks.iter().all(|look| look.is_look() && needs(look) == Role::View));
        assert_eq!(needs(&Command::Flush), Role::Admin);
        assert_eq!(needs(&Command::Cancel { jids: vec![name] }), Role::Operate);
    }
}
