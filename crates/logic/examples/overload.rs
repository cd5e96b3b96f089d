//! What an upstream's line does under three times its capacity, in virtual time: calls arrive by chance at an
//! upstream of 32 places, each goes, waits, or is shed as [`firsttoken_logic::tail::admission`] decides, and who is shed
//! comes back exactly when it was told to. Nothing says how many places there are.
//!
//! The upstream is one of three: beyond its places calls queue, share, or are refused. Prints one line of JSON
//! with the worst of them and of all seeds. And whether an idle upstream's limit falls when prompts become longer.
//!
//! Invariant: the same seed meets the same calls.

#![expect(clippy::print_stdout, clippy::cast_possible_truncation, reason = "it reports, on small numbers")]

use std::collections::BTreeMap;
use std::time::Duration;

use firsttoken_logic::tail::admission::{Admission, Ask, Policy, Priority, Verdict};
use firsttoken_logic::tail::limit::{Bounds, Limit};
use firsttoken_logic::time::Instant;

/// Calls that the upstream works on.
const PLACES: usize = 32;
/// What a call takes then, s: its median, and the deviation of its logarithm.
const WORK_S: (f64, f64) = (0.5, 0.1);
/// Calls a second, as a multiple of what it can do.
const LOAD: f64 = 3.0;
/// How long calls come, s, …
const LOADED_S: f64 = 60.0;
/// … of which the first are not counted: places are being found out.
const WARM_UP_S: f64 = 10.0;
const SEEDS: u64 = 10;
/// How long a call may wait here.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// What the upstream does with more calls than it has places.
#[derive(Clone, Copy, PartialEq)]
enum Beyond {
    Queue,
    Share,
    Refuse,
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// A call at the upstream.
struct Job {
    call: u64,
    sent: f64,
    at_work: u32,
    /// Seconds of work that are left.
    left: f64,
}

/// An upstream that works on what it has.
struct Upstream {
    beyond: Beyond,
    jobs: Vec<Job>,
}

impl Upstream {
    /// Seconds of work that a second brings to the job at this place.
    fn pace(&self, place: usize) -> f64 {
        match self.beyond {
            Beyond::Share => (PLACES as f64 / self.jobs.len() as f64).min(1.0),
            Beyond::Queue | Beyond::Refuse => f64::from(u8::from(place < PLACES)),
        }
    }

    /// In how many seconds the next job ends, and which.
    fn next(&self) -> (f64, usize) {
        let ends = self.jobs.iter().enumerate().filter(|(place, _)| self.pace(*place) > 0.0);
        let ends = ends.map(|(place, job)| (job.left / self.pace(place), place));
        ends.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, 0))
    }

    fn work(&mut self, seconds: f64) {
        let paces: Vec<f64> = (0..self.jobs.len()).map(|place| self.pace(place)).collect();
        for (job, pace) in self.jobs.iter_mut().zip(paces) {
            job.left -= seconds * pace;
        }
    }
}

/// A call that was asked for: when it first came, when it came now, and how often it was shed.
#[derive(Clone, Copy)]
struct Call {
    came: f64,
    shed: u32,
}

/// What a run came to.
#[derive(Default)]
struct Run {
    /// Of each call that was answered: when it came and how long it took, its wait here included.
    answered: Vec<(f64, f64)>,
    /// Who came back for the first time and was taken, and who was not.
    taken: u32,
    shed_again: u32,
    refused: u32,
}

/// One minute of load.
struct World {
    line: Admission,
    upstream: Upstream,
    chance: Chance,
    /// Who comes when: nanoseconds, and a number that tells two of them apart.
    coming: BTreeMap<(u64, u64), Call>,
    calls: BTreeMap<u64, Call>,
    now: f64,
    run: Run,
}

impl World {
    fn new(beyond: Beyond, seed: u64) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x1234_5678_9abc_def1));
        let (mut coming, mut at, mut number) = (BTreeMap::new(), 0.0, 0);
        let rate = LOAD * PLACES as f64 / WORK_S.0;
        while at < LOADED_S {
            at -= (1.0 - chance.unit()).ln() / rate;
            coming.insert((nanos(at), number), Call { came: at, shed: 0 });
            number += 1;
        }
        Self {
            line: Admission::new(Bounds::default()),
            upstream: Upstream { beyond, jobs: Vec::new() },
            chance,
            coming,
            calls: BTreeMap::new(),
            now: 0.0,
            run: Run::default(),
        }
    }

    fn instant(&self) -> Instant {
        Instant::from_ns(nanos(self.now))
    }

    /// What happens next, if that is while calls still come.
    fn step(&mut self) -> bool {
        let (until_end, ended) = self.upstream.next();
        let end = self.now + until_end;
        let come = self.coming.first_key_value().map_or(f64::INFINITY, |((ns, _), _)| *ns as f64 / 1e9);
        let late = self.line.deadline().map_or(f64::INFINITY, |at| at.ns() as f64 / 1e9);
        let then = end.min(come).min(late);
        if then > LOADED_S {
            return false;
        }
        self.upstream.work(then - self.now);
        self.now = then;
        if then == end {
            self.end(ended);
        } else if then == come
            && let Some(((_, id), call)) = self.coming.pop_first()
        {
            self.come(id, call);
        }
        while let Some((id, verdict)) = self.line.poll(self.instant()) {
            let call = self.calls[&id];
            self.told(id, call, verdict);
        }
        true
    }

    fn come(&mut self, id: u64, call: Call) {
        let policy = Policy { wait_max: WAIT_MAX, ..Policy::default() };
        let ask = Ask { id, tenant: 0, key: id, priority: Priority::Interactive, wait_max: WAIT_MAX };
        let verdict = self.line.on_arrive(ask, &policy, self.instant());
        self.calls.insert(id, Call { came: self.now, ..call });
        self.told(id, Call { came: self.now, ..call }, verdict);
    }

    fn told(&mut self, id: u64, call: Call, verdict: Verdict) {
        match verdict {
            Verdict::Wait => {}
            Verdict::Go => {
                self.run.taken += u32::from(call.shed == 1);
                self.send(id);
            }
            Verdict::Shed(wait) => {
                self.run.shed_again += u32::from(call.shed == 1);
                let back = nanos(self.now + wait.as_secs_f64());
                self.coming.insert((back, id), Call { shed: call.shed + 1, ..call });
            }
        }
    }

    fn send(&mut self, id: u64) {
        let (at_work, _) = self.line.counts();
        if self.upstream.beyond == Beyond::Refuse && self.upstream.jobs.len() >= PLACES {
            let now = self.instant();
            self.run.refused += 1;
            self.line.limit().on_overloaded(now, at_work, now);
            self.line.on_end(0, now);
            return;
        }
        let left = WORK_S.0 * (WORK_S.1 * self.chance.normal()).exp();
        self.upstream.jobs.push(Job { call: id, sent: self.now, at_work, left });
    }

    fn end(&mut self, place: usize) {
        let job = self.upstream.jobs.remove(place);
        let (now, sent) = (self.instant(), Instant::from_ns(nanos(job.sent)));
        self.line.limit().on_content(0, sent, now.since(sent), job.at_work, now);
        self.line.on_end(0, now);
        let came = self.calls[&job.call].came;
        self.run.answered.push((came, self.now - came));
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() as f64 * q).ceil() as usize).clamp(1, values.len()) - 1]
}

/// The worst of the seeds: p99 of who is taken beside an idle upstream's, goodput as a part of capacity, the
/// part of those who were taken when they first came back, and the part that the upstream refused.
fn overload(beyond: Beyond) -> [f64; 4] {
    let mut worst = [0.0_f64, 1.0, 1.0, 0.0];
    for seed in 1..=SEEDS {
        let mut world = World::new(beyond, seed);
        while world.step() {}
        let run = world.run;
        let counted = run.answered.iter().filter(|(came, _)| *came >= WARM_UP_S);
        let mut took: Vec<f64> = counted.map(|(_, took)| *took).collect();
        // Of a call that finds a place: the 99th percentile of a lognormal.
        let unloaded = WORK_S.0 * (2.326 * WORK_S.1).exp();
        let p99 = quantile(&mut took, 0.99) / unloaded;
        let good = took.iter().filter(|took| **took <= 1.5 * unloaded).count() as f64;
        let mean = WORK_S.0 * (WORK_S.1 * WORK_S.1 / 2.0).exp();
        let capacity = (LOADED_S - WARM_UP_S - WORK_S.0) * PLACES as f64 / mean;
        let taken = f64::from(run.taken) / f64::from(run.taken + run.shed_again).max(1.0);
        let refused = f64::from(run.refused) / (run.answered.len() as f64);
        worst[0] = worst[0].max(p99);
        worst[1] = worst[1].min(good / capacity);
        worst[2] = worst[2].min(taken);
        worst[3] = worst[3].max(refused);
    }
    worst
}

/// The limit of an upstream with room when its prompts become sixteen times as long, as a part of before.
fn mix() -> f64 {
    let (mut limit, mut chance, mut now) = (Limit::new(Bounds::default()), Chance(1), 0.0);
    let mut calls = |limit: &mut Limit, class: usize, median: f64| {
        for _ in 0..5_000 {
            now += 0.05;
            let (sent, at) = (Instant::from_ns(nanos(now)), now + median * (0.3 * chance.normal()).exp());
            limit.on_content(class, sent, Duration::from_secs_f64(at - now), 4, Instant::from_ns(nanos(at)));
        }
    };
    calls(&mut limit, 0, 0.2);
    let before = limit.calls();
    calls(&mut limit, 2, 3.2);
    f64::from(limit.calls()) / f64::from(before)
}

fn main() {
    let all = [Beyond::Queue, Beyond::Share, Beyond::Refuse].map(overload);
    let most = |figure: usize| all.iter().map(|of| of[figure]).fold(0.0, f64::max);
    let least = |figure: usize| all.iter().map(|of| of[figure]).fold(f64::INFINITY, f64::min);
    println!(
        "{{\"p99_ratio\":{:.3},\"goodput_lost\":{:.3},\"back_in_vain\":{:.3},\"refused\":{:.4},\"mix_lost\":{:.3}}}",
        most(0),
        1.0 - least(1),
        1.0 - least(2),
        most(3),
        1.0 - mix()
    );
}
