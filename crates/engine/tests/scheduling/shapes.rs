//! Who goes when, and what is computed only once.

use std::time::Duration;

use firsttoken_logic::engine::ids::{RequestId, Tenant};
use firsttoken_logic::engine::scheduler::Limits;
use firsttoken_logic::time::Instant;

use crate::rig::{Answer, Engine, ms, prompt};

#[test]
fn eight_who_come_together_compute_their_common_beginning_once() {
    let mut engine = Engine::new(Limits::default());
    for own in 0..8 {
        engine.ask(ms(0), [prompt(1, 2048), prompt(10 + own, 64)].concat(), 32);
    }
    engine.run();
    let counters = engine.scheduler.counters();
    assert_eq!(counters.tokens_shared, 7 * 2048);
    assert_eq!(counters.rows, 2048 + 8 * (64 + 31));
}

#[test]
fn what_is_warm_is_not_computed_again_whichever_tier_it_lies_in() {
    let mut engine = Engine::new(Limits { cells: 3000, ..Limits::default() });
    let system = prompt(1, 2048);
    engine.ask(ms(0), [system.clone(), prompt(2, 64)].concat(), 32);
    engine.run();
    // Another conversation needs the cells, and the system prompt moves out.
    engine.ask(ms(20_000), prompt(3, 2500), 32);
    engine.run();
    assert!(engine.scheduler.counters().tokens_saved >= 2048);
    let before = engine.scheduler.counters().rows;
    engine.ask(ms(60_000), [system, prompt(4, 64)].concat(), 32);
    engine.run();
    assert_eq!(engine.scheduler.counters().rows - before, 64 + 31);
    let ratio = engine.answers[&2].ttft().as_secs_f64() / engine.answers[&0].ttft().as_secs_f64();
    assert!(ratio < 0.05, "{ratio}");
}

#[test]
fn readers_keep_their_pace_when_a_long_prompt_comes() {
    for (target, prompt_len) in [(100, 1024), (100, 4096), (200, 4096), (400, 8192)] {
        let mut engine = Engine::new(Limits::default());
        for reader in 0..4 {
            engine.ask(ms(0), prompt(reader, 128), 400);
        }
        let late = engine.ask(ms(3000), prompt(9, prompt_len), 8);
        for (_, request) in &mut engine.script {
            request.itl_target = Some(ms(target));
        }
        engine.run();
        let came = ms(3000)..engine.answers[&late].at[0];
        let mut gaps: Vec<Duration> = (0..4)
            .flat_map(|reader| {
                let answer = &engine.answers[&reader];
                answer.gaps().zip(&answer.at[1..]).filter(|(_, at)| came.contains(at)).map(|(gap, _)| gap)
            })
            .collect();
        gaps.sort_unstable();
        let p99 = gaps[gaps.len() * 99 / 100];
        assert!(p99 <= ms(target) * 11 / 10, "target {target} ms, prompt {prompt_len}: p99 {p99:?}");
    }
}

#[test]
fn a_short_prompt_does_not_wait_for_a_long_one() {
    let mut engine = Engine::new(Limits::default());
    engine.ask(ms(0), prompt(1, 8192), 4);
    let short = engine.ask(ms(1000), prompt(2, 64), 4);
    engine.run();
    assert!(engine.answers[&short].ttft() < ms(1500), "{:?}", engine.answers[&short].ttft());
}

#[test]
fn many_short_prompts_come_one_after_another_and_not_all_at_once() {
    let mut engine = Engine::new(Limits::default());
    for own in 0..8 {
        engine.ask(ms(0), prompt(own, 64), 1);
    }
    engine.run();
    let mut ttfts: Vec<Duration> = engine.answers.values().map(Answer::ttft).collect();
    ttfts.sort_unstable();
    assert!(ttfts[0] < ms(120), "the first waits for its own rows only: {ttfts:?}");
    assert!(ttfts[3] < ttfts[7] * 6 / 10, "{ttfts:?}");
}

#[test]
fn nobody_is_overtaken_for_ever() {
    let mut engine = Engine::new(Limits { running_max: 1, ..Limits::default() });
    let long = engine.ask(ms(0), prompt(1, 8000), 4);
    for own in 0..1000 {
        engine.ask(ms(110 * u64::from(own)), prompt(100 + own, 64), 4);
    }
    engine.run();
    let after = engine.answers.iter().filter(|(id, a)| **id != long && a.at[0] > engine.answers[&long].at[0]);
    assert!(after.count() > 50, "the long prompt came after almost everybody");
}

#[test]
fn tenants_share_the_machine() {
    let mut engine = Engine::new(Limits { running_max: 2, ..Limits::default() });
    for own in 0..40 {
        engine.ask(ms(0), prompt(own, 256), 16);
    }
    let guest = engine.ask(ms(1000), prompt(99, 256), 16);
    for (_, request) in &mut engine.script {
        request.tenant = Tenant(u64::from(request.id.0 == guest));
    }
    engine.run();
    let before = engine.answers.values().filter(|answer| answer.at[0] < engine.answers[&guest].at[0]).count();
    assert!(before < 8, "{before} of the other tenant came first");
}

#[test]
fn when_memory_is_out_nobody_fails() {
    let mut engine = Engine::new(Limits { cells: 2000, ..Limits::default() });
    for own in 0..8 {
        engine.ask(ms(0), prompt(own, 200), 1200);
    }
    engine.run();
    assert!(engine.answers.values().all(|answer| answer.tokens.len() == 1200));
    assert!(engine.scheduler.counters().preemptions > 0);
}

#[test]
fn idle_prefixes_do_not_slow_those_who_work() {
    let mut engine = Engine::new(Limits { cells: 100_000, ..Limits::default() });
    for own in 0..40 {
        engine.ask(ms(20_000 * u64::from(own)), prompt(own, 2048), 4);
    }
    engine.run();
    let last = engine.ask(ms(2_000_000), prompt(99, 128), 256);
    engine.run();
    let gaps: Vec<Duration> = engine.answers[&last].gaps().collect();
    let later = gaps[128..].iter().sum::<Duration>() / 127;
    let clean = ms(6) + Duration::from_micros(320 * 231 / 100);
    assert!(later < clean * 105 / 100, "{later:?} a token instead of {clean:?}");
    assert!(engine.scheduler.pool().idle() < 2048);
}

#[test]
fn who_leaves_is_gone_with_the_next_step() {
    let mut engine = Engine::new(Limits::default());
    for own in 0..4 {
        engine.ask(ms(0), prompt(own, 1000), 100);
    }
    for _ in 0..3 {
        engine.arrive();
        let _ = engine.step();
    }
    for id in 0..4 {
        engine.scheduler.on_cancel(RequestId(id));
    }
    let step = engine.scheduler.next_step(Instant::default());
    assert!(step.runs.is_empty());
    let held: u32 = engine.scheduler.pool().cells().used() - engine.scheduler.pool().idle();
    assert_eq!((held, engine.scheduler.running(), engine.scheduler.waiting()), (0, 0, 0));
}
