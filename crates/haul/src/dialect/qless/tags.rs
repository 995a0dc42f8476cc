//! Tags and tracking.

use haul_engine::{Command, Name};

use super::super::args::{Bad, shown, whole};
use super::super::refusal::Verb;
use super::super::scripts::Script;
use super::super::shape::Shape;
use super::names::Op;
use super::{Read, Reader, ranks};

const NO_JID: &str = "Tag(): Arg \"jid\" missing";

impl Reader<'_> {
    pub(super) fn tagging(&self, op: Op) -> Read {
        let args = self.args;
        match op {
            Op::Tag => self.tag(),
            Op::AddTag => self.retag(0, true),
            Op::RemoveTag => self.retag(0, false),
            Op::Tagged => self.tagged(0),
            Op::TopTags => self.top_tags(0),
            Op::Track if args.len() > 0 => self.track(),
            Op::TrackJob => self.track_job(0, true),
            Op::UntrackJob => self.track_job(0, false),
            _ => Ok((Command::Tracked, Verb::Other, Shape::Tracked)),
        }
    }

    fn tag(&self) -> Read {
        match self.args.get(0) {
            None => Err("Tag(): Arg \"command\" must be \"add\", \"remove\", \"get\" or \"top\"".to_owned()),
            Some(b"add") => self.retag(1, true),
            Some(b"remove") => self.retag(1, false),
            Some(b"get") => self.tagged(1),
            Some(b"top") => self.top_tags(1),
            Some(_) => Err("Tag(): First argument must be \"add\", \"remove\" or \"get\"".to_owned()),
        }
    }

    fn retag(&self, at: usize, add: bool) -> Read {
        let jid = self.args.name(at, NO_JID)?;
        let tags = self.args.from(at + 1).names()?;
        let command = if add { Command::Tag { jid, tags } } else { Command::Untag { jid, tags } };
        Ok((command, Verb::Tag, Shape::NameList))
    }

    fn window(&self, at: usize) -> Result<(f64, f64), Bad> {
        let word = if self.script == Script::Reqless { "limit" } else { "count" };
        let offset = self.args.number_or(at, 0.0, "Tag(): Arg \"offset\" not a number: ")?;
        let count = self.args.number_or(at + 1, 25.0, &format!("Tag(): Arg \"{word}\" not a number: "))?;
        Ok((offset, count))
    }

    fn tagged(&self, at: usize) -> Read {
        let tag: Name = self.args.name(at, "Tag(): Arg \"tag\" missing")?;
        let (offset, count) = self.window(at + 1)?;
        Ok((Command::Tagged { tag, range: ranks(offset, count)? }, Verb::Other, Shape::Page))
    }

    fn top_tags(&self, at: usize) -> Read {
        let (offset, count) = self.window(at)?;
        let (offset, count) = (whole(offset)?, whole(count)?);
        let command = match usize::try_from(offset) {
            Ok(offset) => Command::TopTags { offset, count: usize::try_from(count).ok() },
            Err(_) => Command::TopTags { offset: 0, count: Some(0) },
        };
        Ok((command, Verb::Other, Shape::NameList))
    }

    fn track(&self) -> Read {
        let word = self.args.get(0).unwrap_or_default().to_ascii_lowercase();
        match word.as_slice() {
            b"track" => self.track_job(1, true),
            b"untrack" => self.track_job(1, false),
            _ => {
                let jid = self.args.name(1, "Track(): Arg \"jid\" missing")?;
                let complaint = format!("Track(): Unknown action \"{}\"", shown(self.args.get(0)));
                Ok((Command::Exists { jid: jid.clone() }, Verb::Track, Shape::NoJobOr(jid, complaint)))
            }
        }
    }

    fn track_job(&self, at: usize, on: bool) -> Read {
        let jid = self.args.name(at, "Track(): Arg \"jid\" missing")?;
        let command = if on { Command::Track { jid } } else { Command::Untrack { jid } };
        Ok((command, Verb::Track, Shape::Flag))
    }
}
