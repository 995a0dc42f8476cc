//! Queue patterns: two small documents that the server only keeps, as scratch keys.

use haul_engine::{Command, KeyCommand, KeyQuery, Name};

use super::super::args::{Bad, kind, shown};
use super::super::refusal::Verb;
use super::super::shape::Shape;
use super::names::Pattern;
use super::{Read, Reader};

const DEFAULT_IDENTIFIERS: &str = "[\"*\"]";
const DEFAULT_PRIORITY: &str = "{\"fairly\": false, \"pattern\": [\"default\"]}";

impl Reader<'_> {
    pub(super) fn pattern(&self, part: Pattern) -> Read {
        let (command, shape) = match part {
            Pattern::IdentifiersGet => {
                let keys = vec!["ql:qp:identifiers".into(), "qmore:dynamic".into()];
                (Command::Key(KeyQuery::FirstHash { keys }), Shape::Identifiers)
            }
            Pattern::PrioritiesGet => {
                let keys = vec!["ql:qp:priorities".into(), "qmore:priority".into()];
                (Command::Key(KeyQuery::FirstList { keys }), Shape::Priorities)
            }
            Pattern::IdentifiersSet => (Command::Keyspace(self.identifiers()?), Shape::Nil),
            Pattern::PrioritiesSet => (Command::Keyspace(self.priorities()?), Shape::Nil),
        };
        Ok((command, Verb::Other, shape))
    }

    fn identifiers(&self) -> Result<KeyCommand, Bad> {
        let args = self.args;
        if !args.len().is_multiple_of(2) {
            return Err("Odd number of identifier patterns: table".to_owned());
        }
        let mut pairs: Vec<(Name, Name)> = Vec::new();
        for (name, value) in args.pairs() {
            let value = value.unwrap_or_default();
            kind(value)?;
            let list: Vec<serde_json::Value> = serde_json::from_slice(value).unwrap_or_default();
            pairs.retain(|(known, _)| known.bytes() != name);
            if !list.is_empty() {
                pairs.push((args.to_name(name)?, Name::new(args.text(value)?.as_ref())));
            }
        }
        if !pairs.iter().any(|(name, _)| name.bytes() == b"default") {
            pairs.push(("default".into(), DEFAULT_IDENTIFIERS.into()));
        }
        Ok(KeyCommand::HashReplace {
            key: "ql:qp:identifiers".into(),
            pairs,
            also_remove: "qmore:dynamic".into(),
        })
    }

    fn priorities(&self) -> Result<KeyCommand, Bad> {
        let mut values = Vec::new();
        let mut has_default = false;
        for text in self.args.list {
            kind(text)?;
            let entry: serde_json::Value = serde_json::from_slice(text)
                .map_err(|_| format!("not a priority pattern: {}", shown(Some(text))))?;
            has_default |= entry.get("pattern") == Some(&serde_json::json!(["default"]));
            values.push(Name::new(self.args.text(text)?.as_ref()));
        }
        if !values.is_empty() && !has_default {
            values.push(DEFAULT_PRIORITY.into());
        }
        Ok(KeyCommand::ListReplace {
            key: "ql:qp:priorities".into(),
            values,
            also_remove: "qmore:priority".into(),
        })
    }
}

/// What the readers answer when nothing was ever set.
pub(crate) const fn defaults() -> (&'static str, &'static str) {
    (DEFAULT_IDENTIFIERS, DEFAULT_PRIORITY)
}
