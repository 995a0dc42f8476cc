//! Figures of tenants and their queues.

use haul_engine::{Histogram, Overview, QueueCounts, QueueOverview};

use super::page::{Distribution, Kind, Page};

/// The name that stands for the queues beyond `metrics-queues-max`. A queue of this very name is among them.
const OTHER: &str = "(other)";

/// A queue with its labels.
struct Labelled<'a> {
    tenant: &'a str,
    queue: String,
    figures: QueueOverview,
}

pub(super) fn write(page: &mut Page, seen: &[(String, Overview)]) {
    tenants(page, seen);
    let queues: Vec<Labelled<'_>> =
        seen.iter().flat_map(|(tenant, overview)| labelled(tenant, overview)).collect();
    depths(page, &queues);
    days(page, &queues);
}

/// The queues of a tenant by name; those that have no name of their own as one.
fn labelled<'a>(tenant: &'a str, overview: &Overview) -> Vec<Labelled<'a>> {
    let mut other = overview.other.clone();
    let mut list = Vec::new();
    for figures in &overview.queues {
        match std::str::from_utf8(figures.counts.name.bytes()) {
            Ok(name) if name != OTHER => {
                list.push(Labelled { tenant, queue: name.to_owned(), figures: figures.clone() });
            }
            _ => match &mut other {
                Some(sum) => sum.add(figures),
                None => other = Some(figures.clone()),
            },
        }
    }
    list.extend(other.map(|figures| Labelled { tenant, queue: OTHER.to_owned(), figures }));
    list
}

type Figure = fn(&Overview) -> usize;

fn tenants(page: &mut Page, seen: &[(String, Overview)]) {
    let figures: [(&'static str, &str, Figure); 5] = [
        ("haul_jobs", "Jobs kept, in any state.", |seen| seen.jobs),
        ("haul_jobs_completed", "Completed jobs that are kept.", |seen| seen.completed),
        ("haul_jobs_failed", "Jobs in failure groups.", |seen| seen.failed),
        ("haul_workers", "Workers known.", |seen| seen.workers),
        ("haul_workers_alive", "Workers seen in the last five minutes, or holding a lock.", |seen| {
            seen.workers_alive
        }),
    ];
    for (name, help, figure) in figures {
        let mut metric = page.metric(name, Kind::Gauge, help);
        for (tenant, overview) in seen {
            metric.sample(&[("tenant", tenant)], figure(overview) as f64);
        }
    }
}

type State = (&'static str, fn(&QueueCounts) -> usize);

const STATES: [State; 6] = [
    ("waiting", |counts| counts.waiting),
    ("running", |counts| counts.running),
    ("stalled", |counts| counts.stalled),
    ("scheduled", |counts| counts.scheduled),
    ("depends", |counts| counts.depends),
    ("throttled", |counts| counts.throttled),
];

fn depths(page: &mut Page, queues: &[Labelled<'_>]) {
    let mut metric = page.metric("haul_queue_jobs", Kind::Gauge, "Jobs of a queue by state.");
    for Labelled { tenant, queue, figures } in queues {
        for (state, count) in STATES {
            let labels = [("tenant", *tenant), ("queue", queue), ("state", state)];
            metric.sample(&labels, count(&figures.counts) as f64);
        }
    }
    let help = "How long the job has waited that has waited longest; 0 if none waits.";
    each(page, queues, ("haul_queue_oldest_seconds", help), |figures| figures.oldest.unwrap_or(0.0));
    let help = "Whether the queue is paused.";
    each(page, queues, ("haul_queue_paused", help), |figures| f64::from(u8::from(figures.counts.paused)));
    let help = "Recurring definitions of a queue.";
    each(page, queues, ("haul_queue_recurring", help), |figures| figures.counts.recurring as f64);
}

fn each(
    page: &mut Page,
    queues: &[Labelled<'_>],
    (name, help): (&'static str, &str),
    figure: fn(&QueueOverview) -> f64,
) {
    let kind = if name.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
    let mut metric = page.metric(name, kind, help);
    for Labelled { tenant, queue, figures } in queues {
        metric.sample(&[("tenant", tenant), ("queue", queue)], figure(figures));
    }
}

/// What is counted from midnight on.
fn days(page: &mut Page, queues: &[Labelled<'_>]) {
    type Of = fn(&QueueOverview) -> &Histogram;
    let histograms: [(&'static str, &str, Of); 2] = [
        ("haul_queue_wait_seconds", "From being put to being popped; since midnight UTC.", |figures| {
            &figures.wait
        }),
        ("haul_queue_run_seconds", "From being popped to being completed; since midnight UTC.", |figures| {
            &figures.run
        }),
    ];
    for (name, help, of) in histograms {
        let mut metric = page.metric(name, Kind::Histogram, help);
        for Labelled { tenant, queue, figures } in queues {
            metric.distribution(&[("tenant", tenant), ("queue", queue)], &distribution(of(figures)));
        }
    }
    let help = "Jobs failed; since midnight UTC.";
    each(page, queues, ("haul_queue_failures_total", help), |figures| figures.failures as f64);
    let help = "Locks that ran out; since midnight UTC.";
    each(page, queues, ("haul_queue_stalls_total", help), |figures| figures.retries as f64);
}

fn distribution(histogram: &Histogram) -> Distribution {
    let bounds = Histogram::BOUNDS.iter().map(|bound| *bound as f64);
    Distribution { up_to: bounds.zip(histogram.below).collect(), count: histogram.count, sum: histogram.sum }
}
