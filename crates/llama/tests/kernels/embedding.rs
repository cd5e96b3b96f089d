//! Embeddings of texts.

use std::num::NonZeroU32;

use firsttoken_llama::{Embedder, Error, Misuse, Threads};

use crate::rig::{random, tokens};

#[test]
fn a_text_has_one_embedding() {
    let model = random();
    let threads = Threads::new(NonZeroU32::MIN);
    let mut embedder = Embedder::new(&model, 100, threads).expect("small");
    let mut embed = |seed| embedder.embed(&tokens(seed, 50)).expect("sound").expect("nobody ended it");
    let (one, other, again) = (embed(1), embed(2), embed(1));
    assert_eq!(one.len(), 64);
    assert_eq!(one, again, "nothing of the text between is left");
    assert_ne!(one, other);
    assert!(one.iter().all(|value| value.is_finite()));
    assert_eq!(embedder.embed(&tokens(1, 100)).expect("sound").map(|values| values.len()), Some(64));
    assert!(matches!(embedder.embed(&[]), Err(Error::Misuse(Misuse::NoRows))));
    assert!(matches!(
        embedder.embed(&tokens(1, 101)),
        Err(Error::Misuse(Misuse::Rows { rows: 101, max: 100 }))
    ));
    assert!(matches!(embedder.embed(&[1, 320]), Err(Error::Misuse(Misuse::Token { row: 1, .. }))));
    assert!(Embedder::new(&model, 0, threads).is_err());
}
