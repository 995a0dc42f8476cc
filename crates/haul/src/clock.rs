//! The only reader of time and entropy.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use haul_engine::Name;

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// A moment to measure from.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Processor time that this thread has used.
pub(crate) fn thread_time() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(spent).unwrap_or_default()
}

/// Sixteen random bytes but for a few bits: an id.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads entropy")]
pub(crate) fn random_id() -> [u8; 16] {
    uuid::Uuid::new_v4().into_bytes()
}

/// A new jid: 32 hexadecimal digits that sort by time.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads entropy")]
pub(crate) fn new_jid() -> Name {
    let mut digits = [0; 32];
    Name::new(uuid::Uuid::now_v7().simple().encode_lower(&mut digits).as_bytes())
}

/// Random bytes for a secret.
pub(crate) fn entropy() -> anyhow::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("the system gives no random bytes: {error}"))?;
    Ok(bytes)
}
