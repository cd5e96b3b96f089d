//! More than the machine can do, on modelled kernels: who is taken is answered in time, who is not is
//! told when to come back, and who does come back then is taken.

#![cfg(test)]

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use firsttoken_engine::backend::{Backend as _, Outcome};
use firsttoken_engine::fake::{Fake, Language, Machine};
use firsttoken_engine::memory::Memory;
use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::ids::{RequestId, Tenant, Token};
use firsttoken_logic::engine::scheduler::{Limits, Refusal, Scheduler};
use firsttoken_logic::engine::sequence::{Priority, Request};
use firsttoken_logic::time::Instant;

/// How long the load lasts, and the share of the machine's best rate that is offered.
const LOAD: Duration = Duration::from_secs(600);
/// Requests a second that the modelled machine completes at best, measured by offering much more.
const BEST_RATE: f64 = 0.45;

#[derive(Clone, Debug)]
struct Ask {
    prompt: Vec<Token>,
    at: Duration,
    first: Option<Duration>,
    /// How often it was sent away.
    refused: u32,
}

struct World {
    scheduler: Scheduler,
    memory: Memory<Fake>,
    idle: Duration,
    asks: BTreeMap<u64, Ask>,
    script: Vec<(Duration, u64)>,
    finished: u32,
    /// Who came back at its time, and how many of them were taken then.
    returned: (u32, u32),
}

impl World {
    fn new(rate: f64, wait_max: Duration, seed: u64) -> Self {
        let limits = Limits { wait_max, ..Limits::default() };
        let fake = Fake::new(limits.cells, limits.ids, Language::Hashed, Machine::default());
        let mut world = Self {
            scheduler: Scheduler::new(limits, StepCost::default()),
            memory: Memory::new(fake),
            idle: Duration::ZERO,
            asks: BTreeMap::new(),
            script: Vec::new(),
            finished: 0,
            returned: (0, 0),
        };
        let mut rng = Rng::with_seed(seed);
        let mut at = Duration::ZERO;
        for id in 0.. {
            at += Duration::from_secs_f64(-rng.f64().max(1e-9).ln() / rate);
            if at > LOAD {
                break;
            }
            let len = match rng.u32(0..10) {
                0..6 => 128,
                6..9 => 1024,
                _ => 4096,
            };
            let prompt = (0..len).map(|_| rng.u32(0..256)).collect();
            world.asks.insert(id, Ask { prompt, at, first: None, refused: 0 });
            world.script.push((at, id));
        }
        world
    }

    fn now(&mut self) -> Duration {
        self.memory.backend().spent() + self.idle
    }

    fn arrive(&mut self) {
        let now = self.now();
        let (due, later): (Vec<_>, Vec<_>) = self.script.drain(..).partition(|(at, _)| *at <= now);
        self.script = later;
        for (at, id) in due {
            let ask = self.asks.get_mut(&id).expect("it is in the script");
            let request = Request {
                id: RequestId(id),
                tenant: Tenant(0),
                prompt: ask.prompt.clone(),
                output_max: 64,
                priority: Priority::Interactive,
                itl_target: Some(Duration::from_millis(400)),
                deadline: None,
            };
            ask.at = at;
            let judged = self.scheduler.on_submit(request, Instant::default() + now);
            if ask.refused > 0 {
                self.returned.0 += 1;
                self.returned.1 += u32::from(judged.is_ok());
            }
            if let Err(refusal) = judged {
                let Refusal::Busy { retry_after } = refusal else { panic!("{refusal:?}") };
                ask.refused += 1;
                self.script.push((now + retry_after, id));
            }
        }
    }

    fn run(&mut self) {
        while !self.script.is_empty() || !self.scheduler.is_idle() {
            self.arrive();
            let before = self.now();
            let step = self.scheduler.next_step(Instant::default() + before);
            assert_eq!(self.memory.step(&step).expect("the kernels do not fail"), Outcome::Done);
            let now = self.now();
            self.scheduler.on_computed(&step, now - before);
            if step.is_empty() {
                let next = self.script.iter().map(|(at, _)| *at).min().unwrap_or(now);
                self.idle += next.saturating_sub(now);
            }
            let mut row = 0;
            for run in &step.runs {
                row += run.tokens.len();
                if run.logits > 0 {
                    let logits = self.memory.backend().logits(row - 1);
                    let token = logits.iter().position(|logit| *logit > 0.0).expect("one is likely");
                    let token = Token::try_from(token).expect("a token");
                    let running = self.scheduler.running();
                    self.scheduler.on_sampled(run.request, &[token], false, Instant::default() + now);
                    self.finished += u32::from(self.scheduler.running() < running);
                    let ask = self.asks.get_mut(&run.request.0).expect("it was asked");
                    ask.first.get_or_insert(now);
                }
            }
        }
    }
}

#[test]
fn beyond_capacity_who_is_taken_is_answered_in_time() {
    for seed in 0..3 {
        let wait_max = Duration::from_secs(4);
        let mut world = World::new(2.0 * BEST_RATE, wait_max, seed);
        world.run();
        let asks = world.asks.len();
        assert_eq!(world.finished as usize, asks, "everybody is answered in the end");
        let mut waits: Vec<Duration> =
            world.asks.values().map(|ask| ask.first.expect("answered") - ask.at).collect();
        waits.sort_unstable();
        let (returned, taken) = world.returned;
        let p50 = waits[asks / 2];
        assert!(p50 < wait_max * 2, "half of {asks} waited longer than {p50:?}");
        assert!(
            returned > 20 && taken * 10 >= returned * 9,
            "{taken} of {returned} were taken when they came back"
        );
    }
}
