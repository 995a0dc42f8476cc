//! Several nodes on one store. The nodes decide with the code of the server (`haul-cluster`), apply calls with its engine, and
//! commit to stores that fence whoever was there before, as SlateDB does. They are killed, paused in the middle of a
//! commit, cut off from the store and from each other, and their clocks are wrong. A checker knows what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use haul_cluster::{Held, Presence, Seen, Sight, placement, shard_of};
use haul_engine::{
    Call, Command, Complete, Engine, Loader, Lock, Name, Pop, Put, PutWhen, Reply, Rules, State,
};
use haul_store::{Batch, Inject, MemoryDisk, MemoryStore, Space, Store};

use crate::Rng;

const SHARDS: u32 = 4;
const TENANTS: usize = 6;
const WORKERS: usize = 4;
const NODES_MAX: usize = 4;
/// As in the server by default.
const GONE_AFTER: Duration = Duration::from_secs(8);
/// Between two signs of life; also how long a node that only looks trusts that it still owns a shard.
const PRESENCE: f64 = 2.0;

/// A deliberate mistake, to see that the checker notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A node that lost a shard acknowledges all the same.
    ZombieAcknowledges,
    /// An answer leaves before its commit.
    EarlyAnswer,
}

type Checked<T> = Result<T, String>;

/// Runs a seed; how many commands were acknowledged, or what went wrong.
pub fn run_cluster(
    seed: u64,
    steps: usize,
    flaw: Option<Flaw>,
    tell: &mut dyn FnMut(String),
) -> Checked<u64> {
    let mut world = World::new(seed, flaw);
    for _ in 0..steps {
        let told = world.step()?;
        tell(format!("{:8.1} {told}", world.now));
    }
    world.end()?;
    Ok(world.acknowledged)
}

/// A shard that a node has open.
struct Open {
    engine: Engine,
    store: MemoryStore,
    epoch: u64,
    /// When it was last known to be the owner, by the node's own time.
    confirmed: f64,
}

/// A round that was applied and not committed when its node was paused.
struct Stuck {
    shard: u32,
    batch: Batch,
    ask: Ask,
    reply: Reply,
}

struct Node {
    presence: Presence,
    up: bool,
    paused: bool,
    /// Cut off from the store.
    cut: bool,
    /// How wrong its clock is.
    skew: f64,
    open: BTreeMap<u32, Open>,
    stuck: Vec<Stuck>,
    /// Where it believes the shards are.
    at: BTreeMap<u32, String>,
    wanted: BTreeMap<u32, f64>,
    /// When it last said that it lives.
    looked_at: f64,
}

/// What a client asks.
#[derive(Clone, Debug)]
enum Ask {
    Put { tenant: Name, jid: Name },
    Pop { tenant: Name, worker: Name },
    Complete { tenant: Name, jid: Name, worker: Name },
    Look { tenant: Name, jid: Name },
}

impl Ask {
    fn tenant(&self) -> &Name {
        match self {
            Ask::Put { tenant, .. }
            | Ask::Pop { tenant, .. }
            | Ask::Complete { tenant, .. }
            | Ask::Look { tenant, .. } => tenant,
        }
    }

    fn command(&self) -> Command {
        let queue = Name::from("q");
        match self.clone() {
            Ask::Put { jid, .. } => Command::Put(Box::new(Put {
                jid,
                queue,
                worker: None,
                klass: Some(Name::from("k")),
                data: Some(Bytes::from_static(b"data that is too long to be kept in the header of its job")),
                delay: 0.0,
                priority: None,
                tags: None,
                retries: None,
                depends: Vec::new(),
                throttles: Vec::new(),
                when: PutWhen::Always,
                trace: None,
            })),
            Ask::Pop { worker, .. } => Command::Pop(Pop {
                worker,
                queues: vec![queue],
                round_robin: false,
                count: 1,
                lock: Lock::Seconds(1e9),
                klasses: Vec::new(),
            }),
            Ask::Complete { jid, worker, .. } => Command::Complete(Box::new(Complete {
                jid,
                worker: Some(worker),
                queue: None,
                attempt: None,
                data: None,
                result: None,
                next: None,
            })),
            Ask::Look { jid, .. } => Command::Get { jid },
        }
    }
}

/// What was acknowledged.
#[derive(Default)]
struct Known {
    put: BTreeMap<(Name, Name), ()>,
    holder: BTreeMap<(Name, Name), Name>,
    complete: BTreeSet<(Name, Name)>,
}

struct World {
    rng: Rng,
    now: f64,
    flaw: Option<Flaw>,
    /// Presences with the store's time stamps.
    bucket: BTreeMap<String, (Presence, f64)>,
    disks: Vec<MemoryDisk>,
    epochs: Vec<u64>,
    nodes: Vec<Node>,
    /// Pairs that do not reach each other.
    apart: BTreeSet<(usize, usize)>,
    known: Known,
    next: u64,
    acknowledged: u64,
}

impl World {
    fn new(seed: u64, flaw: Option<Flaw>) -> Self {
        let mut world = World {
            rng: Rng::new(seed),
            now: 1000.0,
            flaw,
            bucket: BTreeMap::new(),
            disks: (0..SHARDS).map(|_| MemoryDisk::new()).collect(),
            epochs: vec![0; SHARDS as usize],
            nodes: Vec::new(),
            apart: BTreeSet::new(),
            known: Known::default(),
            next: 0,
            acknowledged: 0,
        };
        (0..3).for_each(|_| world.join());
        world
    }

    /// A node that is new, or started again where one was killed.
    fn join(&mut self) {
        self.next += 1;
        let skew = self.rng.below(20_000) as f64 - 10_000.0;
        let slot = self.nodes.iter().position(|node| !node.up);
        let at = slot.unwrap_or(self.nodes.len());
        let presence = Presence {
            id: format!("node-{}", self.next),
            address: format!("address-{at}"),
            started_at: self.now,
            ..Presence::default()
        };
        let node = Node {
            presence,
            up: true,
            paused: false,
            cut: false,
            skew,
            open: BTreeMap::new(),
            stuck: Vec::new(),
            at: BTreeMap::new(),
            wanted: BTreeMap::new(),
            looked_at: 0.0,
        };
        match self.nodes.get_mut(at) {
            Some(old) => *old = node,
            None => self.nodes.push(node),
        }
    }

    fn step(&mut self) -> Checked<String> {
        self.now += self.rng.below(1000) as f64 / 1000.0;
        for at in 0..self.nodes.len() {
            if self.nodes.get(at).is_some_and(|node| self.now - node.looked_at >= PRESENCE) {
                self.look(at);
            }
        }
        let at = self.rng.below(self.nodes.len());
        match self.rng.below(40) {
            0..10 => {
                self.look(at);
                Ok(format!("look {at}"))
            }
            10..30 => self.client(at),
            30..33 => self.pause_or_resume(at),
            33 => {
                let up = self.nodes.iter().filter(|node| node.up).count();
                if up < NODES_MAX {
                    self.join();
                }
                Ok("join".to_owned())
            }
            34 => {
                self.kill(at);
                Ok(format!("kill {at}"))
            }
            35 => {
                self.leave(at);
                Ok(format!("leave {at}"))
            }
            36 => {
                let cut = self.rng.one_in(2);
                self.nodes.iter_mut().skip(at).take(1).for_each(|node| node.cut = cut);
                Ok(format!("store {} {at}", if cut { "cut off from" } else { "back for" }))
            }
            37 => {
                let other = self.rng.below(self.nodes.len());
                if !self.apart.remove(&(at, other)) {
                    self.apart.insert((at, other));
                }
                Ok(format!("between {at} and {other}"))
            }
            _ => {
                let inject = self.rng.pick_or(
                    &[Inject::Fail, Inject::Lose { kept: true }, Inject::Lose { kept: false }],
                    Inject::Fail,
                );
                let shard = self.rng.below(SHARDS as usize);
                self.disks.iter().skip(shard).take(1).for_each(|disk| disk.inject(inject));
                Ok(format!("shard {shard} will {inject:?}"))
            }
        }
    }

    fn kill(&mut self, at: usize) {
        if let Some(node) = self.nodes.get_mut(at) {
            node.up = false;
            node.open.clear();
            node.stuck.clear();
        }
    }

    /// A planned stop: everything is closed, the presence goes.
    fn leave(&mut self, at: usize) {
        let Some(node) = self.nodes.get(at) else { return };
        if node.up && !node.paused && !node.cut {
            self.bucket.remove(&node.presence.id);
            self.kill(at);
        }
    }

    /// What the keeper does.
    fn look(&mut self, at: usize) {
        let Some(node) = self.nodes.get_mut(at) else { return };
        if !node.up || node.paused || node.cut {
            return;
        }
        node.looked_at = self.now;
        announce(node, &mut self.bucket, self.now);
        let nodes: Vec<Seen> = self
            .bucket
            .values()
            .map(|(presence, at)| Seen {
                presence: presence.clone(),
                age_ms: ((self.now - at) * 1000.0) as i64,
            })
            .collect();
        let now = self.now + node.skew;
        let sight = Sight {
            me: &node.presence.id,
            shards: SHARDS,
            nodes: &nodes,
            gone_after: GONE_AFTER,
            wanted: &node.wanted,
            now,
        };
        let plan = sight.plan();
        node.wanted.retain(|shard, _| plan.wanted.contains(shard));
        for shard in &plan.wanted {
            node.wanted.entry(*shard).or_insert(now);
        }
        node.at = plan.at;
        for shard in plan.close {
            node.open.remove(&shard);
        }
        for shard in plan.open {
            if node.open.contains_key(&shard) || self.rng.one_in(4) {
                continue;
            }
            let (Some(disk), Some(epoch)) =
                (self.disks.get(shard as usize), self.epochs.get_mut(shard as usize))
            else {
                continue;
            };
            *epoch += 1;
            let store = disk.open();
            node.open.insert(shard, Open { engine: load(disk), store, epoch: *epoch, confirmed: now });
        }
        announce(node, &mut self.bucket, self.now);
        let own = node.presence.clone();
        own.shards.iter().for_each(|held| drop(node.at.insert(held.shard, own.id.clone())));
    }

    /// A client of this node asks something.
    fn client(&mut self, at: usize) -> Checked<String> {
        let ask = self.ask();
        let shard = shard_of(ask.tenant(), SHARDS);
        let Some(node) = self.nodes.get(at) else { return Ok(String::new()) };
        if !node.up || node.paused {
            return Ok(format!("{ask:?} at {at}: no answer"));
        }
        let owner = match node.at.get(&shard) {
            Some(id) => self.nodes.iter().position(|other| other.presence.id == *id),
            None => None,
        };
        let Some(owner) = owner.filter(|owner| {
            *owner == at || !self.apart.contains(&(at, *owner)) && !self.apart.contains(&(*owner, at))
        }) else {
            return Ok(format!("{ask:?} at {at}: nowhere"));
        };
        let told = self.apply(owner, shard, ask.clone())?;
        Ok(format!("{ask:?} at {at} through {owner}: {told}"))
    }

    fn ask(&mut self) -> Ask {
        let tenant = Name::from(format!("tenant-{}", self.rng.below(TENANTS)));
        let worker = Name::from(format!("worker-{}", self.rng.below(WORKERS)));
        let of_tenant = |map: Vec<&(Name, Name)>| -> Vec<Name> {
            map.into_iter().filter(|(whose, _)| *whose == tenant).map(|(_, jid)| jid.clone()).collect()
        };
        match self.rng.below(4) {
            0 => {
                self.next += 1;
                Ask::Put { jid: Name::from(format!("job-{}", self.next)), tenant }
            }
            1 => Ask::Pop { tenant, worker },
            2 => match self.rng.pick(&of_tenant(self.known.holder.keys().collect())) {
                Some(jid) => {
                    let worker =
                        self.known.holder.get(&(tenant.clone(), jid.clone())).cloned().unwrap_or(worker);
                    Ask::Complete { tenant, jid, worker }
                }
                None => Ask::Pop { tenant, worker },
            },
            _ => match self.rng.pick(&of_tenant(self.known.put.keys().collect())) {
                Some(jid) => Ask::Look { tenant, jid },
                None => Ask::Pop { tenant, worker },
            },
        }
    }

    /// One round of one call, at the node that is believed to own the shard.
    fn apply(&mut self, at: usize, shard: u32, ask: Ask) -> Checked<&'static str> {
        let now = self.now;
        let flaw = self.flaw;
        let Some(node) = self.nodes.get_mut(at) else { return Ok("nowhere") };
        if !node.up || node.paused {
            return Ok("no answer");
        }
        let clock = now + node.skew;
        let Some(open) = node.open.get_mut(&shard) else { return Ok("not here") };
        let call = Call {
            tenant: ask.tenant().clone(),
            now: clock,
            clock,
            rules: Rules::NATIVE,
            command: ask.command(),
        };
        let reply = open.engine.apply(call);
        open.engine.take_events();
        let batch = batch_of(&mut open.engine);
        let Ok(reply) = reply else { return Ok("refused") };
        if batch.is_empty() {
            let trusted = clock - open.confirmed < PRESENCE;
            if !trusted && (node.cut || open.store.submit(Batch::default()).is_err()) {
                node.open.remove(&shard);
                return Ok("try again");
            }
        } else if self.rng.one_in(30) {
            // The process is stopped between applying and committing.
            node.stuck.push(Stuck { shard, batch, ask, reply });
            node.paused = true;
            return Ok("stuck");
        } else {
            let done = !node.cut && open.store.commit(batch).is_ok();
            if !done {
                node.open.remove(&shard);
                if flaw != Some(Flaw::EarlyAnswer) {
                    return Ok("try again");
                }
            } else {
                open.confirmed = clock;
            }
        }
        self.acknowledge(&ask, &reply)?;
        Ok("done")
    }

    fn pause_or_resume(&mut self, at: usize) -> Checked<String> {
        let flaw = self.flaw;
        let Some(node) = self.nodes.get_mut(at) else { return Ok(String::new()) };
        node.paused = !node.paused && node.up;
        if node.paused || !node.up {
            return Ok(format!("pause {at}"));
        }
        // What was under way when it was paused goes on, as if nothing had happened.
        let mut done = Vec::new();
        for Stuck { shard, batch, ask, reply } in std::mem::take(&mut node.stuck) {
            let Some(open) = node.open.get_mut(&shard) else { continue };
            let kept = !node.cut && open.store.commit(batch).is_ok();
            if !kept {
                node.open.remove(&shard);
            }
            if kept || flaw == Some(Flaw::ZombieAcknowledges) {
                done.push((ask, reply));
            }
        }
        done.iter().try_for_each(|(ask, reply)| self.acknowledge(ask, reply))?;
        Ok(format!("resume {at}"))
    }

    /// The client hears of it: it must be, and stay, so.
    fn acknowledge(&mut self, ask: &Ask, reply: &Reply) -> Checked<()> {
        self.acknowledged += 1;
        let known = &mut self.known;
        match (ask, reply) {
            (Ask::Put { tenant, jid }, _) => {
                known.put.insert((tenant.clone(), jid.clone()), ());
            }
            (Ask::Pop { tenant, worker }, Reply::Jobs(jobs)) => {
                for job in jobs {
                    let key = (tenant.clone(), job.jid.clone());
                    if known.complete.contains(&key) {
                        return Err(format!("{key:?} was complete and is given to {worker}"));
                    }
                    if let Some(before) = known.holder.insert(key.clone(), worker.clone()) {
                        return Err(format!("{key:?} is held by {before} and given to {worker}"));
                    }
                }
            }
            (Ask::Complete { tenant, jid, .. }, _) => {
                known.complete.insert((tenant.clone(), jid.clone()));
            }
            (Ask::Look { tenant, jid }, Reply::Job(None)) => {
                return Err(format!("{jid} of {tenant} was acknowledged and is not there"));
            }
            _ => {}
        }
        Ok(())
    }

    /// The storm is over: every shard has one owner that all agree on, and has what was acknowledged.
    fn end(&mut self) -> Checked<()> {
        self.apart.clear();
        for at in 0..self.nodes.len() {
            self.nodes.iter_mut().skip(at).take(1).for_each(|node| node.cut = false);
            let paused = self.nodes.get(at).is_some_and(|node| node.paused);
            if paused {
                self.pause_or_resume(at)?;
            }
        }
        if self.nodes.iter().all(|node| !node.up) {
            self.join();
        }
        for _ in 0..200 {
            self.now += 1.0;
            (0..self.nodes.len()).for_each(|at| self.look(at));
        }
        self.check_owners()?;
        for (shard, disk) in (0..).zip(&self.disks) {
            let engine = load(disk);
            if let Some(finding) = engine.audit().first() {
                return Err(format!("shard {shard}: {}", finding.what));
            }
            check_jobs(&self.known, engine, shard)?;
        }
        Ok(())
    }

    fn check_owners(&self) -> Checked<()> {
        let up = || self.nodes.iter().filter(|node| node.up);
        for shard in 0..SHARDS {
            let owner = placement::owner(shard, up().map(|node| node.presence.id.as_str()));
            let holders: Vec<&str> = up()
                .filter(|node| node.open.contains_key(&shard))
                .map(|node| node.presence.id.as_str())
                .collect();
            if holders != owner.into_iter().collect::<Vec<_>>() {
                return Err(format!("shard {shard} should be at {owner:?} and is at {holders:?}"));
            }
            if let Some(lost) = up().find(|node| node.at.get(&shard).map(String::as_str) != owner) {
                return Err(format!("{} does not know where shard {shard} is", lost.presence.id));
            }
        }
        Ok(())
    }
}

fn check_jobs(known: &Known, mut engine: Engine, shard: u32) -> Checked<()> {
    for (tenant, jid) in known.put.keys().filter(|(tenant, _)| shard_of(tenant, SHARDS) == shard) {
        let command = Command::Get { jid: jid.clone() };
        let call = Call { tenant: tenant.clone(), now: 0.0, clock: 0.0, rules: Rules::NATIVE, command };
        let Ok(Reply::Job(Some(job))) = engine.apply(call) else {
            return Err(format!("{jid} of {tenant} is lost"));
        };
        let key = (tenant.clone(), jid.clone());
        if known.complete.contains(&key) && job.state != State::Complete {
            return Err(format!("{jid} of {tenant} was completed and is {:?}", job.state));
        }
        let holder = known.holder.get(&key).filter(|_| job.state == State::Running);
        if holder.is_some_and(|holder| *holder != job.worker) {
            return Err(format!("{jid} of {tenant} was given to {holder:?} and is held by {}", job.worker));
        }
    }
    Ok(())
}

fn announce(node: &mut Node, bucket: &mut BTreeMap<String, (Presence, f64)>, now: f64) {
    node.presence.shards = node
        .open
        .iter()
        .map(|(shard, open)| Held { shard: *shard, epoch: open.epoch, ..Held::default() })
        .collect();
    bucket.insert(node.presence.id.clone(), (node.presence.clone(), now));
}

fn load(disk: &MemoryDisk) -> Engine {
    let mut loader = Loader::default();
    for (space, key, value) in disk.records() {
        if space == Space::Header {
            // What the engine wrote, it reads; `audit` would find what is missing.
            let _ = loader.header(&key, &value);
        }
    }
    loader.finish()
}

fn batch_of(engine: &mut Engine) -> Batch {
    let changes = engine.take_changes();
    let mut batch = Batch::default();
    changes.puts.into_iter().for_each(|(key, value)| batch.put(Space::Header, key, value));
    changes.deletes.into_iter().for_each(|key| batch.delete(Space::Header, key));
    changes.dropped.iter().for_each(|id| batch.delete(Space::Body, id.key()));
    changes.bodies.into_iter().for_each(|(id, bytes)| batch.put(Space::Body, id.key(), bytes));
    batch
}
