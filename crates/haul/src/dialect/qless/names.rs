//! The names of the commands, script by script.

use crate::dialect::scripts::Script;

/// A command, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Get,
    MultiGet,
    Complete,
    /// Complete, trailing arguments ignored.
    CompletePlain,
    CompleteAndRequeue,
    Fail,
    Failed,
    FailureGroups,
    Jobs,
    JobsCompleted,
    Heartbeat,
    Retry,
    Depends,
    AddDependency,
    RemoveDependency,
    Priority,
    /// `tag <word> ...`
    Tag,
    AddTag,
    RemoveTag,
    Tagged,
    TopTags,
    /// `track [<word> <jid>]`
    Track,
    TrackJob,
    UntrackJob,
    Tracked,
    Log,
    Put,
    Requeue,
    Pop,
    Peek,
    Pause,
    Unpause,
    Queues,
    AllQueues,
    QueueNames,
    Length,
    Stats,
    Timeout,
    Cancel,
    Unfail,
    Recur,
    RecurAtInterval,
    Unrecur,
    RecurGet,
    RecurUpdate,
    RecurTag,
    RecurUntag,
    Workers,
    AllWorkers,
    Deregister,
    Forget,
    ConfigGet,
    ConfigAll,
    ConfigSet,
    ConfigUnset,
    Throttle(Throttle),
    Pattern(Pattern),
}

/// A command on a throttle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Throttle {
    Set,
    Get,
    Delete,
    Locks,
    Pending,
    Ttl,
    Release,
    QueueSet,
    QueueGet,
}

/// A command on the queue patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    IdentifiersGet,
    IdentifiersSet,
    PrioritiesGet,
    PrioritiesSet,
}

// What every job needs comes first in each table.

const QLESS: &[(&str, Op)] = &[
    ("put", Op::Put),
    ("pop", Op::Pop),
    ("complete", Op::Complete),
    ("heartbeat", Op::Heartbeat),
    ("get", Op::Get),
    ("multiget", Op::MultiGet),
    ("fail", Op::Fail),
    ("failed", Op::Failed),
    ("jobs", Op::Jobs),
    ("retry", Op::Retry),
    ("depends", Op::Depends),
    ("priority", Op::Priority),
    ("tag", Op::Tag),
    ("track", Op::Track),
    ("log", Op::Log),
    ("requeue", Op::Requeue),
    ("peek", Op::Peek),
    ("pause", Op::Pause),
    ("unpause", Op::Unpause),
    ("queues", Op::Queues),
    ("length", Op::Length),
    ("stats", Op::Stats),
    ("timeout", Op::Timeout),
    ("cancel", Op::Cancel),
    ("unfail", Op::Unfail),
    ("recur", Op::Recur),
    ("unrecur", Op::Unrecur),
    ("recur.get", Op::RecurGet),
    ("recur.update", Op::RecurUpdate),
    ("recur.tag", Op::RecurTag),
    ("recur.untag", Op::RecurUntag),
    ("workers", Op::Workers),
    ("worker.deregister", Op::Deregister),
    ("queue.forget", Op::Forget),
    ("config.get", Op::ConfigGet),
    ("config.set", Op::ConfigSet),
    ("config.unset", Op::ConfigUnset),
];

const THROTTLES: &[(&str, Op)] = &[
    ("throttle.set", Op::Throttle(Throttle::Set)),
    ("throttle.get", Op::Throttle(Throttle::Get)),
    ("throttle.delete", Op::Throttle(Throttle::Delete)),
    ("throttle.locks", Op::Throttle(Throttle::Locks)),
    ("throttle.pending", Op::Throttle(Throttle::Pending)),
    ("throttle.release", Op::Throttle(Throttle::Release)),
    ("queue.throttle.set", Op::Throttle(Throttle::QueueSet)),
    ("queue.throttle.get", Op::Throttle(Throttle::QueueGet)),
];

const REQLESS: &[(&str, Op)] = &[
    ("queue.put", Op::Put),
    ("queue.pop", Op::Pop),
    ("job.complete", Op::CompletePlain),
    ("job.heartbeat", Op::Heartbeat),
    ("config.get", Op::ConfigGet),
    ("config.getAll", Op::ConfigAll),
    ("config.set", Op::ConfigSet),
    ("config.unset", Op::ConfigUnset),
    ("failureGroups.counts", Op::FailureGroups),
    ("job.addDependency", Op::AddDependency),
    ("job.addTag", Op::AddTag),
    ("job.cancel", Op::Cancel),
    ("job.completeAndRequeue", Op::CompleteAndRequeue),
    ("job.fail", Op::Fail),
    ("job.get", Op::Get),
    ("job.getMulti", Op::MultiGet),
    ("job.log", Op::Log),
    ("job.removeDependency", Op::RemoveDependency),
    ("job.removeTag", Op::RemoveTag),
    ("job.requeue", Op::Requeue),
    ("job.retry", Op::Retry),
    ("job.setPriority", Op::Priority),
    ("job.timeout", Op::Timeout),
    ("job.track", Op::TrackJob),
    ("job.untrack", Op::UntrackJob),
    ("jobs.completed", Op::JobsCompleted),
    ("jobs.failedByGroup", Op::Failed),
    ("jobs.tagged", Op::Tagged),
    ("jobs.tracked", Op::Tracked),
    ("queue.counts", Op::Queues),
    ("queue.forget", Op::Forget),
    ("queue.jobsByState", Op::Jobs),
    ("queue.length", Op::Length),
    ("queue.pause", Op::Pause),
    ("queue.peek", Op::Peek),
    ("queue.recurAtInterval", Op::RecurAtInterval),
    ("queue.stats", Op::Stats),
    ("queue.unfail", Op::Unfail),
    ("queue.unpause", Op::Unpause),
    ("queueIdentifierPatterns.getAll", Op::Pattern(Pattern::IdentifiersGet)),
    ("queueIdentifierPatterns.setAll", Op::Pattern(Pattern::IdentifiersSet)),
    ("queuePriorityPatterns.getAll", Op::Pattern(Pattern::PrioritiesGet)),
    ("queuePriorityPatterns.setAll", Op::Pattern(Pattern::PrioritiesSet)),
    ("queues.counts", Op::AllQueues),
    ("queues.names", Op::QueueNames),
    ("recurringJob.addTag", Op::RecurTag),
    ("recurringJob.cancel", Op::Unrecur),
    ("recurringJob.get", Op::RecurGet),
    ("recurringJob.removeTag", Op::RecurUntag),
    ("recurringJob.update", Op::RecurUpdate),
    ("tags.top", Op::TopTags),
    ("worker.forget", Op::Deregister),
    ("worker.jobs", Op::Workers),
    ("workers.counts", Op::AllWorkers),
];

/// All names of a script.
#[cfg(test)]
pub(crate) fn all(script: Script) -> Vec<&'static str> {
    let known = [QLESS, REQLESS, THROTTLES].concat();
    let own = known.into_iter().filter(|(name, _)| find(script, name.as_bytes()).is_some());
    own.map(|(name, _)| name).collect()
}

/// The command of that name in that script. Names are case-sensitive.
pub(super) fn find(script: Script, name: &[u8]) -> Option<Op> {
    let tables: &[&[(&str, Op)]] = match script {
        Script::Qless | Script::QlessEarly => &[QLESS],
        Script::QlessThrottles => &[QLESS, THROTTLES, &[("throttle.ttl", Op::Throttle(Throttle::Ttl))]],
        Script::Reqless => &[REQLESS, THROTTLES],
    };
    let of =
        |table: &&[(&str, Op)]| table.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, op)| *op);
    tables.iter().find_map(of)
}
