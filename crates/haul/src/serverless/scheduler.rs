//! Which job type runs next: fair between tenants by what each has been given, weighted; then among the tenant's types.
//! Pure: time and chance are arguments.

use std::collections::BTreeMap;

/// A type that has waited longer goes first, in milliseconds.
const STARVING_MS: u64 = 60_000;

/// How the next type is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    #[default]
    Fair,
    First,
    Random,
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "fair" => Ok(Policy::Fair),
            "first" => Ok(Policy::First),
            "random" => Ok(Policy::Random),
            _ => Err(format!("the scheduler is fair, first or random, not {text}")),
        }
    }
}

/// A type that could run.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) jobtype: &'a str,
    /// Since when it waits, in milliseconds.
    pub(crate) since_ms: u64,
    /// A context of it is idle.
    pub(crate) warm: bool,
}

#[derive(Debug, Default)]
struct Share {
    /// What the tenant has been given, divided by its weight.
    given: f64,
    running: usize,
}

/// What has been given to whom.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    policy: Policy,
    tenants: BTreeMap<String, Share>,
    types: BTreeMap<(String, String), usize>,
}

impl Scheduler {
    pub(crate) fn new(policy: Policy) -> Self {
        Scheduler { policy, ..Scheduler::default() }
    }

    pub(crate) fn running(&self, tenant: &str) -> usize {
        self.tenants.get(tenant).map_or(0, |share| share.running)
    }

    fn running_of(&self, candidate: &Candidate<'_>) -> usize {
        let key = (candidate.tenant.to_owned(), candidate.jobtype.to_owned());
        self.types.get(&key).copied().unwrap_or(0)
    }

    /// The index of the type to run. `chance` is any number.
    pub(crate) fn select(&mut self, candidates: &[Candidate<'_>], now_ms: u64, chance: u64) -> Option<usize> {
        if candidates.is_empty() {
            return None;
        }
        match self.policy {
            Policy::First => Some(0),
            Policy::Random => usize::try_from(chance % candidates.len() as u64).ok(),
            Policy::Fair => self.starving(candidates, now_ms).or_else(|| self.fair(candidates, chance)),
        }
    }

    /// The type that has waited longest, if that is too long and none of it runs.
    fn starving(&self, candidates: &[Candidate<'_>], now_ms: u64) -> Option<usize> {
        let waited = |candidate: &Candidate<'_>| now_ms.saturating_sub(candidate.since_ms);
        let late = candidates
            .iter()
            .enumerate()
            .filter(|(_, candidate)| waited(candidate) > STARVING_MS && self.running_of(candidate) == 0);
        late.max_by_key(|(_, candidate)| waited(candidate)).map(|(at, _)| at)
    }

    fn fair(&mut self, candidates: &[Candidate<'_>], chance: u64) -> Option<usize> {
        // Who was away does not come back with a claim on all it did not use.
        let busy = self.tenants.values().filter(|share| share.running > 0).map(|share| share.given);
        let floor = busy.fold(f64::INFINITY, f64::min);
        let known = candidates.iter().filter_map(|candidate| self.tenants.get(candidate.tenant));
        let floor = known.map(|share| share.given).fold(floor, f64::min);
        let floor = if floor.is_finite() { floor } else { 0.0 };
        for candidate in candidates {
            self.tenants.entry(candidate.tenant.to_owned()).or_insert(Share { given: floor, running: 0 });
        }
        let given =
            |candidate: &Candidate<'_>| self.tenants.get(candidate.tenant).map_or(0.0, |share| share.given);
        let tenant = candidates.iter().min_by(|one, other| given(one).total_cmp(&given(other)))?.tenant;
        let of_tenant = candidates.iter().enumerate().filter(|(_, candidate)| candidate.tenant == tenant);
        let score = |candidate: &Candidate<'_>| (self.running_of(candidate), !candidate.warm);
        let best = of_tenant.clone().map(|(_, candidate)| score(candidate)).min()?;
        let equal: Vec<usize> =
            of_tenant.filter(|(_, candidate)| score(candidate) == best).map(|(at, _)| at).collect();
        equal.get(usize::try_from(chance % equal.len().max(1) as u64).unwrap_or(0)).copied()
    }

    /// Jobs have started.
    pub(crate) fn started(&mut self, tenant: &str, jobtype: &str, count: usize, weight: f64) {
        let share = self.tenants.entry(tenant.to_owned()).or_default();
        share.given += count as f64 / weight.max(0.01);
        share.running += count;
        *self.types.entry((tenant.to_owned(), jobtype.to_owned())).or_default() += count;
        // Only differences matter: kept small so that sums stay exact.
        if share.given > 1e12 {
            let least = self.tenants.values().map(|share| share.given).fold(f64::INFINITY, f64::min);
            self.tenants.values_mut().for_each(|share| share.given -= least);
        }
    }

    /// Fewer were there than were given for: what is running stays counted until it has stopped.
    pub(crate) fn refund(&mut self, tenant: &str, count: usize, weight: f64) {
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.given -= count as f64 / weight.max(0.01);
        }
    }

    /// Jobs run no more, whatever they came to.
    pub(crate) fn stopped(&mut self, tenant: &str, jobtype: &str, count: usize) {
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.running = share.running.saturating_sub(count);
        }
        let key = (tenant.to_owned(), jobtype.to_owned());
        if let Some(running) = self.types.get_mut(&key) {
            *running = running.saturating_sub(count);
            if *running == 0 {
                self.types.remove(&key);
            }
        }
    }

    /// A tenant with nothing left to run is forgotten once nothing of it runs: it comes back as an equal.
    pub(crate) fn idle(&mut self, tenant: &str) {
        if self.running(tenant) == 0 {
            self.tenants.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate<'a>(tenant: &'a str, jobtype: &'a str) -> Candidate<'a> {
        Candidate { tenant, jobtype, since_ms: 0, warm: false }
    }

    /// Runs batches of five, one after another, and counts who got them.
    fn serve(scheduler: &mut Scheduler, weights: &[(&str, f64)], rounds: usize) -> BTreeMap<String, usize> {
        let mut got = BTreeMap::new();
        for round in 0..rounds {
            let candidates: Vec<_> = weights.iter().map(|(tenant, _)| candidate(tenant, "t")).collect();
            let at = scheduler.select(&candidates, 0, round as u64).unwrap();
            scheduler.started(weights[at].0, "t", 5, weights[at].1);
            scheduler.stopped(weights[at].0, "t", 5);
            *got.entry(weights[at].0.to_owned()).or_default() += 1;
        }
        got
    }

    #[test]
    fn tenants_share_equally_and_by_weight() {
        let got = serve(&mut Scheduler::default(), &[("a", 1.0), ("b", 1.0)], 100);
        assert_eq!((got["a"], got["b"]), (50, 50));
        let got = serve(&mut Scheduler::default(), &[("a", 3.0), ("b", 1.0)], 100);
        assert_eq!((got["a"], got["b"]), (75, 25));
    }

    /// One tenant with very many jobs does not delay another's by more than two batches.
    #[test]
    fn a_newcomer_is_served_at_once() {
        let mut scheduler = Scheduler::default();
        serve(&mut scheduler, &[("big", 1.0)], 10_000);
        let both = [candidate("big", "t"), candidate("small", "t")];
        let mut until = Vec::new();
        for round in 0..6 {
            let at = scheduler.select(&both, 0, round).unwrap();
            scheduler.started(both[at].tenant, "t", 5, 1.0);
            until.push(both[at].tenant);
        }
        assert!(until[..2].contains(&"small"), "{until:?}");
        assert_eq!(until.iter().filter(|tenant| **tenant == "small").count(), 3);
    }

    #[test]
    fn who_was_away_gets_no_more_than_its_share() {
        let mut scheduler = Scheduler::default();
        serve(&mut scheduler, &[("a", 1.0), ("b", 1.0)], 10);
        scheduler.idle("b");
        serve(&mut scheduler, &[("a", 1.0)], 1000);
        let got = serve(&mut scheduler, &[("a", 1.0), ("b", 1.0)], 100);
        assert_eq!(got["b"], 50);
    }

    #[test]
    fn among_types_those_running_least_and_warm_ones_go_first() {
        let mut scheduler = Scheduler::default();
        scheduler.started("a", "busy", 5, 1.0);
        let mut all = [candidate("a", "busy"), candidate("a", "cold"), candidate("a", "warm")];
        all[2].warm = true;
        for chance in 0..20 {
            assert_eq!(scheduler.select(&all, 0, chance), Some(2));
        }
        assert_eq!(scheduler.select(&[], 0, 0), None);
    }

    #[test]
    fn a_type_that_has_waited_a_minute_goes_first() {
        let mut scheduler = Scheduler::default();
        scheduler.started("late", "t", 5, 0.01);
        let mut all = [candidate("early", "t"), candidate("late", "u")];
        all[0].since_ms = 60_001;
        assert_eq!(scheduler.select(&all, 60_000, 0), Some(0));
        assert_eq!(scheduler.select(&all, 60_001, 0), Some(1));
    }

    #[test]
    fn first_and_random_can_be_chosen() {
        let all = [candidate("a", "t"), candidate("b", "t"), candidate("c", "t")];
        let mut first = Scheduler::new("first".parse().unwrap());
        let mut random = Scheduler::new("random".parse().unwrap());
        for chance in 0..9 {
            assert_eq!(first.select(&all, 0, chance), Some(0));
            assert_eq!(random.select(&all, 0, chance), Some(chance as usize % 3));
        }
        assert!("fifo".parse::<Policy>().is_err());
    }

    #[test]
    fn totals_never_fall_below_zero() {
        let mut scheduler = Scheduler::default();
        scheduler.stopped("a", "t", 7);
        scheduler.started("a", "t", 2, 1.0);
        scheduler.stopped("a", "t", 7);
        assert_eq!(scheduler.running("a"), 0);
    }
}
