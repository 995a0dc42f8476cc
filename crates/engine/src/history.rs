//! What happened to a job, in order. Millions of jobs have been put and nothing else yet: that one entry is kept in the
//! job itself.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thin_vec::ThinVec;

use crate::{Entry, Name, Text, What};

/// A job's history. Stored as the list of its entries.
#[derive(Clone, Debug)]
pub(crate) enum History {
    /// One put into this queue.
    Put(f64, Name),
    Entries(ThinVec<Entry>),
}

impl Default for History {
    fn default() -> Self {
        History::Entries(ThinVec::new())
    }
}

impl History {
    pub(crate) fn len(&self) -> usize {
        match self {
            History::Put(..) => 1,
            History::Entries(entries) => entries.len(),
        }
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        match (&mut *self, entry) {
            (History::Entries(entries), Entry { when, what: What::Put(queue) }) if entries.is_empty() => {
                *self = History::Put(when, queue);
            }
            (History::Entries(entries), entry) => entries.push(entry),
            (History::Put(..), entry) => self.change(|entries| entries.push(entry)),
        }
    }

    /// Drops `count` entries behind the first; answers the texts they had.
    pub(crate) fn forget(&mut self, count: usize) -> Vec<Text> {
        let end = (1 + count).min(self.len());
        if end <= 1 {
            return Vec::new();
        }
        let text = |entry: Entry| if let What::Log(log) = entry.what { log.1 } else { None };
        self.change(|entries| entries.drain(1..end).filter_map(text).collect())
    }

    /// Changes the list of entries, which it is from then on.
    fn change<T>(&mut self, change: impl FnOnce(&mut ThinVec<Entry>) -> T) -> T {
        let mut entries = match std::mem::take(self) {
            History::Entries(entries) => entries,
            History::Put(when, queue) => {
                // Room for the pop that follows, and for the end.
                let mut entries = ThinVec::with_capacity(3);
                entries.push(Entry { when, what: What::Put(queue) });
                entries
            }
        };
        let changed = change(&mut entries);
        *self = History::Entries(entries);
        changed
    }

    /// The entries, copied.
    pub(crate) fn to_vec(&self) -> Vec<Entry> {
        match self {
            History::Put(when, queue) => vec![Entry { when: *when, what: What::Put(queue.clone()) }],
            History::Entries(entries) => entries.to_vec(),
        }
    }

    /// When the first thing happened.
    pub(crate) fn first_at(&self) -> Option<f64> {
        match self {
            History::Put(when, _) => Some(*when),
            History::Entries(entries) => entries.first().map(|entry| entry.when),
        }
    }

    /// When the last thing happened.
    pub(crate) fn last_at(&self) -> Option<f64> {
        match self {
            History::Put(when, _) => Some(*when),
            History::Entries(entries) => entries.last().map(|entry| entry.when),
        }
    }

    /// Whether it was ever completed.
    pub(crate) fn has_done(&self) -> bool {
        self.others().any(|entry| entry.what == What::Done)
    }

    /// The texts of the user's lines.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Text> {
        self.others().filter_map(|entry| match &entry.what {
            What::Log(log) => log.1.as_ref(),
            _ => None,
        })
    }

    pub(crate) fn texts_mut(&mut self, each: &mut dyn FnMut(&mut Text)) {
        let History::Entries(entries) = self else { return };
        for entry in entries {
            if let What::Log(log) = &mut entry.what {
                log.1.iter_mut().for_each(&mut *each);
            }
        }
    }

    /// Replaces each queue's and worker's name.
    pub(crate) fn rename(&mut self, mut each: impl FnMut(&mut Name)) {
        match self {
            History::Put(_, queue) => each(queue),
            History::Entries(entries) => {
                for entry in entries {
                    if let What::Put(name) | What::Popped(name) = &mut entry.what {
                        each(name);
                    }
                }
            }
        }
    }

    /// The entries that are not one put.
    fn others(&self) -> impl Iterator<Item = &Entry> {
        match self {
            History::Put(..) => [].iter(),
            History::Entries(entries) => entries.iter(),
        }
    }
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            History::Put(when, queue) => {
                serializer.collect_seq([Entry { when: *when, what: What::Put(queue.clone()) }])
            }
            History::Entries(entries) => serializer.collect_seq(entries),
        }
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entries = ThinVec::<Entry>::deserialize(deserializer)?;
        if let [Entry { when, what: What::Put(queue) }] = &entries[..] {
            return Ok(History::Put(*when, queue.clone()));
        }
        entries.shrink_to_fit();
        Ok(History::Entries(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(what: What) -> Entry {
        Entry { when: 7.0, what }
    }

    fn stored(history: &History) -> Vec<u8> {
        let bytes = postcard::to_stdvec(history).unwrap();
        assert_eq!(
            bytes,
            postcard::to_stdvec(&history.to_vec()).unwrap(),
            "stored as the list of its entries"
        );
        let loaded: History = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(loaded.to_vec(), history.to_vec());
        bytes
    }

    #[test]
    fn it_is_its_entries_whatever_it_is_made_of() {
        let put = || entry(What::Put("q".into()));
        let log = || entry(What::Log(Box::new(("line".into(), Some(Text::Short("text".into()))))));
        for list in [vec![], vec![put()], vec![put(), put()], vec![log()], vec![put(), log(), log()]] {
            let mut history = History::default();
            list.iter().cloned().for_each(|entry| history.push(entry));
            assert_eq!(history.to_vec(), list);
            assert_eq!(history.len(), list.len());
            assert_eq!(history.last_at(), list.last().map(|entry| entry.when));
            stored(&history);
        }
    }

    #[test]
    fn what_is_forgotten_gives_its_texts_back_and_the_first_entry_stays() {
        let mut history = History::default();
        history.push(entry(What::Put("q".into())));
        assert_eq!(history.forget(5), []);
        history.push(entry(What::Log(Box::new(("line".into(), Some(Text::Short("text".into())))))));
        history.push(entry(What::Done));
        assert!(history.has_done());
        assert_eq!(history.forget(1), [Text::Short("text".into())]);
        assert_eq!(history.to_vec(), [entry(What::Put("q".into())), entry(What::Done)]);
    }

    #[test]
    fn it_takes_16_bytes_in_a_job() {
        assert_eq!(size_of::<History>(), 16);
    }
}
