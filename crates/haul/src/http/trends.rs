//! How the figures went over the last hour and day: samples of what the engine counts, kept in memory in rings, and in a
//! file so that a restart does not forget them. They are for looking at: a file that cannot be read is begun anew.
//!
//! `take` is given what was seen and when, and decides nothing else; `watch` is the thin loop that looks.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

use haul_engine::{Call, Command, List, Listing, Name, Overview, QueueOverview, Reply, Rules};

use crate::clock;
use crate::resp::Server;

/// Seconds from one sample of the last hour to the next.
pub(crate) const HOUR_STEP: u32 = 10;
/// Seconds from one sample of the last day to the next.
pub(crate) const DAY_STEP: u32 = 300;
/// Seconds from one size of a failure group to the next.
pub(crate) const GROUP_STEP: u32 = 60;
const HOUR_SAMPLES: usize = 3600 / HOUR_STEP as usize;
const DAY_SAMPLES: usize = 86_400 / DAY_STEP as usize;
const GROUP_SAMPLES: usize = 3600 / GROUP_STEP as usize;
/// The file in the data folder, and the version of what is in it.
const FILE: &str = "trends";
const VERSION: u8 = 1;
/// Looks from one writing of the file to the next: five minutes.
const SAVE_LOOKS: u32 = 30;
/// Steps from one sample to the next that are not taken for a gap.
const LATE_STEPS: u32 = 3;
/// Tenants whose figures are kept.
const TENANTS_MAX: usize = 50;
/// Queues of all tenants together whose figures are kept, each about 20 KiB.
const LINES_MAX: usize = 300;
/// Failure groups of a tenant whose sizes are kept.
const GROUPS_MAX: usize = 100;

/// What was in a queue at the end of a span, and what happened in it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Seconds since 1970.
    pub(crate) at: u32,
    pub(crate) waiting: u32,
    pub(crate) running: u32,
    pub(crate) popped: u32,
    pub(crate) completed: u32,
    pub(crate) failures: u32,
    /// What those that were popped had waited, together.
    pub(crate) wait_seconds: f32,
    /// What those that were completed had run, together.
    pub(crate) run_seconds: f32,
}

impl Sample {
    /// Goes on with a later span.
    fn add(&mut self, later: &Sample) {
        self.popped += later.popped;
        self.completed += later.completed;
        self.failures += later.failures;
        self.wait_seconds += later.wait_seconds;
        self.run_seconds += later.run_seconds;
        (self.at, self.waiting, self.running) = (later.at, later.waiting, later.running);
    }
}

/// What a queue has counted since midnight.
#[derive(Clone, Copy, Default, Deserialize, Serialize)]
struct Counted {
    popped: u64,
    completed: u64,
    failures: u64,
    wait_seconds: f64,
    run_seconds: f64,
}

impl Counted {
    fn of(queue: &QueueOverview) -> Self {
        Counted {
            popped: queue.wait.count,
            completed: queue.run.count,
            failures: u64::try_from(queue.failures).unwrap_or(0),
            wait_seconds: queue.wait.sum,
            run_seconds: queue.run.sum,
        }
    }

    /// What was counted since then; at midnight counting begins anew.
    fn since(&self, before: &Counted) -> Sample {
        let whole = |now: u64, before: u64| u32::try_from(now.checked_sub(before).unwrap_or(now));
        let part = |now: f64, before: f64| if now < before { now as f32 } else { (now - before) as f32 };
        Sample {
            popped: whole(self.popped, before.popped).unwrap_or(u32::MAX),
            completed: whole(self.completed, before.completed).unwrap_or(u32::MAX),
            failures: whole(self.failures, before.failures).unwrap_or(u32::MAX),
            wait_seconds: part(self.wait_seconds, before.wait_seconds),
            run_seconds: part(self.run_seconds, before.run_seconds),
            ..Sample::default()
        }
    }
}

/// One queue's samples, or those of all together.
#[derive(Default, Deserialize, Serialize)]
struct Line {
    counted: Option<Counted>,
    hour: VecDeque<Sample>,
    day: VecDeque<Sample>,
    /// The sample of the day that is not over yet.
    open: Option<Sample>,
    /// When a job was seen to have been taken last.
    taken_at: Option<f64>,
}

impl Line {
    fn take(&mut self, queue: &QueueOverview, now: f64) -> Sample {
        let counted = Counted::of(queue);
        let before = self.counted.replace(counted);
        let mut sample = before.map(|before| counted.since(&before)).unwrap_or_default();
        let gauge = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        sample.at = now as u32;
        sample.waiting = gauge(queue.counts.waiting + queue.counts.stalled);
        sample.running = gauge(queue.counts.running);
        if sample.popped > 0 {
            self.taken_at = Some(now);
        }
        self.push(sample);
        sample
    }

    fn push(&mut self, sample: Sample) {
        if let Some(last) = self.hour.back().copied() {
            let steps = sample.at.saturating_sub(last.at) / HOUR_STEP;
            // A look or two may be late without anything being wrong.
            let missing = if steps > LATE_STEPS { steps - 1 } else { 0 };
            fill(&mut self.hour, &last, missing, HOUR_STEP, HOUR_SAMPLES);
        }
        keep(&mut self.hour, sample, HOUR_SAMPLES);
        let is_over = self.open.as_ref().is_some_and(|open| open.at / DAY_STEP != sample.at / DAY_STEP);
        if is_over && let Some(open) = self.open.take() {
            keep(&mut self.day, open, DAY_SAMPLES);
            let missing = (sample.at / DAY_STEP).saturating_sub(open.at / DAY_STEP).saturating_sub(1);
            fill(&mut self.day, &open, missing, DAY_STEP, DAY_SAMPLES);
        }
        match &mut self.open {
            Some(open) => open.add(&sample),
            None => self.open = Some(sample),
        }
    }

    fn samples(&self, span: Span) -> Vec<Sample> {
        match span {
            Span::Hour => self.hour.iter().copied().collect(),
            Span::Day => self.day.iter().chain(&self.open).copied().collect(),
        }
    }
}

fn keep<T>(ring: &mut VecDeque<T>, item: T, max: usize) {
    if ring.len() >= max {
        ring.pop_front();
    }
    ring.push_back(item);
}

/// The time in which nobody looked: nothing happened that is known of, and what waited went on waiting.
fn fill(ring: &mut VecDeque<Sample>, last: &Sample, missing: u32, step: u32, max: usize) {
    for number in 1..=missing.min(u32::try_from(max).unwrap_or(u32::MAX)) {
        let at = last.at + number * step;
        keep(ring, Sample { at, waiting: last.waiting, ..Sample::default() }, max);
    }
}

/// Over which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    Hour,
    Day,
}

/// A failure group's size, a minute apart.
#[derive(Default, Deserialize, Serialize)]
struct Sizes {
    ring: VecDeque<u32>,
}

#[derive(Default, Deserialize, Serialize)]
struct Tenant {
    all: Line,
    queues: HashMap<Name, Line>,
    groups: HashMap<Name, Sizes>,
    grouped_at: f64,
}

/// The samples of all tenants.
#[derive(Default)]
pub(crate) struct Trends {
    tenants: Mutex<HashMap<Name, Tenant>>,
}

impl Trends {
    fn tenants(&self) -> MutexGuard<'_, HashMap<Name, Tenant>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an earlier server of this data has kept.
    pub(crate) fn open(data: &Path) -> Self {
        let text = std::fs::read(data.join(FILE)).unwrap_or_default();
        let kept = text.strip_prefix(&[VERSION]).and_then(|bytes| postcard::from_bytes(bytes).ok());
        Trends { tenants: Mutex::new(kept.unwrap_or_default()) }
    }

    /// Keeps them for the next server.
    pub(crate) fn save(&self, data: &Path) -> std::io::Result<()> {
        let text = postcard::to_extend(&*self.tenants(), vec![VERSION]).map_err(std::io::Error::other)?;
        let new = data.join(format!("{FILE}.new"));
        std::fs::write(&new, text)?;
        std::fs::rename(new, data.join(FILE))
    }

    /// Keeps what was seen of a tenant.
    pub(crate) fn take(&self, tenant: &Name, seen: &Overview, groups: &[(Name, usize)], now: f64) {
        let mut tenants = self.tenants();
        if tenants.len() >= TENANTS_MAX && !tenants.contains_key(tenant) {
            return;
        }
        let mut lines: usize = tenants.values().map(|tenant| tenant.queues.len()).sum();
        let kept = tenants.entry(tenant.clone()).or_default();
        let mut sum = Sample { at: now as u32, ..Sample::default() };
        let (mut waiting, mut running) = (0u32, 0u32);
        kept.queues.retain(|name, _| seen.queues.iter().any(|queue| queue.counts.name == *name));
        for queue in &seen.queues {
            let is_known = kept.queues.contains_key(&queue.counts.name);
            if !is_known && lines >= LINES_MAX {
                continue;
            }
            lines += usize::from(!is_known);
            let sample = kept.queues.entry(queue.counts.name.clone()).or_default().take(queue, now);
            sum.add(&sample);
            waiting = waiting.saturating_add(sample.waiting);
            running = running.saturating_add(sample.running);
        }
        (sum.waiting, sum.running) = (waiting, running);
        kept.all.push(sum);
        let since = now - kept.grouped_at;
        if since >= f64::from(GROUP_STEP) - 1.0 {
            let steps =
                if kept.grouped_at > 0.0 { (since / f64::from(GROUP_STEP)).round() as usize } else { 1 };
            kept.grouped_at = now;
            kept.take_groups(groups, steps);
        }
    }

    /// The samples of a queue, or of all together.
    pub(crate) fn samples(&self, tenant: &Name, queue: Option<&Name>, span: Span) -> Vec<Sample> {
        let tenants = self.tenants();
        let Some(tenant) = tenants.get(tenant) else { return Vec::new() };
        let line = match queue {
            Some(queue) => tenant.queues.get(queue),
            None => Some(&tenant.all),
        };
        line.map(|line| line.samples(span)).unwrap_or_default()
    }

    /// When a job was last seen to have been taken from a queue.
    pub(crate) fn taken_at(&self, tenant: &Name, queue: &Name) -> Option<f64> {
        self.tenants().get(tenant)?.queues.get(queue)?.taken_at
    }

    /// The sizes of a failure group, a minute apart, the newest last.
    pub(crate) fn sizes(&self, tenant: &Name, group: &Name) -> Vec<u32> {
        let tenants = self.tenants();
        let sizes = tenants.get(tenant).and_then(|tenant| tenant.groups.get(group));
        sizes.map(|sizes| sizes.ring.iter().copied().collect()).unwrap_or_default()
    }
}

impl Tenant {
    /// `steps`: how many there were since the last time.
    fn take_groups(&mut self, groups: &[(Name, usize)], steps: usize) {
        self.groups.retain(|name, _| groups.iter().any(|(group, _)| group == name));
        for (name, size) in groups {
            if self.groups.len() < GROUPS_MAX || self.groups.contains_key(name) {
                let sizes = self.groups.entry(name.clone()).or_default();
                let last = sizes.ring.back().copied();
                for size in last.into_iter().cycle().take(steps.saturating_sub(1).min(GROUP_SAMPLES)) {
                    keep(&mut sizes.ring, size, GROUP_SAMPLES);
                }
                keep(&mut sizes.ring, u32::try_from(*size).unwrap_or(u32::MAX), GROUP_SAMPLES);
            }
        }
    }
}

/// Looks at every tenant, again and again, until the server stops.
pub(crate) async fn watch(server: Arc<Server>) {
    let mut stopping = server.stopping();
    let mut looks: u32 = 0;
    while !server.is_stopping() {
        let began = clock::now();
        if let Some(Reply::Names(tenants)) = look(&server, &Name::new(b""), Command::Tenants).await {
            for tenant in tenants.iter().take(TENANTS_MAX) {
                sample(&server, tenant).await;
            }
        }
        looks += 1;
        if looks.is_multiple_of(SAVE_LOOKS) {
            keep_file(&server).await;
        }
        let rest = f64::from(HOUR_STEP) - (clock::now() - began).clamp(0.0, f64::from(HOUR_STEP) - 1.0);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs_f64(rest)) => {}
            _ = stopping.changed() => {}
        }
    }
}

/// Writes the file anew; what cannot be written is only not remembered.
pub(crate) async fn keep_file(server: &Arc<Server>) {
    let of = server.clone();
    let saved = tokio::task::spawn_blocking(move || of.trends.save(Path::new(&of.data_path))).await;
    if let Ok(Err(error)) = saved {
        tracing::warn!(%error, "the trends of the page could not be written to the data folder");
    }
}

async fn sample(server: &Server, tenant: &Name) {
    let overview = look(server, tenant, Command::Overview { queues_max: LINES_MAX }).await;
    let list = List { what: Listing::Groups, after: None, skip: 0, count: GROUPS_MAX };
    let groups = look(server, tenant, Command::List(Box::new(list))).await;
    if let (Some(Reply::Overview(seen)), Some(Reply::Listed { rows, .. })) = (overview, groups)
        && let Reply::Groups(groups) = *rows
    {
        server.trends.take(tenant, &seen, &groups, clock::now());
    }
}

async fn look(server: &Server, tenant: &Name, command: Command) -> Option<Reply> {
    let clock = clock::now();
    let call = Call { tenant: tenant.clone(), now: clock, clock, rules: Rules::NATIVE, command };
    let delivery = server.shard.ask(vec![call], Vec::new()).await.ok()?;
    let outcome = delivery.outcomes.into_iter().flatten().next()?;
    crate::shard::texts(outcome).await.ok()?.0.ok()
}

#[cfg(test)]
mod tests {
    use haul_engine::{Histogram, QueueCounts};

    use super::*;

    fn queue(name: &str, waiting: usize, popped: u64) -> QueueOverview {
        let counts = QueueCounts {
            name: name.into(),
            waiting,
            running: 1,
            stalled: 0,
            scheduled: 0,
            depends: 0,
            recurring: 0,
            throttled: 0,
            paused: false,
        };
        let wait = Histogram { below: [0; Histogram::BOUNDS.len()], count: popped, sum: popped as f64 * 2.0 };
        let run = Histogram { below: [0; Histogram::BOUNDS.len()], count: 0, sum: 0.0 };
        QueueOverview { counts, oldest: None, wait, run, failures: 0, retries: 0 }
    }

    fn seen(queues: Vec<QueueOverview>) -> Overview {
        Overview { queues, ..Overview::default() }
    }

    #[test]
    fn samples_say_what_happened_since_the_one_before_also_over_midnight() {
        let (trends, tenant) = (Trends::default(), Name::new(b""));
        for (at, popped) in [(600.0, 5), (610.0, 8), (620.0, 2)] {
            trends.take(&tenant, &seen(vec![queue("q", 3, popped)]), &[], at);
        }
        let popped: Vec<u32> =
            trends.samples(&tenant, Some(&"q".into()), Span::Hour).iter().map(|it| it.popped).collect();
        assert_eq!(popped, [0, 3, 2]);
        let day = trends.samples(&tenant, None, Span::Day);
        assert_eq!((day.len(), day[0].popped, day[0].waiting, day[0].wait_seconds), (1, 5, 3, 10.0));
        assert_eq!(trends.taken_at(&tenant, &"q".into()), Some(620.0));
        assert!(trends.samples(&tenant, Some(&"other".into()), Span::Hour).is_empty());
    }

    #[test]
    fn what_was_kept_is_there_after_a_restart_with_the_gap_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let (trends, tenant) = (Trends::default(), Name::new(b"\xff"));
        let groups = [(Name::from("g"), 7)];
        for (at, popped) in [(600.0, 5), (610.0, 8)] {
            trends.take(&tenant, &seen(vec![queue("q", 3, popped)]), &groups, at);
        }
        trends.save(folder.path()).unwrap();
        let again = Trends::open(folder.path());
        assert_eq!(again.taken_at(&tenant, &"q".into()), Some(610.0));
        again.take(&tenant, &seen(vec![queue("q", 4, 10)]), &groups, 1210.0);
        let samples = again.samples(&tenant, Some(&"q".into()), Span::Hour);
        let of = |at: u32| samples.iter().find(|sample| sample.at == at).map(|it| (it.popped, it.waiting));
        assert_eq!(samples.len(), 62);
        assert_eq!((of(610), of(620), of(1200)), (Some((3, 3)), Some((0, 3)), Some((0, 3))));
        assert_eq!(of(1210), Some((2, 4)));
        assert_eq!(again.samples(&tenant, None, Span::Day).len(), 3);
        assert_eq!(again.sizes(&tenant, &"g".into()).len(), 11);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        for text in [&b"\x01rubbish"[..], b"\x63", b""] {
            std::fs::write(folder.path().join(FILE), text).unwrap();
            assert!(Trends::open(folder.path()).tenants().is_empty());
        }
    }

    #[test]
    fn rings_queues_and_groups_are_bounded() {
        let (trends, tenant) = (Trends::default(), Name::new(b""));
        let many = |at: usize| (0..LINES_MAX + 5).map(|n| queue(&format!("q{n}"), at, at as u64)).collect();
        let groups: Vec<(Name, usize)> =
            (0..GROUPS_MAX + 5).map(|n| (Name::from(format!("g{n}")), n)).collect();
        for round in 0..HOUR_SAMPLES + 3 {
            let at = round as f64 * 10.0;
            trends.take(&tenant, &seen(if round < 2 { many(round) } else { Vec::new() }), &groups, at);
        }
        assert_eq!(trends.samples(&tenant, None, Span::Hour).len(), HOUR_SAMPLES);
        assert!(trends.tenants()[&tenant].queues.is_empty());
        assert_eq!(trends.tenants()[&tenant].groups.len(), GROUPS_MAX);
        assert_eq!(trends.sizes(&tenant, &"g7".into()).len(), GROUP_SAMPLES);
    }
}
