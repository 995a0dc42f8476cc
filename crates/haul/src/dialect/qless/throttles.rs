//! Throttles.

use haul_engine::{Command, Name, QUEUE_THROTTLE_PREFIX};

use super::super::args::{Bad, number, whole};
use super::super::refusal::Verb;
use super::super::scripts::Script;
use super::super::shape::Shape;
use super::names::Throttle;
use super::{Read, Reader};

const NO_ID: &str = "Throttle(): no tid provided";

impl Reader<'_> {
    pub(super) fn throttle(&self, part: Throttle) -> Read {
        let args = self.args;
        let id = match part {
            Throttle::QueueGet | Throttle::QueueSet => {
                let queue = args.name(0, super::NO_QUEUE)?;
                Name::new(&[QUEUE_THROTTLE_PREFIX, queue.bytes()].concat())
            }
            _ => args.name(0, NO_ID)?,
        };
        let with_ttl = self.script == Script::Reqless;
        let (command, shape) = match part {
            Throttle::Set | Throttle::QueueSet => {
                let ttl = if part == Throttle::Set { self.ttl()? } else { 0.0 };
                (Command::ThrottleSet { id, maximum: self.maximum()?, ttl }, Shape::Nil)
            }
            Throttle::Get | Throttle::QueueGet => (Command::ThrottleGet { id }, Shape::Throttle { with_ttl }),
            Throttle::Delete => (Command::ThrottleDelete { id }, Shape::Nil),
            Throttle::Locks => (Command::ThrottleLocks { id }, Shape::Holders),
            Throttle::Pending => (Command::ThrottlePending { id }, Shape::Holders),
            Throttle::Ttl => (Command::ThrottleGet { id }, Shape::ThrottleTtl),
            Throttle::Release => (Command::ThrottleRelease { id, jids: args.from(1).names()? }, Shape::Nil),
        };
        Ok((command, Verb::Other, shape))
    }

    fn maximum(&self) -> Result<f64, Bad> {
        let text = self.args.get(1).ok_or("Lua redis lib command arguments must be strings or integers")?;
        number(Some(text), "Throttle(): Arg \"maximum\" not a number: ")
    }

    /// Whole seconds; absent or 0: no end.
    fn ttl(&self) -> Result<f64, Bad> {
        let ttl = self.args.number_or(2, 0.0, "Throttle(): Arg \"ttl\" not a number: ")?;
        whole(ttl).map(|_| ttl)
    }
}
