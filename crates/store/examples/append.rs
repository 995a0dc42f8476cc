//! How fast batches become durable: the limit (append to a file and sync), the disk store, fjall alone.
//!
//! One op = a 250 B header written, every third op also a 1 KB body, every third a delete of an older
//! pair. Run: `cargo run --release -p haul-store --example append -- [seconds] [folder] [batch]`.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark measures time and prints it"
)]

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use haul_store::{Batch, DiskOptions, DiskStore, Record, Space, Store};

type Failure = Box<dyn std::error::Error>;

/// Makes the ops, one after the other.
struct Ops {
    next: u64,
    header: Bytes,
    body: Bytes,
    /// How many ops back a pair is deleted.
    age: u64,
}

impl Ops {
    fn new(age: u64) -> Self {
        // Not compressible, as real job data hardly is at this size.
        let mut seed = 1_u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            seed as u8
        })
        .take(1250)
        .collect();
        let mut header = Bytes::from(noise);
        let body = header.split_off(250);
        Self { next: 0, header, body, age }
    }

    fn batch(&mut self, size: usize) -> Batch {
        let mut batch = Batch::default();
        for _ in 0..size {
            let key = |at: u64| Bytes::from(format!("job:{:016x}", at.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
            batch.put(Space::Header, key(self.next), self.header.clone());
            match self.next % 3 {
                0 => batch.put(Space::Body, key(self.next), self.body.clone()),
                1 if self.next > self.age => {
                    let old = self.next - 1 - self.age / 3 * 3;
                    batch.delete(Space::Header, key(old));
                    batch.delete(Space::Body, key(old));
                }
                _ => {}
            }
            self.next += 1;
        }
        batch
    }
}

/// Ops per second, and the longest that one batch took.
struct Measured {
    ops: f64,
    worst: Duration,
    cpu_us: f64,
}

fn measure(
    limit: Duration,
    size: usize,
    age: u64,
    commit: &mut dyn FnMut(Batch) -> Result<(), Failure>,
) -> Result<Measured, Failure> {
    let mut ops = Ops::new(age);
    let (start, cpu) = (Instant::now(), cpu_time());
    let mut worst = Duration::ZERO;
    while start.elapsed() < limit {
        let batch = ops.batch(size);
        let began = Instant::now();
        commit(batch)?;
        worst = worst.max(began.elapsed());
    }
    let done = ops.next as f64;
    Ok(Measured {
        ops: done / start.elapsed().as_secs_f64(),
        worst,
        cpu_us: (cpu_time() - cpu).as_secs_f64() * 1e6 / done,
    })
}

/// User and system time of this process so far, in the kernel's ticks of 10 ms.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn raw(path: &Path) -> Result<impl FnMut(Batch) -> Result<(), Failure>, Failure> {
    // Files of the store's segment size, so that both ask the same of the file system.
    const FILE_BYTES: u64 = 32 << 20;
    let path = path.to_owned();
    let create = move |number: u64| -> Result<File, Failure> {
        let file = File::create(path.join(number.to_string()))?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, FILE_BYTES)?;
        file.sync_all()?;
        // Only the newest few are kept, as by a checkpoint.
        if let Some(old) = number.checked_sub(8) {
            std::fs::remove_file(path.join(old.to_string()))?;
        }
        Ok(file)
    };
    let mut number = 0;
    let mut written = 0;
    let mut file = create(number)?;
    Ok(move |batch: Batch| {
        let mut buffer = Vec::with_capacity(batch.bytes() + 4);
        for Record { key, value, .. } in batch.records() {
            buffer.extend_from_slice(key);
            buffer.extend_from_slice(value.unwrap_or_default());
        }
        let crc = crc32fast::hash(&buffer);
        buffer.extend_from_slice(&crc.to_le_bytes());
        if written + buffer.len() as u64 > FILE_BYTES {
            number += 1;
            written = 0;
            file = create(number)?;
        }
        written += buffer.len() as u64;
        file.write_all(&buffer)?;
        Ok(file.sync_data()?)
    })
}

fn fjall_alone(path: &Path) -> Result<impl FnMut(Batch) -> Result<(), Failure>, Failure> {
    use fjall::{Database, KeyspaceCreateOptions, KvSeparationOptions, PersistMode};
    let database = Database::builder(path).cache_size(64 << 20).open()?;
    let headers = database.keyspace("headers", KeyspaceCreateOptions::default)?;
    let apart = || KeyspaceCreateOptions::default().with_kv_separation(Some(KvSeparationOptions::default()));
    let bodies = database.keyspace("bodies", apart)?;
    Ok(move |batch: Batch| {
        let space = |space| if space == Space::Header { &headers } else { &bodies };
        let mut write = database.batch().durability(Some(PersistMode::SyncData));
        for Record { space: at, key, value } in batch.records() {
            match value {
                Some(value) => write.insert(space(at), key, value),
                None => write.remove(space(at), key),
            }
        }
        Ok(write.commit()?)
    })
}

const NAMES: [&str; 4] = ["limit", "disk store", "disk store, old jobs", "fjall alone"];
const ROUNDS: usize = 3;

fn run(name: &str, place: &str, limit: Duration, size: usize) -> Result<Measured, Failure> {
    // What an earlier run left to be written or freed must not be charged to this one.
    rustix::fs::sync();
    let folder = tempfile::tempdir_in(place)?;
    let age = if name.ends_with("old jobs") { 1_000_000 } else { 30_000 };
    match name {
        "limit" => measure(limit, size, age, &mut raw(folder.path())?),
        "fjall alone" => measure(limit, size, age, &mut fjall_alone(folder.path())?),
        _ => {
            let mut store = DiskStore::open(DiskOptions::new(folder.path()))?;
            measure(limit, size, age, &mut |batch| Ok(store.commit(batch)?))
        }
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let limit = Duration::from_secs(arguments.next().map_or(Ok(5), |text| text.parse())?);
    let place = arguments.next().unwrap_or_else(|| ".".to_owned());
    let only: Option<usize> = arguments.next().map(|text| text.parse()).transpose()?;
    println!("median of {ROUNDS} (lowest to highest); the order changes from round to round");
    println!("{:<22} {:>6} {:>9} {:>19} {:>10} {:>10}", "", "batch", "ops/s", "", "worst", "cpu us/op");
    for size in [1, 16, 256, 2048].into_iter().filter(|size| only.is_none_or(|only| only == *size)) {
        let mut results: Vec<Vec<Measured>> = NAMES.iter().map(|_| Vec::new()).collect();
        for round in 0..ROUNDS {
            for at in 0..NAMES.len() {
                let which = (at + round) % NAMES.len();
                if let (Some(name), Some(list)) = (NAMES.get(which), results.get_mut(which)) {
                    list.push(run(name, &place, limit, size)?);
                }
            }
        }
        for (name, mut list) in NAMES.iter().zip(results) {
            list.sort_by(|a, b| a.ops.total_cmp(&b.ops));
            let (Some(low), Some(middle), Some(high)) = (list.first(), list.get(ROUNDS / 2), list.last())
            else {
                continue;
            };
            let range = format!("({:.0} to {:.0})", low.ops, high.ops);
            let worst = list.iter().map(|one| one.worst).max().unwrap_or_default();
            let (ops, cpu) = (middle.ops, middle.cpu_us);
            println!("{name:<22} {size:>6} {ops:>9.0} {range:>19} {worst:>10.1?} {cpu:>10.1}");
        }
    }
    Ok(())
}
