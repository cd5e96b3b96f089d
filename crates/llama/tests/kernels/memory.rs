//! Sharing, saving, cutting back, and a memory that is full.

use firsttoken_llama::{Error, Fault, KvType, Misuse, Model, Outcome, Settings};

use crate::rig::{best, context, greedy, model, peaked, random, rows, run, settings, tokens};

/// The logits of `tail` behind `prefix`, computed alone in the same shapes.
fn alone(model: &Model, prefix: &[u32], tail: &[u32]) -> Vec<f32> {
    let mut context = context(model);
    run(&mut context, 0, 0, prefix);
    run(&mut context, 0, u32::try_from(prefix.len()).expect("short"), tail)
}

#[test]
fn a_shared_prefix_is_as_good_as_a_computed_one() {
    let model = random();
    let (prefix, tail) = (tokens(1, 96), tokens(2, 8));
    let mut context = context(&model);
    run(&mut context, 0, 0, &prefix);
    for sequence in 1..8 {
        context.share(0, sequence, 0..96).expect("the prefix is held");
        assert_eq!(context.held(sequence), Ok(Some((0, 95))));
        assert_eq!(run(&mut context, sequence, 96, &tail), alone(&model, &prefix, &tail));
    }
    // What diverges takes cells of its own; the source has not moved.
    assert_eq!(context.held(0), Ok(Some((0, 95))));
    context.drop_seq(0).expect("0 is an id");
    assert_eq!(context.held(1), Ok(Some((0, 103))));
}

#[test]
fn a_part_of_a_prefix_can_be_shared_and_continued() {
    let model = random();
    let (prefix, tail) = (tokens(1, 64), tokens(3, 8));
    let mut context = context(&model);
    run(&mut context, 0, 0, &prefix);
    run(&mut context, 0, 64, &tokens(9, 32));
    context.share(0, 1, 0..64).expect("it is held");
    assert_eq!(run(&mut context, 1, 64, &tail), alone(&model, &prefix, &tail));
    // The rest can follow where it continues.
    context.share(0, 2, 0..64).expect("it is held");
    context.share(0, 2, 64..96).expect("it continues");
    assert_eq!(context.held(2), Ok(Some((0, 95))));
}

#[test]
fn a_loaded_sequence_is_as_good_as_a_computed_one() {
    let model = random();
    let (prefix, tail) = (tokens(4, 96), tokens(5, 8));
    for kv in [KvType::F16, KvType::Q8_0] {
        let make = || firsttoken_llama::Context::new(&model, Settings { kv, ..settings() }).expect("small");
        let mut first = make();
        run(&mut first, 3, 0, &prefix);
        let mut bytes = b"rubbish".to_vec();
        first.save(3, &mut bytes).expect("it holds something");
        assert!(bytes.len() as u64 >= 96 * first.capabilities().bytes_per_token, "{} bytes", bytes.len());
        let computed = run(&mut first, 3, 96, &tail);
        // In another context, at another id, beside others.
        let mut second = make();
        run(&mut second, 0, 0, &tokens(6, 40));
        assert!(second.load(5, &bytes).expect("the bytes are sound"));
        assert_eq!(second.held(5), Ok(Some((0, 95))));
        let loaded = run(&mut second, 5, 96, &tail);
        let apart = computed.iter().zip(&loaded).map(|(a, b)| (a - b).abs()).fold(0_f32, f32::max);
        assert!(apart < 0.02, "logits moved by {apart}");
        assert_eq!(best(&computed), best(&loaded));
    }
}

#[test]
fn a_piece_is_saved_alone_and_follows_its_beginning_again() {
    let model = random();
    let (prefix, tail) = (tokens(4, 96), tokens(5, 8));
    let mut context = context(&model);
    run(&mut context, 0, 0, &prefix);
    context.share(0, 2, 67..96).expect("it is held");
    assert_eq!(context.held(2), Ok(Some((67, 95))));
    let mut bytes = Vec::new();
    context.save(2, &mut bytes).expect("it holds something");
    context.drop_seq(2).expect("2 is an id");
    assert!(context.load(3, &bytes).expect("the bytes are sound"));
    context.share(0, 4, 0..67).expect("it is held");
    context.share(3, 4, 67..96).expect("it continues");
    let pieced = run(&mut context, 4, 96, &tail);
    let apart = alone(&model, &prefix, &tail);
    let apart = apart.iter().zip(&pieced).map(|(a, b)| (a - b).abs()).fold(0_f32, f32::max);
    assert!(apart < 0.02, "logits moved by {apart}");
}

#[test]
fn only_what_was_saved_here_is_loaded() {
    let model = random();
    let mut context = context(&model);
    run(&mut context, 0, 0, &tokens(1, 20));
    let mut bytes = Vec::new();
    context.save(0, &mut bytes).expect("it holds something");
    for part in 0..64 {
        let cut = &bytes[..bytes.len() * part / 64];
        assert!(matches!(context.load(1, cut), Err(Error::Saved(_))), "cut at {part}/64");
        let mut changed = bytes.clone();
        changed[bytes.len() * part / 64] ^= 0x40;
        assert!(matches!(context.load(1, &changed), Err(Error::Saved(_))), "changed at {part}/64");
    }
    assert_eq!(context.held(1), Ok(None));
    assert!(matches!(context.load(0, &bytes), Err(Error::Misuse(Misuse::InUse { sequence: 0 }))));
    let mut other =
        crate::rig::context(&crate::rig::model(&firsttoken_synth::Recipe { seed: 2, ..Default::default() }));
    assert!(matches!(other.load(0, &bytes), Err(Error::Saved(Fault::Mismatch))));
    let eight = Settings { kv: KvType::Q8_0, ..settings() };
    let mut other = firsttoken_llama::Context::new(&model, eight).expect("small");
    assert!(matches!(other.load(0, &bytes), Err(Error::Saved(Fault::Mismatch))));
}

#[test]
fn a_sequence_can_be_cut_back() {
    let model = random();
    let (prefix, tail) = (tokens(1, 64), tokens(2, 8));
    let mut context = context(&model);
    assert!(context.capabilities().can_truncate);
    run(&mut context, 0, 0, &prefix);
    run(&mut context, 0, 64, &tokens(7, 20));
    assert_eq!(context.truncate(0, 64), Ok(true));
    assert_eq!(context.held(0), Ok(Some((0, 63))));
    assert_eq!(run(&mut context, 0, 64, &tail), alone(&model, &prefix, &tail));
    assert_eq!(context.truncate(0, 1000), Ok(true), "nothing to cut");
    assert_eq!(context.held(0), Ok(Some((0, 71))));
    assert_eq!(context.truncate(0, 0), Ok(true));
    assert_eq!(context.held(0), Ok(None));
}

#[test]
fn a_full_memory_harms_nobody() {
    let recipe = peaked();
    let (model, after) = (model(&recipe), recipe.successors());
    let mut context = context(&model);
    let cells = context.capabilities().cells;
    assert_eq!(cells, 512);
    for sequence in 0..3 {
        run(&mut context, sequence, 0, &tokens(sequence, 128));
        let _ = greedy(&mut context, sequence, 128, 33, 16);
    }
    // 432 cells are in use, and 80 free.
    let held = |context: &firsttoken_llama::Context| [0, 1, 2, 3].map(|id| context.held(id));
    let before = held(&context);
    assert_eq!(context.decode(&rows(3, 0, &tokens(8, 100))).expect("sound"), Outcome::Full);
    assert_eq!(context.logits(99), None, "a batch that was not computed has no logits");
    assert_eq!(held(&context), before);
    // Who was running goes on.
    let mut expected = vec![33_u32];
    for _ in 0..8 {
        let last = *expected.last().expect("it has one");
        expected.push(after[last as usize].expect("33 is printable"));
    }
    assert_eq!(greedy(&mut context, 1, 144, 33, 8), expected[1..]);
    // Nor is a saved sequence loaded into too few cells.
    let mut bytes = Vec::new();
    context.save(0, &mut bytes).expect("it holds something");
    assert!(!context.load(4, &bytes).expect("the bytes are sound"));
    assert_eq!(context.held(4), Ok(None));
    // With one gone, there is room, holes and all.
    context.drop_seq(1).expect("1 is an id");
    assert!(context.load(4, &bytes).expect("the bytes are sound"));
    assert_eq!(context.held(4), context.held(0));
}
