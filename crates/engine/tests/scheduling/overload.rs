//! More than the machine can do: who is taken is answered in time, who is not is told when to come
//! back, and who does come back then is taken.

use std::time::Duration;

use fastrand::Rng;
use firsttoken_logic::engine::scheduler::Limits;

use crate::rig::{Engine, ms, prompt};

/// How long the load lasts.
const LOAD: Duration = Duration::from_secs(600);
/// Requests a second, twice of what the modelled machine completes.
const RATE: f64 = 0.6;

#[test]
fn beyond_capacity_who_is_taken_is_answered_in_time() {
    for seed in 0..2 {
        let wait_max = Duration::from_secs(4);
        let mut engine = Engine::new(Limits { wait_max, ..Limits::default() });
        offer(&mut engine, &mut Rng::with_seed(seed));
        engine.run();
        let asks = engine.answers.len();
        assert!(engine.answers.values().all(|answer| answer.tokens.len() == 64), "everybody is answered");
        let mut waits: Vec<Duration> = engine.answers.values().map(|answer| answer.ttft()).collect();
        waits.sort_unstable();
        let p50 = waits[asks / 2];
        assert!(p50 < wait_max * 2, "half of {asks} waited longer than {p50:?}");
        let (returned, taken) = engine.returned;
        assert!(
            returned > 20 && taken * 10 >= returned * 9,
            "{taken} of {returned} were taken when they came back"
        );
    }
}

/// Who comes together with a prompt that begins alike counts by what it will really cost: what the first
/// of them computes for all is in the forecast once.
#[test]
fn a_beginning_that_several_wait_for_is_forecast_once() {
    let refused = |shared: u32| {
        let mut engine = Engine::new(Limits { wait_max: Duration::from_secs(8), ..Limits::default() });
        for client in 0..8 {
            let own = prompt(100 + client, 2_112 - shared);
            engine.ask(Duration::ZERO, [prompt(1, shared), own].concat(), 32);
        }
        engine.arrive();
        let refused = engine.answers.values().filter(|answer| answer.refused > 0).count();
        engine.run();
        refused
    };
    assert_eq!(refused(2_048), 0);
    assert!(refused(0) > 3, "eight of their own are more than can be computed in time");
}

/// Prompts of 128, 1,024 and 4,096 tokens, at random times.
fn offer(engine: &mut Engine, rng: &mut Rng) {
    let mut at = Duration::ZERO;
    while at < LOAD {
        at += Duration::from_secs_f64(-rng.f64().max(1e-9).ln() / RATE);
        let len = match rng.u32(0..10) {
            0..6 => 128,
            6..9 => 1024,
            _ => 4096,
        };
        let prompt = (0..len).map(|_| rng.u32(0..256)).collect();
        engine.ask(at, prompt, 64);
    }
    for (_, request) in &mut engine.script {
        request.itl_target = Some(ms(400));
    }
}
