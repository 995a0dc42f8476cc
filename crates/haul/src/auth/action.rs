//! What the audit log says of a command: the names in it, never data.

use haul_engine::{Command, Name};
use serde_json::{Map, Value, json};

/// Names of one list that are written out; of more, how many there are is.
const NAMES_SHOWN_MAX: usize = 100;
/// Characters of a name or value that are written out.
const SHOWN_CHARS_MAX: usize = 256;

/// An operator's act.
#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) what: &'static str,
    pub(crate) parts: Vec<(&'static str, Part)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Part {
    Name(Name),
    Names(Vec<Name>),
    Number(f64),
}

impl Action {
    pub(crate) fn new<const N: usize>(what: &'static str, parts: [(&'static str, Part); N]) -> Option<Self> {
        Some(Action { what, parts: parts.into() })
    }

    /// What is to be written down of this command; none: it is not an operator's. Taking a job or a name away from a
    /// worker is, although a worker may do it too.
    pub(crate) fn of(command: &Command) -> Option<Self> {
        let name = |name: &Name| Part::Name(name.clone());
        let names = |names: &[Name]| Part::Names(names.to_vec());
        match command {
            Command::Cancel { jids } => Action::new("cancel", [("jids", names(jids))]),
            Command::Timeout { jids } => Action::new("release", [("jids", names(jids))]),
            Command::Drain { worker, drain } => Action::new(
                if *drain { "drain" } else { "undrain" },
                [("workers", names(std::slice::from_ref(worker)))],
            ),
            Command::Deregister { workers } => Action::new("deregister", [("workers", names(workers))]),
            Command::Forget { queues } => Action::new("forget", [("queues", names(queues))]),
            Command::Pause { queues, paused } => {
                Action::new(if *paused { "pause" } else { "unpause" }, [("queues", names(queues))])
            }
            Command::Priority { jid, priority } => {
                Action::new("priority", [("jid", name(jid)), ("priority", Part::Number(*priority))])
            }
            Command::Depends { jid, jids, .. } => {
                Action::new("depends", [("jid", name(jid)), ("jids", names(jids))])
            }
            Command::Unfail { queue, group, count } => Action::new(
                "unfail",
                [("queue", name(queue)), ("group", name(group)), ("count", Part::Number(*count as f64))],
            ),
            Command::Unrecur { jid } => Action::new("unrecur", [("jid", name(jid))]),
            Command::ConfigSet { option, value } => {
                Action::new("config-set", [("option", name(option)), ("value", name(value))])
            }
            Command::ConfigUnset { option } => Action::new("config-unset", [("option", name(option))]),
            Command::ThrottleSet { id, maximum, .. } => {
                Action::new("throttle-set", [("throttle", name(id)), ("maximum", Part::Number(*maximum))])
            }
            Command::ThrottleDelete { id } => Action::new("throttle-delete", [("throttle", name(id))]),
            Command::ThrottleRelease { id, jids } => {
                Action::new("throttle-release", [("throttle", name(id)), ("jids", names(jids))])
            }
            Command::Flush => Action::new("flush", []),
            _ => None,
        }
    }

    pub(crate) fn write(&self, line: &mut Map<String, Value>) {
        line.insert("action".to_owned(), json!(self.what));
        for (key, part) in &self.parts {
            let value = match part {
                Part::Name(name) => json!(shown(name)),
                Part::Number(number) => json!(number),
                Part::Names(names) => {
                    if names.len() > NAMES_SHOWN_MAX {
                        line.insert(format!("{key}_count"), json!(names.len()));
                    }
                    names.iter().take(NAMES_SHOWN_MAX).map(shown).collect()
                }
            };
            line.insert((*key).to_owned(), value);
        }
    }
}

fn shown(name: &Name) -> String {
    String::from_utf8_lossy(name.bytes()).chars().take(SHOWN_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Role, needs};
    use super::*;

    #[test]
    fn every_act_above_work_is_written_down() {
        let name = Name::new(b"x");
        let acts = [
            Command::Cancel { jids: vec![name.clone()] },
            Command::Forget { queues: vec![name.clone()] },
            Command::Pause { queues: vec![name.clone()], paused: true },
            Command::Priority { jid: name.clone(), priority: 1.0 },
            Command::Depends { jid: name.clone(), on: Some(true), jids: vec![], all: false },
            Command::Unfail { queue: name.clone(), group: name.clone(), count: 1 },
            Command::Unrecur { jid: name.clone() },
            Command::ConfigSet { option: name.clone(), value: name.clone() },
            Command::ConfigUnset { option: name.clone() },
            Command::ThrottleSet { id: name.clone(), maximum: 1.0, ttl: 0.0 },
            Command::ThrottleDelete { id: name.clone() },
            Command::ThrottleRelease { id: name.clone(), jids: vec![] },
            Command::Flush,
        ];
        for act in acts {
            assert!(needs(&act) >= Role::Operate && Action::of(&act).is_some(), "{act:?}");
        }
        assert!(Action::of(&Command::Get { jid: name }).is_none());
    }

    #[test]
    fn long_lists_are_counted() {
        let mut line = Map::new();
        let jids = vec![Name::new(b"x"); NAMES_SHOWN_MAX + 1];
        Action::of(&Command::Cancel { jids }).unwrap().write(&mut line);
        assert_eq!(line["jids"].as_array().unwrap().len(), NAMES_SHOWN_MAX);
        assert_eq!(line["jids_count"], NAMES_SHOWN_MAX + 1);
    }
}
