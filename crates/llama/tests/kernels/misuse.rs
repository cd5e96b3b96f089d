//! Every mistake of a caller is an error with nothing done, and the process lives.

use std::num::NonZeroU32;

use firsttoken_llama::{Context, Error, KvType, Misuse, Outcome, Row, Settings, Threads};
use firsttoken_synth::{Recipe, Shape};

use crate::rig::{context, random, rows, run, settings, tokens};

fn row(sequence: u32, position: u32, token: u32) -> Row {
    Row { sequence, position, token, want_logits: false }
}

fn refused(context: &mut Context, batch: &[Row]) -> Misuse {
    match context.decode(batch) {
        Err(Error::Misuse(misuse)) => misuse,
        other => panic!("{other:?} for {batch:?}"),
    }
}

#[test]
fn batches_that_break_a_rule() {
    let model = random();
    let mut context = context(&model);
    run(&mut context, 0, 0, &tokens(1, 10));
    let gap = |row, position, expected| Misuse::Position { row, sequence: 0, position, expected };
    assert_eq!(refused(&mut context, &[]), Misuse::NoRows);
    assert_eq!(refused(&mut context, &rows(1, 0, &tokens(1, 129))), Misuse::Rows { rows: 129, max: 128 });
    assert_eq!(refused(&mut context, &[row(8, 0, 1)]), Misuse::Sequence { sequence: 8, ids: 8 });
    assert_eq!(
        refused(&mut context, &[row(u32::MAX, 0, 1)]),
        Misuse::Sequence { sequence: u32::MAX, ids: 8 }
    );
    assert_eq!(refused(&mut context, &[row(0, 9, 1)]), gap(0, 9, 10), "again");
    assert_eq!(refused(&mut context, &[row(0, 11, 1)]), gap(0, 11, 10), "a gap");
    assert_eq!(refused(&mut context, &[row(0, 0, 1)]), gap(0, 0, 10), "from the start");
    assert_eq!(refused(&mut context, &[row(0, u32::MAX, 1)]), gap(0, u32::MAX, 10));
    assert_eq!(refused(&mut context, &[row(0, 10, 1), row(0, 10, 1)]), gap(1, 10, 11), "twice");
    assert_eq!(refused(&mut context, &[row(0, 11, 1), row(0, 10, 1)]), gap(0, 11, 10), "backwards");
    for token in [320, u32::MAX, 1 << 31] {
        let misuse = refused(&mut context, &[row(0, 10, 5), row(1, 0, token)]);
        assert_eq!(misuse, Misuse::Token { row: 1, token, vocabulary: 320 });
    }
    let greedy: Vec<Row> = (0..17).map(|at| Row { want_logits: true, ..row(1, at, 1) }).collect();
    assert_eq!(refused(&mut context, &greedy), Misuse::Outputs { outputs: 17, max: 16 });
    // Nothing of that was done, and the context works.
    assert_eq!(context.held(0), Ok(Some((0, 9))));
    assert_eq!(context.held(1), Ok(None));
    assert_eq!(context.decode(&[row(0, 10, 5)]).expect("sound"), Outcome::Ok);
    assert_eq!(context.logits(0), None, "it wanted none");
    assert_eq!(context.logits(usize::MAX), None);
}

#[test]
fn sequences_that_cannot_be() {
    let model = random();
    let mut context = context(&model);
    run(&mut context, 0, 0, &tokens(1, 10));
    run(&mut context, 1, 0, &tokens(2, 10));
    let unknown = Err(Misuse::Sequence { sequence: 8, ids: 8 });
    assert_eq!(context.held(8), unknown.map(|()| None));
    assert_eq!(context.truncate(8, 0), unknown.map(|()| true));
    assert_eq!(context.drop_seq(8), unknown);
    assert!(context.save(8, &mut Vec::new()).is_err());
    assert!(context.load(8, &[]).is_err());
    let mut bytes = vec![1];
    assert!(matches!(context.save(5, &mut bytes), Err(Error::Misuse(Misuse::Empty { sequence: 5 }))));
    let impossible = [
        (0, 0, 0..5),
        (0, 2, 0..11),
        (0, 2, 0..0),
        (0, 2, 0..u32::MAX),
        (0, 1, 0..5),
        (0, 1, 5..10),
        (3, 4, 0..1),
        (8, 2, 0..5),
        (0, 8, 0..5),
    ];
    for (from, to, range) in impossible {
        assert!(context.share(from, to, range.clone()).is_err(), "{from} to {to}: {range:?}");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "that is the mistake")]
    let backwards = context.share(0, 2, 5..3);
    assert!(backwards.is_err());
    assert_eq!([0, 1, 2].map(|id| context.held(id)), [Ok(Some((0, 9))), Ok(Some((0, 9))), Ok(None)]);
    for id in [2, 2, 7] {
        context.drop_seq(id).expect("dropping nothing is no mistake");
    }
}

#[test]
fn settings_that_cannot_be() {
    let model = random();
    let base = settings();
    let crooked = [
        Settings { cells: 0, ..base },
        Settings { cells: u32::MAX, ..base },
        Settings { rows: 0, ..base },
        Settings { rows: 513, ..base },
        Settings { tile: 0, ..base },
        Settings { tile: 129, ..base },
        Settings { ids: 0, ..base },
        Settings { ids: 257, ..base },
        Settings { outputs: 0, ..base },
        Settings { outputs: 129, ..base },
        Settings { threads: Threads::new(NonZeroU32::MAX), ..base },
    ];
    for settings in crooked {
        let made = Context::new(&model, settings);
        assert!(matches!(made, Err(Error::Misuse(Misuse::Setting { .. }))), "{settings:?} made {made:?}");
    }
    // Heads of 16 values cannot be kept in blocks of 32; that is the kernels' to say.
    let shape = Shape { heads: 4, ..Shape::NANO };
    let narrow = crate::rig::model(&Recipe { shape, ..Recipe::default() });
    let made = Context::new(&narrow, Settings { kv: KvType::Q8_0, ..base }).expect_err("it cannot be made");
    assert!(matches!(made, Error::NoContext { .. }), "{made:?}");
    assert!(made.to_string().contains("block size"), "{made}");
    // The largest and the smallest that can be.
    for settings in [
        Settings { ids: 256, outputs: 128, ..base },
        Settings { ids: 256, rows: 1, tile: 1, outputs: 1, ..base },
        Settings { cells: 1, rows: 1, tile: 1, ids: 1, outputs: 1, ..base },
    ] {
        let mut context = Context::new(&model, settings).expect("these can be");
        assert_eq!(context.decode(&[row(settings.ids - 1, 0, 5)]).expect("sound"), Outcome::Ok);
    }
}

#[test]
fn every_row_may_want_logits() {
    let model = random();
    let mut context = Context::new(&model, Settings { outputs: 128, ..settings() }).expect("small");
    let batch: Vec<Row> = (0..128).map(|at| Row { want_logits: true, ..row(2, at, 40) }).collect();
    assert_eq!(context.decode(&batch).expect("sound"), Outcome::Ok);
    assert!((0..128).all(|at| context.logits(at).is_some_and(|logits| logits.len() == 320)));
}
