//! Options.

use crate::record::Key;
use crate::tenant::{Cx, Tenant};
use crate::{Event, Kind, Name, Reply};

impl Tenant {
    pub(super) fn config_all(&self) -> Reply {
        let options = self.indexes.config.options.iter();
        Reply::Options(options.map(|(option, value)| (option.clone(), value.clone())).collect())
    }

    pub(super) fn config_set(&mut self, cx: &mut Cx<'_>, option: Name, value: Name) -> Reply {
        cx.emit(Event::ConfigSet { option: option.clone(), value: value.clone() });
        cx.tell_of(Kind::ConfigSet, None, Some(&option));
        self.indexes.dirty.insert(Key::Option(option.clone()));
        self.indexes.config.options.insert(option, value);
        self.touch_all(cx);
        Reply::Done
    }

    pub(super) fn config_unset(&mut self, cx: &mut Cx<'_>, option: Name) -> Reply {
        cx.emit(Event::ConfigUnset { option: option.clone() });
        cx.tell_of(Kind::ConfigUnset, None, Some(&option));
        self.indexes.config.options.remove(&option);
        self.indexes.dirty.insert(Key::Option(option));
        self.touch_all(cx);
        Reply::Done
    }

    /// Whoever waits for any queue should look again: a limit may have changed.
    pub(super) fn touch_all(&self, cx: &mut Cx<'_>) {
        for queue in self.indexes.queues.keys() {
            cx.round.touch_queue(queue);
        }
    }
}
