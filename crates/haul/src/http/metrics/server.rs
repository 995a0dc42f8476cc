//! Figures of the server itself.

use std::sync::atomic::{AtomicU64, Ordering};

use super::page::{Distribution, Kind, Page};
use crate::cluster::Held;
use crate::resp::{Server, Usage};
use crate::shard::BucketsNow;

pub(super) fn write(page: &mut Page, server: &Server, tenants: usize) {
    process(page, server);
    connections(page, server);
    shard(page, server);
    store(page, server);
    let spans = server.tracer.figures();
    let help = "Trace spans handed to the collector.";
    page.single("haul_spans_exported_total", Kind::Counter, help, load(&spans.exported));
    let help = "Trace spans dropped.";
    page.single("haul_spans_dropped_total", Kind::Counter, help, load(&spans.dropped));
    page.single("haul_tenants", Kind::Gauge, "Tenants that hold anything.", tenants as f64);
}

fn load(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

fn process(page: &mut Page, server: &Server) {
    page.metric("haul_build_info", Kind::Gauge, "The version that runs; always 1.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let usage = Usage::read();
    let (resident, cpu) = (usage.resident_bytes as f64, usage.user_seconds + usage.system_seconds);
    let help = "When the server was started, in seconds since 1970.";
    page.single("process_start_time_seconds", Kind::Gauge, help, server.started_at);
    page.single("process_resident_memory_bytes", Kind::Gauge, "Memory in use.", resident);
    page.single("process_cpu_seconds_total", Kind::Counter, "Processor time used.", cpu);
    let ready = super::super::health::obstacle(server).is_none();
    page.single(
        "haul_ready",
        Kind::Gauge,
        "Whether commands that write are served.",
        f64::from(u8::from(ready)),
    );
}

fn connections(page: &mut Page, server: &Server) {
    let gauges = [
        (
            "haul_connections",
            "Connections of the Redis protocol.",
            server.connections.load(Ordering::Relaxed),
        ),
        ("haul_subscribers", "Connections subscribed to channels.", server.hub.subscribers()),
        ("haul_event_streams", "Event streams over HTTP.", server.bus.streams()),
        ("haul_job_waits", "Requests that wait for a job.", server.bus.watches()),
        (
            "haul_blocked_pops",
            "Pops that wait for a job to be there.",
            server.shard.counters().waiting.load(Ordering::Relaxed),
        ),
    ];
    for (name, help, value) in gauges {
        page.single(name, Kind::Gauge, help, value as f64);
    }
    let counters = [
        ("haul_connections_total", "Connections accepted.", &server.connections_seen),
        (
            "haul_connections_refused_total",
            "Connections beyond connections-max.",
            &server.connections_refused,
        ),
        (
            "haul_redis_commands_total",
            "Commands of the Redis protocol, queue commands or not.",
            &server.commands,
        ),
    ];
    for (name, help, counter) in counters {
        page.single(name, Kind::Counter, help, load(counter));
    }
    let mut metric =
        page.metric("haul_http_requests_total", Kind::Counter, "HTTP requests by class of status.");
    for (class, count) in server.http_requests.counted() {
        metric.sample(&[("status", class)], count as f64);
    }
}

fn shard(page: &mut Page, server: &Server) {
    let counters = server.shard.counters();
    let help = "Queue commands by what they were and how they ended: ok, or the refusal's code.";
    let mut metric = page.metric("haul_commands_total", Kind::Counter, help);
    for (command, outcome, count) in counters.tally.counted() {
        metric.sample(&[("command", command), ("outcome", outcome)], count as f64);
    }
    let help = "Commands that went into one round.";
    page.metric("haul_round_commands", Kind::Histogram, help)
        .distribution(&[], &distribution(&counters.round_sizes.now(), 1.0));
    let help = "Time to make a round durable.";
    page.metric("haul_commit_seconds", Kind::Histogram, help)
        .distribution(&[], &distribution(&counters.commit_times.now(), 1e6));
}

fn store(page: &mut Page, server: &Server) {
    let counters = server.shard.counters();
    let totals = [
        ("haul_records_written_total", "Records written to the store.", &counters.records),
        ("haul_bytes_written_total", "Bytes of records written to the store.", &counters.bytes),
        ("haul_fsyncs_total", "Times the disk was made to keep what was written.", &counters.fsyncs),
        ("haul_store_faults_total", "Rounds that could not be made durable.", &counters.faults),
    ];
    for (name, help, counter) in totals {
        page.single(name, Kind::Counter, help, load(counter));
    }
    page.single("haul_store_bytes", Kind::Gauge, "What the data takes on disk.", load(&counters.disk_bytes));
    page.single("haul_log_bytes", Kind::Gauge, "How much of it is the round log.", load(&counters.log_bytes));
    shared(page, server);
    let full = f64::from(u8::from(counters.full.load(Ordering::Relaxed)));
    page.single("haul_read_only", Kind::Gauge, "Whether the disk is full: writes are refused.", full);
    // All 0 where serverless is off.
    let daemon = server.serverless.get();
    let (backlog, syncs) =
        daemon.map_or((0, 0), |daemon| (daemon.journal.backlog_bytes(), daemon.journal.syncs()));
    let help = "Bytes of accepted jobs that are in the journal and not in the store yet.";
    page.single("haul_journal_backlog_bytes", Kind::Gauge, help, backlog as f64);
    let help = "Times the disk was made to keep what was written to the journal.";
    page.single("haul_journal_syncs_total", Kind::Counter, help, syncs as f64);
    let running = f64::from(u8::from(daemon.is_some_and(|daemon| daemon.is_running())));
    page.single("haul_handlers_running", Kind::Gauge, "Whether handlers are run.", running);
}

/// What is asked of a shared store; all 0 where the data is in a folder.
fn shared(page: &mut Page, server: &Server) {
    let keeper = server.shard.keeper();
    let asked = keeper.map(|keeper| keeper.place().requests().now()).unwrap_or_default();
    let help = "Requests to the shared store, each attempt counted.";
    let mut metric = page.metric("haul_store_requests_total", Kind::Counter, help);
    for (kind, count) in
        [("put", asked.puts), ("get", asked.gets), ("list", asked.lists), ("delete", asked.deletes)]
    {
        metric.sample(&[("kind", kind)], count as f64);
    }
    let help = "What requests to the shared store took together; reads until they began to answer.";
    let mut metric = page.metric("haul_store_request_seconds_total", Kind::Counter, help);
    metric.sample(&[("kind", "put")], asked.put_seconds);
    metric.sample(&[("kind", "get")], asked.get_seconds);
    let help = "Requests to the shared store that failed.";
    page.single("haul_store_request_errors_total", Kind::Counter, help, asked.errors as f64);
    let help = "Bytes sent to the shared store.";
    page.single("haul_store_sent_bytes_total", Kind::Counter, help, asked.bytes_sent as f64);
    let help = "Bytes asked for from the shared store.";
    page.single("haul_store_received_bytes_total", Kind::Counter, help, asked.bytes_received as f64);
    let nodes = keeper.map_or_else(Vec::new, crate::cluster::Keeper::nodes);
    let own = nodes.iter().find(|(node, _)| keeper.is_some_and(|keeper| keeper.me() == node.id));
    page.single("haul_nodes", Kind::Gauge, "Nodes that share the store.", nodes.len() as f64);
    let shards = own.map_or(0, |(node, _)| node.shards.len());
    page.single("haul_shards_owned", Kind::Gauge, "Shards of the store that this node owns.", shards as f64);
    let held = own.map_or_else(Vec::new, |(node, _)| node.shards.clone());
    let lag: usize = held.iter().map(|held| held.in_flight).sum();
    page.single("haul_rounds_in_flight", Kind::Gauge, "Rounds that are not durable yet.", lag as f64);
    type Figure = (&'static str, &'static str, fn(&Held) -> f64);
    let figures: [Figure; 4] = [
        ("haul_shard_jobs", "Jobs of a shard that this node owns.", |held| held.jobs as f64),
        ("haul_shard_epoch", "How often the shard was opened.", |held| held.epoch as f64),
        ("haul_shard_rounds_in_flight", "Its rounds that are not durable yet.", |held| held.in_flight as f64),
        ("haul_shard_commit_seconds", "What its last commit took.", |held| held.commit_ms / 1000.0),
    ];
    for (name, help, figure) in figures {
        let mut metric = page.metric(name, Kind::Gauge, help);
        held.iter().for_each(|held| metric.sample(&[("shard", &held.shard.to_string())], figure(held)));
    }
}

fn distribution(now: &BucketsNow, scale: f64) -> Distribution {
    let up_to = now.up_to.iter().map(|(bound, count)| (*bound as f64 / scale, *count)).collect();
    Distribution { up_to, count: now.count, sum: now.sum as f64 / scale }
}
