//! Batches: mixed ones, known text, and steps that are ended early.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use firsttoken_llama::{Context, Outcome, Row, Settings};
use firsttoken_synth::{Recipe, Shape, Weights};

use crate::rig::{best, context, greedy, model, peaked, random, rows, run, settings, tokens};

#[test]
fn a_peaked_model_says_what_is_known() {
    for weights in [Weights::F32, Weights::F16, Weights::Q8_0, Weights::Q4_0] {
        let recipe = Recipe { weights, ..peaked() };
        let (model, after) = (model(&recipe), recipe.successors());
        let mut context = context(&model);
        run(&mut context, 0, 0, &tokens(1, 70));
        let said = greedy(&mut context, 0, 70, 65, 100);
        let mut last = 65_u32;
        for token in said {
            assert_eq!(Some(token), after[last as usize], "{weights:?}");
            last = token;
        }
    }
}

#[test]
fn prompts_and_running_text_mix() {
    let recipe = peaked();
    let (model, after) = (model(&recipe), recipe.successors());
    let mut context = context(&model);
    for sequence in 0..4 {
        run(&mut context, sequence, 0, &tokens(sequence, 10));
    }
    let mut batch: Vec<Row> = (0..4)
        .map(|sequence| Row { sequence, position: 10, token: 40 + sequence, want_logits: true })
        .collect();
    batch.extend(rows(4, 0, &tokens(9, 50)));
    batch.extend(rows(5, 0, &tokens(10, 50)));
    assert_eq!(context.decode(&batch).expect("sound"), Outcome::Ok);
    for (number, row) in batch.iter().enumerate() {
        let logits = context.logits(number);
        assert_eq!(logits.is_some(), row.want_logits);
        if let Some(logits) = logits {
            assert_eq!(logits.len(), 320);
            assert_eq!(Some(best(logits)), after[row.token as usize]);
        }
    }
    assert_eq!(context.logits(batch.len()), None);
}

#[test]
fn the_same_batch_gives_the_same_logits() {
    let model = random();
    let prompt = tokens(3, 100);
    let (mut one, mut two) = (context(&model), context(&model));
    assert_eq!(run(&mut one, 0, 0, &prompt), run(&mut two, 7, 0, &prompt));
    let other = run(&mut two, 1, 0, &tokens(4, 100));
    assert_ne!(other, run(&mut one, 1, 0, &prompt), "a random model depends on its prompt");
}

/// A model that is slow enough to be caught at work: a step of 512 rows in parts of 16.
fn slow() -> Context {
    let shape = Shape { layers: 4, width: 256, heads: 4, shared_heads: 2, inner: 512, vocabulary: 512 };
    let settings = Settings { cells: 1024, rows: 512, tile: 16, ..settings() };
    Context::new(&model(&Recipe { shape, ..Recipe::default() }), settings).expect("small")
}

/// What becomes of `batch` while another thread waits to end it.
fn ended(context: &mut Context, batch: &[Row]) -> Outcome {
    let (handle, done, ready) = (context.abort_handle(), AtomicBool::new(false), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ready.wait();
            while !handle.abort() && !done.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        ready.wait();
        let outcome = context.decode(batch).expect("sound");
        done.store(true, Ordering::Relaxed);
        outcome
    })
}

#[test]
fn an_ended_step_leaves_finished_work_and_says_so() {
    let mut context = slow();
    assert!(!context.abort_handle().abort(), "no step runs");
    run(&mut context, 0, 0, &tokens(1, 20));
    // Whoever ends the step must find it running; on a busy machine that takes more than one try.
    let mut outcome = Outcome::Ok;
    for _ in 0..50 {
        context.drop_seq(1).expect("1 is an id");
        outcome = ended(&mut context, &rows(1, 0, &tokens(2, 512)));
        if outcome == Outcome::Aborted {
            break;
        }
    }
    assert_eq!(outcome, Outcome::Aborted);
    assert_eq!(context.logits(511), None);
    assert_eq!(context.held(0), Ok(Some((0, 19))), "another sequence is untouched");
    // Only whole parts stay, and what stays is what was computed.
    let kept = context.held(1).expect("1 is an id").map_or(0, |(_, last)| last + 1);
    assert!(kept < 512 && kept.is_multiple_of(16), "{kept} positions are held");
    // The abort meant that step only: the same prompt is finished by the next.
    let prompt = tokens(2, 512);
    let rest = run(&mut context, 1, kept, &prompt[kept as usize..]);
    context.drop_seq(1).expect("1 is an id");
    context.drop_seq(0).expect("0 is an id");
    let whole = run(&mut context, 1, 0, &prompt);
    let apart = whole.iter().zip(&rest).map(|(a, b)| (a - b).abs()).fold(0_f32, f32::max);
    assert!(apart < 0.3, "logits moved by {apart}");
}

#[test]
fn threads_can_change_between_steps() {
    let recipe = peaked();
    let (model, after) = (model(&recipe), recipe.successors());
    let mut context = context(&model);
    let mut position = 0;
    for count in [1, 2, 3, 1] {
        let count = std::num::NonZeroU32::new(count).expect("at least one");
        context.set_threads(firsttoken_llama::Threads::new(count)).expect("few");
        let logits = run(&mut context, 0, position, &tokens(5, 20));
        assert_eq!(Some(best(&logits)), after[tokens(5, 20)[19] as usize]);
        position += 20;
    }
}

#[test]
fn contexts_of_one_model_run_beside_each_other() {
    let recipe = peaked();
    let (model, after) = (model(&recipe), recipe.successors());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (model, after) = (model.clone(), &after);
            scope.spawn(move || {
                let mut context = context(&model);
                run(&mut context, 0, 0, &tokens(thread, 64));
                let said = greedy(&mut context, 0, 64, 70 + thread, 20);
                assert_eq!(Some(said[0]), after[70 + thread as usize]);
                assert_eq!(Some(said[19]), after[said[18] as usize]);
            });
        }
        // The models' owner may go first.
        drop(model);
    });
}

#[test]
fn contexts_share_threads_and_outlive_each_other() {
    let recipe = peaked();
    let (model, after) = (model(&recipe), recipe.successors());
    let mut first = context(&model);
    let mut second = context(&model);
    second.share_threads(&first);
    // In turns, …
    for position in 0..4 {
        for context in [&mut first, &mut second] {
            let logits = run(context, 0, position, &[position + 40]);
            assert_eq!(Some(best(&logits)), after[position as usize + 40]);
        }
    }
    // … and where both want to at once, one waits.
    std::thread::scope(|scope| {
        for context in [&mut first, &mut second] {
            let after = &after;
            scope.spawn(move || {
                let said = greedy(context, 0, 4, 70, 20);
                assert_eq!(Some(said[0]), after[70]);
                assert_eq!(Some(said[19]), after[said[18] as usize]);
            });
        }
    });
    drop(first);
    let logits = run(&mut second, 1, 0, &[33]);
    assert_eq!(Some(best(&logits)), after[33]);
}
