//! How long a start takes: writes many headers of 200 bytes (or finds them there), opens the store again
//! and loads them all. Run: `cargo run --release -p haul-store --example load -- <folder> [headers]`.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark measures time and prints it"
)]

use std::time::Instant;

use haul_store::{Batch, DiskOptions, DiskStore, Space, Store};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("which folder?")?;
    let count: u64 = arguments.next().map_or(Ok(10_000_000), |text| text.parse())?;
    let start = Instant::now();
    let mut store = DiskStore::open(DiskOptions::new(&folder))?;
    let mut found = 0;
    store.load(&mut |_, _| {
        found += 1;
        Ok(())
    })?;
    println!("first start: {found} headers in {:.1?}, {}", start.elapsed(), memory());
    let start = Instant::now();
    for at in (found..count).step_by(2000) {
        let mut batch = Batch::default();
        for job in at..(at + 2000).min(count) {
            let id = job.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let value: Vec<u8> = (0..25_u64).flat_map(|word| (id ^ (word * id)).to_le_bytes()).collect();
            batch.put(Space::Header, format!("job:{id:032x}"), value);
        }
        store.commit(batch)?;
    }
    println!("written in {:.1?}, {}", start.elapsed(), memory());
    let start = Instant::now();
    Box::new(store).close()?;
    println!("closed in {:.1?}", start.elapsed());
    let start = Instant::now();
    let mut store = DiskStore::open(DiskOptions::new(&folder))?;
    println!("opened in {:.1?}", start.elapsed());
    let (mut found, mut bytes) = (0_u64, 0_usize);
    store.load(&mut |key, value| {
        found += 1;
        bytes += key.len() + value.len();
        Ok(())
    })?;
    println!("second start: {found} headers, {bytes} bytes in {:.1?}, {}", start.elapsed(), memory());
    println!("{:?}", store.stats());
    Ok(())
}

/// What the system says about this process.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
}
