//! Loading the engine: one thread reads the store's headers, others decode them, this one takes them in. They go round in
//! turn, so that they are taken in the order in which they were read, whoever is faster.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use haul_engine::{Decoder, Engine, Loaded, Loader, RecordError};
use haul_store::{Fault, Store};

/// Bytes of records that are handed on together.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that wait for each thread at most.
const BATCHES_MAX: usize = 4;
/// Threads that decode at most: from there on reading takes longer.
const DECODERS_MAX: usize = 4;

/// Records on their way, one behind the other.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each record's key ends, and its value.
    ends: Vec<(usize, usize)>,
}

type Decoded = Result<Vec<Loaded>, RecordError>;

/// The engine that a store holds.
pub(super) fn engine(store: &mut dyn Store) -> Result<Engine, Fault> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    engine_by(store, (cores - 1).clamp(1, DECODERS_MAX), BATCH_BYTES)
}

fn engine_by(store: &mut dyn Store, decoders: usize, batch_bytes: usize) -> Result<Engine, Fault> {
    let mut loader = Loader::default();
    thread::scope(|scope| {
        let (mut inlets, mut outlets) = (Vec::new(), Vec::new());
        for _ in 0..decoders {
            let (inlet, batches) = sync_channel(BATCHES_MAX);
            let (decoded, outlet) = sync_channel(BATCHES_MAX);
            let decoder = thread::Builder::new().name("haul-decode".to_owned());
            decoder.spawn_scoped(scope, move || decode(&batches, &decoded)).map_err(no_thread)?;
            inlets.push(inlet);
            outlets.push(outlet);
        }
        let reader = thread::Builder::new().name("haul-read".to_owned());
        let reader =
            reader.spawn_scoped(scope, move || read(store, &inlets, batch_bytes)).map_err(no_thread)?;
        let taken = take(&mut loader, &outlets);
        drop(outlets);
        let read = reader.join().unwrap_or_else(|_| Err(ended()));
        // A record that cannot be read also ends the reading: it is the cause then.
        taken.map_err(|error| Fault::Corrupt { what: error.to_string() })?;
        read
    })?;
    Ok(loader.finish())
}

/// Reads all records and hands them to the decoders in turn.
fn read(store: &mut dyn Store, inlets: &[SyncSender<Batch>], batch_bytes: usize) -> Result<(), Fault> {
    let mut turns = inlets.iter().cycle();
    let mut hand_on = |batch: Batch| match turns.next() {
        Some(inlet) => inlet.send(batch).map_err(|_| ended()),
        None => Err(ended()),
    };
    let mut batch = Batch::default();
    store.load(&mut |key, value| {
        batch.bytes.extend_from_slice(key);
        let middle = batch.bytes.len();
        batch.bytes.extend_from_slice(value);
        batch.ends.push((middle, batch.bytes.len()));
        if batch.bytes.len() < batch_bytes {
            return Ok(());
        }
        hand_on(std::mem::take(&mut batch))
    })?;
    hand_on(batch)
}

fn decode(batches: &Receiver<Batch>, decoded: &SyncSender<Decoded>) {
    let mut decoder = Decoder::default();
    for batch in batches {
        let records = decode_batch(&mut decoder, &batch);
        let failed = records.is_err();
        if decoded.send(records).is_err() || failed {
            return;
        }
    }
}

fn decode_batch(decoder: &mut Decoder, batch: &Batch) -> Decoded {
    let mut start = 0;
    let record = |&(middle, end): &(usize, usize)| {
        let (key, value) = (batch.bytes.get(start..middle), batch.bytes.get(middle..end));
        start = end;
        decoder.decode(key.unwrap_or_default(), value.unwrap_or_default())
    };
    batch.ends.iter().map(record).collect()
}

/// Takes in what the decoders hand on, in turn, until the one whose turn it is has no more.
fn take(loader: &mut Loader, outlets: &[Receiver<Decoded>]) -> Result<(), RecordError> {
    for outlet in outlets.iter().cycle() {
        let Ok(records) = outlet.recv() else { break };
        records?.into_iter().try_for_each(|record| loader.take(record))?;
    }
    Ok(())
}

/// Said by a thread whose neighbour has ended; why, the neighbour says.
fn ended() -> Fault {
    Fault::Retry { what: "a thread that loads the data has ended".to_owned() }
}

fn no_thread(error: std::io::Error) -> Fault {
    Fault::Retry { what: format!("could not start a thread: {error}") }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use haul_engine::Reply;
    use haul_store::{MemoryDisk, Space};

    use super::super::tests::plan;
    use super::*;

    /// A disk with jobs that were put in this order.
    fn disk(jobs: usize) -> MemoryDisk {
        let disk = MemoryDisk::new();
        let mut engine = Engine::default();
        for job in 0..jobs {
            engine.apply(plan(&format!("PUT queue{} klass {{}} JID jid{job}", job % 3)).call).unwrap();
        }
        engine.apply(plan("PUT queue0 klass {} JID last DEPENDS jid1").call).unwrap();
        for (key, value) in engine.take_changes().puts {
            disk.tamper(Space::Header, &key, Some(Bytes::from(value)));
        }
        disk
    }

    fn popped(engine: &mut Engine) -> Vec<String> {
        let Reply::Jobs(jobs) = engine.apply(plan("POP worker COUNT 1000 QUEUES queue1").call).unwrap()
        else {
            panic!("not jobs")
        };
        jobs.iter().map(|job| job.jid.to_string()).collect()
    }

    #[test]
    fn it_is_the_same_whoever_decodes() {
        let disk = disk(300);
        let mut wanted = None;
        for (decoders, batch_bytes) in [(1, BATCH_BYTES), (1, 1), (3, 1), (3, 1000), (4, BATCH_BYTES)] {
            let mut engine = engine_by(&mut disk.open(), decoders, batch_bytes).unwrap();
            assert_eq!(engine.jobs(), 301);
            assert_eq!(engine.audit(), []);
            let popped = popped(&mut engine);
            assert_eq!(popped.len(), 100);
            assert_eq!(*wanted.get_or_insert_with(|| popped.clone()), popped);
        }
        assert_eq!(engine(&mut MemoryDisk::new().open()).unwrap().jobs(), 0);
    }

    #[test]
    fn a_record_that_cannot_be_read_ends_it_and_is_named() {
        let disk = disk(300);
        let (_, key, _) = disk.records().into_iter().find(|(_, key, _)| key.ends_with(b"jid150")).unwrap();
        disk.tamper(Space::Header, &key, Some(Bytes::from_static(b"\x01\xff")));
        for decoders in [1, 3] {
            let fault = engine_by(&mut disk.open(), decoders, 1).err().unwrap();
            assert!(matches!(&fault, Fault::Corrupt { what } if what.contains("jid150")), "{fault}");
        }
    }
}
