//! The result: a table for people, JSON for scripts.

use std::fmt;

use serde::Serialize;

use super::driver::Kind;
use super::histogram::Histogram;
use super::load::Worked;
use super::server::Spent;
use super::{Bench, Workload};

/// What was asked for.
#[derive(Debug, Serialize)]
pub(super) struct Setting {
    /// The server's; for a measurement without one, where its file is.
    address: String,
    driver: Kind,
    workload: Workload,
    connections: u64,
    pipeline: u64,
    batch: Option<u64>,
    payload_bytes: usize,
    queues: u64,
    tenants: usize,
    backlog: u64,
    /// Puts a second of the workload delivery.
    rate: Option<f64>,
}

impl Setting {
    pub(super) fn of(bench: &Bench) -> Setting {
        Setting {
            address: match bench.driver {
                Kind::Append | Kind::SyncedPing => bench.folder.display().to_string(),
                _ => bench.address.clone(),
            },
            driver: bench.driver,
            workload: bench.workload,
            connections: bench.connections,
            pipeline: bench.pipeline,
            batch: bench.driver.is_bulk().then_some(bench.batch),
            payload_bytes: bench.payload,
            queues: bench.queues,
            tenants: bench.tenants.len().max(1),
            backlog: bench.backlog,
            rate: (bench.workload == Workload::Delivery).then_some(bench.rate),
        }
    }
}

/// Latency of one kind of command, in milliseconds from sending its batch.
#[derive(Debug, Serialize)]
struct Latency {
    command: &'static str,
    count: u64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

impl Latency {
    fn of(command: &'static str, histogram: &Histogram) -> Latency {
        Latency {
            command,
            count: histogram.count(),
            p50_ms: histogram.percentile_ms(0.5),
            p90_ms: histogram.percentile_ms(0.9),
            p99_ms: histogram.percentile_ms(0.99),
            p999_ms: histogram.percentile_ms(0.999),
            max_ms: histogram.max_ms(),
        }
    }
}

/// One stretch of the same work.
#[derive(Debug, Serialize)]
pub(super) struct Phase {
    name: &'static str,
    seconds: f64,
    jobs: u64,
    jobs_per_second: f64,
    commands_per_second: f64,
    /// Microseconds of the server's CPU for each job.
    server_cpu_micros_per_job: f64,
    fsyncs_per_job: Option<f64>,
    bytes_written_per_job: Option<f64>,
    /// Share of one core that the load generator used.
    generator_cpu_share: f64,
    latency: Vec<Latency>,
}

impl Phase {
    pub(super) fn new(name: &'static str, worked: Worked, spent: Spent) -> Phase {
        let all = [
            ("ping", &worked.ping),
            ("put", &worked.put),
            ("pop", &worked.pop),
            ("heartbeat", &worked.heartbeat),
            ("complete", &worked.complete),
            ("delivery", &worked.delivery),
        ];
        let used = all.iter().filter(|(_, histogram)| histogram.count() > 0);
        let latency: Vec<Latency> =
            used.map(|(command, histogram)| Latency::of(command, histogram)).collect();
        let commands = latency.iter().filter(|latency| latency.command != "delivery");
        let commands: u64 = commands.map(|latency| latency.count).sum();
        let jobs = worked.jobs.max(1) as f64;
        Phase {
            name,
            seconds: worked.seconds,
            jobs: worked.jobs,
            jobs_per_second: worked.jobs as f64 / worked.seconds,
            commands_per_second: commands as f64 / worked.seconds,
            server_cpu_micros_per_job: spent.cpu_seconds * 1e6 / jobs,
            fsyncs_per_job: spent.fsyncs.map(|fsyncs| fsyncs / jobs),
            bytes_written_per_job: spent.bytes.map(|bytes| bytes / jobs),
            generator_cpu_share: spent.own_cpu_seconds / worked.seconds,
            latency,
        }
    }
}

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) setting: Setting,
    pub(super) phases: Vec<Phase>,
}

impl Report {
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|error| format!(r#"{{"error":"{error}"}}"#))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setting = &self.setting;
        let batch = setting.batch.map_or(String::new(), |batch| format!(", {batch} jobs per command"));
        writeln!(
            f,
            "{:?} at {}: {} connections, pipelines of {}{batch}, {} bytes of data, {} queues, backlog {}",
            setting.driver,
            setting.address,
            setting.connections,
            setting.pipeline,
            setting.payload_bytes,
            setting.queues,
            setting.backlog
        )?;
        for phase in &self.phases {
            write!(f, "{phase}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.name == "ping" { "commands" } else { "jobs" };
        writeln!(
            f,
            "\n{}: {:.0} {unit}/s ({:.0} commands/s; {} in {:.2} s)",
            self.name, self.jobs_per_second, self.commands_per_second, self.jobs, self.seconds
        )?;
        write!(f, "  server: {:.2} us of CPU", self.server_cpu_micros_per_job)?;
        if let Some(fsyncs) = self.fsyncs_per_job {
            write!(f, ", {fsyncs:.4} fsyncs")?;
        }
        if let Some(bytes) = self.bytes_written_per_job {
            write!(f, ", {bytes:.0} bytes written")?;
        }
        writeln!(f, " per job; generator: {:.0} % of a core", self.generator_cpu_share * 100.0)?;
        writeln!(f, "  latency, ms {:>9} {:>9} {:>9} {:>9} {:>9}", "p50", "p90", "p99", "p99.9", "max")?;
        for latency in &self.latency {
            writeln!(
                f,
                "  {:<11} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>9.3}",
                latency.command,
                latency.p50_ms,
                latency.p90_ms,
                latency.p99_ms,
                latency.p999_ms,
                latency.max_ms
            )?;
        }
        Ok(())
    }
}
