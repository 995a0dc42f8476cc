//! Checkpoints: a thread that writes the frozen layer to the base, makes the base durable, and only then
//! takes the segments that it contains out of the log. Writing the same records again is harmless, so a failed
//! attempt is simply repeated, and a crash at any point is repaired by replaying the log.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::base::{Base, Mark};
use super::bites::Bites;
use super::io::sync_folder;
use super::log::Spares;
use super::pending::Layer;
use super::records::Records;
use super::segment;
use crate::{Fault, Record, Space};

/// Free room asked for beyond the records themselves.
const SPARE_BYTES: u64 = 16 << 20;
/// Records of which one part is sorted at a time, about.
const PART_COUNT: usize = 256;
/// How long a failed attempt rests if nobody asks.
const REST: Duration = Duration::from_secs(1);

/// The thread, and the desk between it and the store.
pub(crate) struct Checkpointer {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What the frozen layer reaches up to; there is one exactly while this is set.
    job: Option<Mark>,
    /// The last segment that the base contains.
    contained: u64,
    attempts: u64,
    failed: Option<Fault>,
    /// Somebody waits: do not rest.
    hurry: bool,
    stop: bool,
    /// The thread is gone, for whatever reason.
    gone: bool,
    counts: Counts,
}

/// What was done so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) checkpoints: u64,
    pub(crate) failures: u64,
    pub(crate) records: u64,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl Checkpointer {
    /// It goes easy while no more than `easy_bytes` are pending.
    pub(crate) fn start(
        records: Arc<Records>,
        log: PathBuf,
        spares: Arc<Spares>,
        easy_bytes: usize,
    ) -> Result<Self, Fault> {
        let desk = Arc::new(Desk::default());
        let worker = Worker { desk: Arc::clone(&desk), records, log, spares, easy_bytes, broken: false };
        let thread = thread::Builder::new().name("haul-checkpoint".to_owned()).spawn(move || worker.run());
        let thread =
            thread.map_err(|error| Fault::Retry { what: format!("could not start a thread: {error}") })?;
        Ok(Self { desk, thread: Some(thread) })
    }

    /// Whether there is a frozen layer.
    pub(crate) fn is_busy(&self) -> bool {
        self.desk.lock().job.is_some()
    }

    /// Hands over the layer that the caller has just frozen.
    pub(crate) fn submit(&self, mark: Mark) {
        self.desk.lock().job = Some(mark);
        self.desk.changed.notify_all();
    }

    /// Waits for the frozen layer to be written, or for one attempt at it to fail.
    pub(crate) fn wait(&self) -> Result<(), Fault> {
        let mut state = self.desk.lock();
        let before = state.attempts;
        state.hurry = true;
        self.desk.changed.notify_all();
        while state.job.is_some() && state.attempts == before && !state.gone {
            state = self.desk.wait(state);
        }
        match (&state.job, &state.failed) {
            (None, _) => Ok(()),
            (Some(_), Some(fault)) => Err(fault.clone()),
            (Some(_), None) => Err(Fault::Retry { what: "the checkpoint thread is gone".to_owned() }),
        }
    }

    /// The last segment that the base contains by this thread's work.
    pub(crate) fn contained(&self) -> u64 {
        self.desk.lock().contained
    }

    pub(crate) fn counts(&self) -> Counts {
        self.desk.lock().counts
    }
}

impl Drop for Checkpointer {
    /// Lets the attempt under way end; what is not written stays in the log.
    fn drop(&mut self) {
        self.desk.lock().stop = true;
        self.desk.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the checkpoint thread panicked");
        }
    }
}

struct Worker {
    desk: Arc<Desk>,
    records: Arc<Records>,
    log: PathBuf,
    spares: Arc<Spares>,
    easy_bytes: usize,
    /// A write to the base failed: fjall takes no more until it is opened again.
    broken: bool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.desk.lock().gone = true;
        self.desk.changed.notify_all();
    }
}

impl Worker {
    fn run(mut self) {
        while let Some(mark) = self.next() {
            let result = self.attempt(mark);
            let mut state = self.desk.lock();
            state.attempts += 1;
            state.hurry = false;
            match result {
                Ok(records) => {
                    state.job = None;
                    state.failed = None;
                    state.contained = mark.segment;
                    state.counts.checkpoints += 1;
                    state.counts.records += records;
                }
                Err(fault) => {
                    tracing::warn!(%fault, "a checkpoint failed and will be tried again; the log keeps everything");
                    state.failed = Some(fault);
                    state.counts.failures += 1;
                }
            }
            drop(state);
            self.desk.changed.notify_all();
        }
    }

    /// Waits for something to do; after a failure rests first, unless somebody is waiting for it.
    fn next(&self) -> Option<Mark> {
        let mut state = self.desk.lock();
        loop {
            if state.stop {
                return None;
            }
            match state.job {
                Some(mark) if state.failed.is_none() || state.hurry => return Some(mark),
                Some(mark) => {
                    let rested = self.desk.changed.wait_timeout(state, REST);
                    let (woken, timeout) = rested.unwrap_or_else(PoisonError::into_inner);
                    state = woken;
                    if timeout.timed_out() && !state.stop {
                        return Some(mark);
                    }
                }
                None => state = self.desk.wait(state),
            }
        }
    }

    fn attempt(&mut self, mark: Mark) -> Result<u64, Fault> {
        let Some(layer) = self.records.pending().frozen.clone() else { return Ok(0) };
        let bytes = layer.bytes as u64 + SPARE_BYTES;
        if self.records.check_room(bytes).is_err() {
            self.spares.clear();
            self.records.check_room(bytes)?;
        }
        let (desk, records, easy_bytes) =
            (Arc::clone(&self.desk), Arc::clone(&self.records), self.easy_bytes);
        let is_urgent = || {
            let State { hurry, stop, .. } = *desk.lock();
            hurry || stop || records.pending_bytes() > easy_bytes
        };
        let mut bites = Bites::new(&is_urgent);
        let mut result = self.write(&layer, mark, &mut bites);
        if matches!(result, Err(Fault::Retry { .. })) {
            // fjall may have failed earlier, in the background: once more with a fresh one.
            self.broken = true;
            result = self.write(&layer, mark, &mut bites);
        }
        self.broken = result.is_err();
        let written = result?;
        self.records.thaw();
        // Emptied outside the lock: it is large. A reader that still holds it drops it instead.
        if let Some(mut layer) = Arc::into_inner(layer) {
            layer.clear(self.records.chunks(), &mut bites);
            self.records.pending_mut().keep_spare(layer);
        }
        give_back(&self.log, &self.spares, mark.segment);
        Ok(written)
    }

    fn write(&mut self, layer: &Layer, mark: Mark, bites: &mut Bites<'_>) -> Result<u64, Fault> {
        if self.broken {
            self.records.reopen_base()?;
            self.broken = false;
        }
        let base = self.records.base();
        let base = base.get()?;
        let headers = Changes::new(layer, Space::Header, &base.last_key(Space::Header), bites);
        let bodies = Changes::new(layer, Space::Body, &base.last_key(Space::Body), bites);
        for (by, record) in bodies.records.iter().filter(|(_, record)| record.value.is_none()) {
            self.haunt(base, record.key, *by)?;
        }
        let headers = base.take_in(Space::Header, headers.sorted(), bites)?;
        let bodies = base.take_in(Space::Body, bodies.sorted(), bites)?;
        base.set_mark(mark)?;
        base.persist()?;
        Ok(headers + bodies)
    }

    /// Keeps a body that goes from the base for the pins that may still ask for it.
    fn haunt(&self, base: &Base, key: &[u8], by: u64) -> Result<(), Fault> {
        if by > self.records.pins().oldest()
            && let Some(value) = base.body(key)?
        {
            self.records.pending_mut().haunt(key, by, value);
        }
        Ok(())
    }
}

/// What the base has to know.
struct Changes<'a> {
    records: Vec<(u64, Record<'a>)>,
    /// Their places, in the order of the keys.
    order: Vec<Ordered>,
}

/// A record's place, and what says most about the order: the records lie far apart, most comparisons need no look at them.
#[derive(Clone, Copy, Default)]
struct Ordered {
    head: u128,
    at: u32,
    part: u32,
}

impl<'a> Changes<'a> {
    /// Not the deletions beyond the base's last key: most bodies that are deleted came since the last checkpoint.
    fn new(layer: &'a Layer, space: Space, last: &[u8], bites: &mut Bites<'_>) -> Self {
        let mut records = layer.records_in_order(space, bites);
        let mut heads = Heads::default();
        records.retain(|(_, record)| {
            let is_news = record.value.is_some() || record.key <= last;
            if is_news {
                heads.add(record.key);
            }
            bites.step();
            is_news
        });
        let order = sort(&records, &heads, bites);
        Changes { records, order }
    }

    /// In the order of the keys, as the base takes them.
    fn sorted(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        let sorted = self.order.iter().filter_map(|place| self.records.get(place.at as usize));
        sorted.map(|(_, record)| (record.key, record.value))
    }
}

/// Sorts in bites: they are divided by a sample of all, and each part is sorted by itself.
fn sort(records: &[(u64, Record<'_>)], heads: &Heads<'_>, bites: &mut Bites<'_>) -> Vec<Ordered> {
    let mut limits: Vec<u128> =
        records.iter().step_by(PART_COUNT).map(|(_, record)| heads.head(record.key)).collect();
    limits.sort_unstable();
    let mut ends = vec![0; limits.len() + 1];
    let mut mixed = Vec::with_capacity(records.len());
    let mut part = 0_usize;
    for ((_, record), at) in records.iter().zip(0..) {
        let head = heads.head(record.key);
        // Mostly the same as that of the one before.
        let below = part.checked_sub(1).and_then(|below| limits.get(below));
        if below.is_some_and(|limit| head < *limit) || limits.get(part).is_some_and(|limit| *limit <= head) {
            part = limits.partition_point(|limit| *limit <= head);
        }
        if let Some(count) = ends.get_mut(part) {
            *count += 1;
        }
        mixed.push(Ordered { head, at, part: part as u32 });
        bites.step();
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    let mut order = vec![Ordered::default(); mixed.len()];
    for place in mixed {
        let end = ends.get_mut(place.part as usize);
        if let Some((slot, end)) = end.and_then(|end| order.get_mut(*end).map(|slot| (slot, end))) {
            *slot = place;
            *end += 1;
        }
        bites.step();
    }
    let key = |place: &Ordered| records.get(place.at as usize).map(|(_, record)| record.key);
    for part in order.chunk_by_mut(|one, next| one.part == next.part) {
        part.sort_unstable_by(|one, other| one.head.cmp(&other.head).then_with(|| key(one).cmp(&key(other))));
        bites.rest();
    }
    order
}

/// Makes numbers of keys that have mostly the same order as the keys: keys with the same first byte often begin alike, and what
/// they have in common says nothing.
struct Heads<'a>([Option<&'a [u8]>; 256]);

impl Default for Heads<'_> {
    fn default() -> Self {
        Heads([None; 256])
    }
}

impl<'a> Heads<'a> {
    /// One more key, before the first head is asked for.
    fn add(&mut self, key: &'a [u8]) {
        if let Some(common) = key.first().and_then(|first| self.0.get_mut(usize::from(*first))) {
            let known: &[u8] = common.unwrap_or(key);
            let alike = known.iter().zip(key).take_while(|(one, other)| one == other).count();
            *common = known.get(..alike);
        }
    }

    /// The first byte, then those after what is common. Of two keys the lesser one has no greater head.
    fn head(&self, key: &[u8]) -> u128 {
        let mut head = [0; 16];
        let first = key.first().copied().unwrap_or_default();
        let common = self.0.get(usize::from(first)).copied().flatten().unwrap_or_default();
        let rest = key.get(common.len()..).unwrap_or_default();
        let firsts = std::iter::once(&first).chain(rest);
        head.iter_mut().zip(firsts).for_each(|(head, byte)| *head = *byte);
        u128::from_be_bytes(head)
    }
}

/// Takes the segments before `last`, the last one that the base contains, out of the log. That one stays as a witness:
/// should the base lose its newest records (fjall cuts a journal off where it cannot read on), its mark
/// falls back, and the start either replays the witness or misses the segments before it and says so.
/// One that cannot be taken out is left for the next start.
fn give_back(log: &Path, spares: &Spares, last: u64) {
    let deleted = fs::read_dir(log).and_then(|entries| {
        for entry in entries {
            let entry = entry?;
            let number = segment::number(&entry.file_name().to_string_lossy());
            if let Some(number) = number.filter(|number| *number < last) {
                spares.take_in(number)?;
            }
        }
        sync_folder(log)
    });
    if let Err(error) = deleted {
        report(log, &error);
    }
}

fn report(log: &Path, error: &io::Error) {
    tracing::warn!(folder = %log.display(), %error, "could not delete log segments that are done with");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_sorted_by_their_whole_keys() {
        for count in [0, 1, 2, PART_COUNT, PART_COUNT + 1, 40 * PART_COUNT] {
            // Of the same length as the numbers go round, so that many are alike in what a head has of them.
            let name = |at: usize| format!("jdefault-{:030}-{:05}", at * 7919 % 13, at * 104_729 % 99_991);
            let keys: Vec<String> = (0..count).map(name).collect();
            let mut heads = Heads::default();
            let record =
                |key: &'static str| Record { space: Space::Header, key: key.as_bytes(), value: None };
            let records: Vec<_> = keys.iter().map(|key| (0, record(key.clone().leak()))).collect();
            records.iter().for_each(|(_, record)| heads.add(record.key));
            let order = sort(&records, &heads, &mut Bites::new(&|| true));
            let sorted: Vec<&[u8]> = order.iter().map(|place| records[place.at as usize].1.key).collect();
            let mut wanted: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
            wanted.sort_unstable();
            assert!(sorted == wanted, "{count}");
        }
    }

    #[test]
    fn heads_have_the_order_of_the_keys() {
        let keys: [&[u8]; 8] =
            [b"", b"a", b"jdefault", b"jdefault0", b"jdefault07", b"jdefault1", b"jdefault\xff", b"k"];
        let mut heads = Heads::default();
        keys.into_iter().for_each(|key| heads.add(key));
        let made: Vec<u128> = keys.iter().map(|key| heads.head(key)).collect();
        assert!(made.is_sorted(), "{made:x?}");
        assert_ne!(made[5], made[6], "what is common was left out");
    }
}
