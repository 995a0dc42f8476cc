//! The error texts of qless and reqless, typos and missing spaces included: clients match on them.

use haul_engine::{Name, Refusal};

use super::ErrorFormat;
use super::scripts::Script;

/// Which command a refusal belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Complete,
    Fail,
    Heartbeat,
    Retry,
    Depends,
    Priority,
    Tag,
    Untag,
    Track,
    Log,
    Requeue,
    Cancel,
    Timeout,
    Recur,
    Other,
}

/// What the script would have said.
pub(crate) fn text(script: Script, verb: Verb, refusal: &Refusal) -> String {
    // Later scripts leave the jid out.
    let job = |jid: &Name| if script == Script::Qless { format!("Job {jid}") } else { "Job".to_owned() };
    match (verb, refusal) {
        (Verb::Complete, Refusal::NoJob { jid }) => format!("Complete(): {} does not exist", job(jid)),
        (Verb::Complete, Refusal::NotRunning { jid, state }) => {
            format!("Complete(): {} is not currently running: {}", job(jid), state.word())
        }
        (Verb::Complete, Refusal::NotHeld { jid, worker }) => {
            format!("Complete(): {} has been handed out to another worker: {worker}", job(jid))
        }
        (Verb::Complete, Refusal::WrongQueue { jid, queue }) => {
            format!("Complete(): {} running in another queue: {queue}", job(jid))
        }
        (Verb::Fail, Refusal::NoJob { jid }) => match script {
            Script::Qless => format!("Fail(): Job {jid}does not exist"),
            _ => "Fail(): Job does not exist".to_owned(),
        },
        (Verb::Fail, Refusal::NotRunning { jid, state }) => match script {
            Script::Qless => format!("Fail(): Job {jid}not currently running: {}", state.word()),
            _ => format!("Fail(): Job not currently running: {}", state.word()),
        },
        (Verb::Fail, Refusal::NotHeld { jid, worker }) => {
            format!("Fail(): {} running with another worker: {worker}", job(jid))
        }
        (Verb::Heartbeat, Refusal::NoJob { jid }) => format!("Heartbeat(): {} does not exist", job(jid)),
        (Verb::Heartbeat, Refusal::NotRunning { jid, state }) => {
            format!("Heartbeat(): {} not currently running: {}", job(jid), state.word())
        }
        (Verb::Heartbeat, Refusal::NotHeld { jid, worker }) => {
            format!("Heartbeat(): {} given out to another worker: {worker}", job(jid))
        }
        (Verb::Retry, Refusal::NoJob { jid }) => format!("Retry(): {} does not exist", job(jid)),
        (Verb::Retry, Refusal::NotRunning { jid, state }) => {
            format!("Retry(): {} is not currently running: {}", job(jid), state.word())
        }
        (Verb::Retry, Refusal::NotHeld { jid, worker }) => {
            format!("Retry(): {} has been given to another worker: {worker}", job(jid))
        }
        _ => rest(script, verb, refusal),
    }
}

fn rest(script: Script, verb: Verb, refusal: &Refusal) -> String {
    match (verb, refusal) {
        (Verb::Depends, Refusal::NotDepends { jid, state }) => {
            let state = state.map_or("false", |state| state.word());
            format!("Depends(): Job {jid} not in the depends state: {state}")
        }
        (Verb::Depends, Refusal::NeitherOnNorOff) => {
            "Depends(): Argument \"command\" must be \"on\" or \"off\"".to_owned()
        }
        (Verb::Priority, Refusal::NoJob { jid }) => match script {
            Script::Qless => format!("Priority(): Job {jid} does not exist"),
            _ => "Queue(): no queue name provided".to_owned(),
        },
        (Verb::Tag, Refusal::NoJob { jid } | Refusal::NoRecur { jid }) => {
            format!("Tag(): Job {jid} does not exist")
        }
        (Verb::Untag, Refusal::NoJob { jid } | Refusal::NoRecur { jid }) => {
            format!("Untag(): Job {jid} does not exist")
        }
        (Verb::Track, Refusal::NoJob { .. }) => "Track(): Job does not exist".to_owned(),
        (Verb::Log, Refusal::NoJob { jid }) => format!("Log(): Job {jid} does not exist"),
        (Verb::Requeue, Refusal::NoJob { jid }) => format!("Requeue(): Job {jid} does not exist"),
        (Verb::Cancel, Refusal::Needed { jid, by }) => {
            format!("Cancel(): {jid} is a dependency of {by} but is not mentioned to be canceled")
        }
        (Verb::Timeout, Refusal::NoJob { jid }) if script != Script::Reqless => {
            format!("Timeout(): Job {jid} does not exist")
        }
        (Verb::Timeout, Refusal::NoJob { jid } | Refusal::NotRunning { jid, .. }) => {
            format!("Timeout(): Job {jid} not running")
        }
        (Verb::Recur, Refusal::NoRecur { jid }) => format!("Recur(): No recurring job {jid}"),
        (_, refusal) => plain(refusal),
    }
}

/// In Haul's own words.
pub(crate) fn plain(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoJob { jid } => format!("there is no job {jid}"),
        Refusal::NoRecur { jid } => format!("there is no recurring job {jid}"),
        Refusal::Exists { jid } => format!("job {jid} exists already"),
        Refusal::NotRunning { jid, state } => format!("job {jid} is not running: it is {}", state.word()),
        Refusal::NotHeld { jid, worker } => format!("job {jid} is held by {worker}, or by a later attempt"),
        Refusal::WrongQueue { jid, queue } => format!("job {jid} runs in queue {queue}"),
        Refusal::NotDepends { jid, state: Some(state) } => {
            format!("job {jid} does not wait for others: it is {}", state.word())
        }
        Refusal::NotDepends { jid, state: None } => format!("there is no job {jid}"),
        Refusal::NeitherOnNorOff => "say ON or OFF".to_owned(),
        Refusal::Needed { jid, by } => format!("job {by} waits for {jid}: cancel it in the same call"),
        Refusal::WrongType => "Operation against a key holding the wrong kind of value".to_owned(),
        Refusal::NotInteger => "value is not an integer or out of range".to_owned(),
        Refusal::BadArgument(text) => text.clone(),
    }
}

/// Wraps a message as the chosen server generation would.
pub(crate) fn envelope(format: ErrorFormat, sha: &str, message: &str) -> String {
    match format {
        ErrorFormat::Clean => format!("ERR user_script:1: {message}"),
        ErrorFormat::Redis6 => {
            format!("ERR Error running script (call to f_{sha}): @user_script:1: user_script:1: {message}")
        }
        ErrorFormat::Redis7 => format!("ERR user_script:1: {message} script: {sha}, on @user_script:1."),
    }
}
