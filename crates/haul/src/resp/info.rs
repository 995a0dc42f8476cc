//! The text of INFO: what is true of this server, in the fields that Redis clients look for.

use std::sync::atomic::Ordering;

use super::server::Server;
use crate::auth::Access;
use crate::clock;

/// The version of Redis that clients are told. Old enough that no client expects more than is here.
pub(crate) const REDIS_VERSION: &str = "6.2.6";

/// What of it is not the sum of what all tenants do: all that a tenant's own token is told.
const NEUTRAL: &[&str] = &[
    "redis_version",
    "haul_version",
    "redis_mode",
    "uptime_in_seconds",
    "haul_durability",
    "haul_disk_full",
    "role",
];

pub(crate) fn text(server: &Server, access: &Access) -> String {
    let counters = server.shard.counters();
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let usage = Usage::read();
    let commits = load(&counters.commits);
    let commit_micros = load(&counters.commit_micros).checked_div(commits).unwrap_or(0);
    let is_shown = |key: &str| access.is_server_wide() || NEUTRAL.contains(&key);
    let lines: Vec<(&str, String)> = vec![
        ("# Server", String::new()),
        ("redis_version", REDIS_VERSION.to_owned()),
        ("haul_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", server.port.to_string()),
        ("uptime_in_seconds", format!("{:.0}", clock::now() - server.started_at)),
        ("# Clients", String::new()),
        ("connected_clients", server.connections.load(Ordering::Relaxed).to_string()),
        ("maxclients", server.limits.connections_max.to_string()),
        ("blocked_clients", counters.waiting.load(Ordering::Relaxed).to_string()),
        ("# Memory", String::new()),
        ("used_memory", usage.resident_bytes.to_string()),
        ("used_memory_rss", usage.resident_bytes.to_string()),
        ("used_memory_peak", usage.peak_bytes.to_string()),
        ("used_memory_human", format!("{:.2}M", usage.resident_bytes as f64 / 1_048_576.0)),
        ("# Persistence", String::new()),
        ("haul_data", server.data_path.clone()),
        ("haul_durability", server.durability.clone()),
        ("haul_commits", commits.to_string()),
        ("haul_commit_micros_mean", commit_micros.to_string()),
        ("haul_fsyncs", load(&counters.fsyncs).to_string()),
        ("haul_records_written", load(&counters.records).to_string()),
        ("haul_bytes_written", load(&counters.bytes).to_string()),
        ("haul_log_bytes", load(&counters.log_bytes).to_string()),
        ("haul_disk_bytes", load(&counters.disk_bytes).to_string()),
        ("haul_disk_full", u8::from(counters.full.load(Ordering::Relaxed)).to_string()),
        ("haul_store_faults", load(&counters.faults).to_string()),
        ("# Stats", String::new()),
        ("total_connections_received", load(&server.connections_seen).to_string()),
        ("rejected_connections", load(&server.connections_refused).to_string()),
        ("total_commands_processed", load(&server.commands).to_string()),
        ("haul_rounds", load(&counters.rounds).to_string()),
        ("haul_engine_calls", load(&counters.calls).to_string()),
        ("haul_jobs", counters.jobs.load(Ordering::Relaxed).to_string()),
        ("# Replication", String::new()),
        ("role", "master".to_owned()),
        ("# CPU", String::new()),
        ("used_cpu_sys", format!("{:.6}", usage.system_seconds)),
        ("used_cpu_user", format!("{:.6}", usage.user_seconds)),
    ];
    let mut text = String::new();
    for (key, value) in lines {
        if key.starts_with('#') {
            text.push_str(&format!("{}{key}\r\n", if text.is_empty() { "" } else { "\r\n" }));
        } else if is_shown(key) {
            text.push_str(&format!("{key}:{value}\r\n"));
        }
    }
    text
}

/// What the process uses, from `/proc`; zeros where there is none.
#[derive(Default)]
pub(crate) struct Usage {
    pub(crate) resident_bytes: u64,
    pub(crate) peak_bytes: u64,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
}

impl Usage {
    pub(crate) fn read() -> Usage {
        let mut usage = Usage::default();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for line in status.lines() {
            let kilobytes =
                || line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            if line.starts_with("VmRSS:") {
                usage.resident_bytes = kilobytes() * 1024;
            } else if line.starts_with("VmHWM:") {
                usage.peak_bytes = kilobytes() * 1024;
            }
        }
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // Fields 14 and 15, counted behind the command's name, which may hold spaces; in clock ticks of 10 ms.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
        (usage.user_seconds, usage.system_seconds) = (ticks(11), ticks(12));
        usage
    }
}
