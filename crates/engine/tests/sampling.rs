//! Sampling by what comes out: filters on distributions that can be worked out by hand, draws against
//! the distribution they should have, and scores that no healthy model gives.

use firsttoken_engine::sample::{Invalid, Mask, Random, Sampler, Sampling, Scratch, logprobs};
use firsttoken_logic::engine::ids::Token;
use proptest::prelude::*;

/// Scores of tokens that have these probabilities.
fn logits(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|probability| probability.ln()).collect()
}

fn target(sampling: &Sampling, logits: &[f32], mask: Option<Mask<'_>>) -> Vec<f32> {
    Sampler::new(sampling.clone(), &[]).target(&mut Scratch::default(), logits, mask)
}

fn close(a: &[f32], b: &[f32]) {
    let far = a.iter().zip(b).any(|(a, b)| (a - b).abs() > 1e-5);
    assert!(!far && a.len() == b.len(), "{a:?} instead of {b:?}");
}

/// The sum of squared errors of so many draws, each by what was expected (Pearson 1900).
fn chi_square(target: &[f32], draws: u32, mut draw: impl FnMut() -> Token) -> f64 {
    let mut seen = vec![0_u32; target.len()];
    (0..draws).for_each(|_| seen[draw() as usize] += 1);
    let errors = seen.iter().zip(target).map(|(&seen, &target)| {
        let expected = f64::from(target) * f64::from(draws);
        if target == 0.0 {
            assert_eq!(seen, 0, "what is impossible is never drawn");
            return 0.0;
        }
        (f64::from(seen) - expected).powi(2) / expected
    });
    errors.sum()
}

const MODEL: [f32; 6] = [0.05, 0.4, 0.25, 0.2, 0.0999, 0.0001];

#[test]
fn each_filter_leaves_what_its_definition_says() {
    let (scores, default) = (logits(&MODEL), Sampling::default());
    close(&target(&default, &scores, None), &MODEL);
    let top_k = Sampling { top_k: 2, ..default.clone() };
    close(&target(&top_k, &scores, None), &[0.0, 0.4 / 0.65, 0.25 / 0.65, 0.0, 0.0, 0.0]);
    let top_p = Sampling { top_p: 0.7, ..default.clone() };
    close(&target(&top_p, &scores, None), &[0.0, 0.4 / 0.85, 0.25 / 0.85, 0.2 / 0.85, 0.0, 0.0]);
    let min_p = Sampling { min_p: 0.45, ..default.clone() };
    close(&target(&min_p, &scores, None), &[0.0, 0.4 / 0.85, 0.25 / 0.85, 0.2 / 0.85, 0.0, 0.0]);
    // Heat comes last: what the filters leave does not depend on it.
    let hot = Sampling { top_k: 2, temperature: 0.5, ..default.clone() };
    let squares = [0.16 / (0.16 + 0.0625), 0.0625 / (0.16 + 0.0625)];
    close(&target(&hot, &scores, None), &[0.0, squares[0], squares[1], 0.0, 0.0, 0.0]);
    let greedy = Sampling { temperature: 0.0, ..default.clone() };
    close(&target(&greedy, &scores, None), &[0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    let biased = Sampling { bias: vec![(1, f32::NEG_INFINITY), (0, 1.0)], temperature: 0.0, ..default };
    close(&target(&biased, &scores, None), &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    close(&target(&greedy, &scores, Some(Mask(&[0b110001]))), &[0.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn a_nucleus_of_hundreds_is_found_whole() {
    let scores: Vec<f32> = (0..5000_u16).map(|at| -f32::from(at % 1000) / 1000.0).collect();
    let kept = target(&Sampling { top_p: 0.5, ..Sampling::default() }, &scores, None);
    let whole = target(&Sampling::default(), &scores, None);
    let share: f32 = whole.iter().zip(&kept).filter(|(_, kept)| **kept > 0.0).map(|(whole, _)| whole).sum();
    assert!((0.5..0.501).contains(&share), "{share}");
    let least = scores.iter().zip(&kept).filter(|(_, kept)| **kept > 0.0).map(|(score, _)| *score);
    let least = least.fold(f32::INFINITY, f32::min);
    let better = scores.iter().zip(&kept).all(|(score, kept)| *score <= least || *kept > 0.0);
    assert!(better, "nothing better than what is kept was left out");
}

#[test]
fn draws_have_the_distribution_of_the_target() {
    let cases = [
        Sampling::default(),
        Sampling { temperature: 1.7, ..Sampling::default() },
        Sampling { temperature: 0.6, top_p: 0.9, ..Sampling::default() },
        Sampling { top_k: 4, min_p: 0.1, ..Sampling::default() },
    ];
    for (seed, sampling) in (1..).zip(cases) {
        let scores = logits(&MODEL);
        let (mut scratch, mut sampler) =
            (Scratch::default(), Sampler::new(Sampling { seed, ..sampling.clone() }, &[]));
        let wanted = target(&sampling, &scores, None);
        let error =
            chi_square(&wanted, 50_000, || sampler.sample(&mut scratch, &scores, None).expect("one is left"));
        // Five degrees of freedom: beyond 25.7 lies one of ten thousand.
        assert!(error < 25.7, "{sampling:?}: {error}");
    }
}

/// Probabilities of a hundred and fifty tokens, more or less those of `seed` zero.
fn similar(seed: u64, change: f32) -> Vec<f32> {
    let (mut own, mut other) = (Random::new(0), Random::new(seed));
    let weights: Vec<f32> =
        (0..150).map(|_| (own.uniform().powi(4) + 0.01) * (1.0 + change * (other.uniform() - 0.5))).collect();
    let sum: f32 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

#[test]
fn guesses_of_a_similar_model_are_mostly_right_and_change_nothing() {
    for (seed, change) in [(11, 0.0), (12, 0.4), (13, 1.0), (14, 1.9)] {
        let (model, drafted) = (similar(0, 0.0), similar(seed, change));
        let (scores, drafts) = (logits(&model), logits(&drafted));
        let sampling = Sampling { seed, ..Sampling::default() };
        let (mut scratch, mut sampler) = (Scratch::default(), Sampler::new(sampling.clone(), &[]));
        let (mut right, draws) = (0_u32, 50_000);
        let error = chi_square(&model, draws, || {
            let guess = sampler.guess(&mut scratch, &drafts, 0);
            let token = sampler.sample(&mut scratch, &scores, None);
            right += u32::from(guess == token);
            token.expect("one is left")
        });
        // 149 degrees of freedom: beyond 221 lies one of ten thousand.
        assert!(error < 221.0, "{error}");
        let distance: f32 = model.iter().zip(&drafted).map(|(a, b)| (a - b).abs() / 2.0).sum();
        let (share, least) =
            (f64::from(right) / f64::from(draws), f64::from((1.0 - distance) / (1.0 + distance)));
        assert!(share > least - 0.005, "{share:.3} of them right, at a distance of {distance:.3}");
        // What is guessed for the third token is what the third draw will be.
        let mut sampler = Sampler::new(sampling, &[]);
        let guess = sampler.guess(&mut scratch, &scores, 2);
        let drawn = [(); 3].map(|()| sampler.sample(&mut scratch, &scores, None));
        assert_eq!(guess, drawn[2]);
    }
}

#[test]
fn a_seed_says_it_all() {
    let draws = |seed, scratch: &mut Scratch| {
        let mut sampler = Sampler::new(Sampling { seed, top_p: 0.99, ..Sampling::default() }, &[]);
        (0..64).map(|_| sampler.sample(scratch, &logits(&MODEL), None)).collect::<Vec<_>>()
    };
    let mut scratch = Scratch::default();
    let first = draws(5, &mut scratch);
    assert_ne!(first, draws(6, &mut scratch));
    assert_eq!(first, draws(5, &mut scratch), "and used room says nothing");
}

#[test]
fn penalties_follow_what_is_accepted() {
    let sampling = Sampling { frequency_penalty: 1.0, temperature: 0.0, ..Sampling::default() };
    let (mut scratch, mut sampler) = (Scratch::default(), Sampler::new(sampling, &[0, 0, 0]));
    let text: Vec<_> = (0..6)
        .filter_map(|_| {
            let token = sampler.sample(&mut scratch, &[3.0, 2.5, 1.0], None)?;
            sampler.accept(token);
            Some(token)
        })
        .collect();
    assert_eq!(text, [0, 1, 0, 1, 0, 2], "the prompt costs nothing, and ties go to the lower token");
}

#[test]
fn sick_scores_are_not_chosen() {
    let (mut scratch, mut sampler) = (Scratch::default(), Sampler::new(Sampling::default(), &[]));
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    assert_eq!(sampler.sample(&mut scratch, &[nan, 1.0, -inf], None), Some(1));
    assert_eq!(sampler.sample(&mut scratch, &[5.0, inf, nan], None), Some(1));
    assert_eq!(sampler.sample(&mut scratch, &[nan, nan], None), None);
    assert_eq!(sampler.sample(&mut scratch, &[-inf, -inf], None), None);
    assert_eq!(sampler.sample(&mut scratch, &[], None), None);
    assert_eq!(sampler.sample(&mut scratch, &[1.0, 2.0], Some(Mask(&[0]))), None);
    let mut greedy = Sampler::new(Sampling { temperature: 0.0, ..Sampling::default() }, &[]);
    assert_eq!(greedy.sample(&mut scratch, &[nan, inf, 1.0], None), Some(1));
}

#[test]
fn logprobs_are_the_models_own() {
    let mut top = Vec::new();
    let logprob = logprobs(&logits(&MODEL), 4, 3, &mut top);
    assert!((logprob - MODEL[4].ln()).abs() < 1e-4);
    assert_eq!(top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2, 3]);
    close(&top.iter().map(|(_, logprob)| logprob.exp()).collect::<Vec<_>>(), &[0.4, 0.25, 0.2]);
    logprobs(&[f32::NAN, 2.0, 2.0], 1, 5, &mut top);
    assert_eq!(top.len(), 2, "no more than there are");
    logprobs(&[1.0, 2.0], 1, 0, &mut top);
    assert!(top.is_empty());
}

#[test]
fn numbers_out_of_range_are_named() {
    let refused = |sampling: Sampling| sampling.check(10).map_err(|error| error.to_string());
    let default = Sampling::default();
    assert_eq!(refused(default.clone()), Ok(()));
    assert_eq!(
        refused(Sampling { temperature: -1.0, ..default.clone() }),
        Err("temperature is -1, but must be zero or more".to_owned())
    );
    assert!(refused(Sampling { temperature: f32::NAN, ..default.clone() }).is_err());
    assert!(refused(Sampling { top_p: 0.0, ..default.clone() }).is_err());
    assert!(refused(Sampling { frequency_penalty: f32::INFINITY, ..default.clone() }).is_err());
    let bias = Sampling { bias: vec![(10, 1.0)], ..default };
    assert_eq!(bias.check(10), Err(Invalid::Bias { token: 10, last: 9 }));
}

/// Any score at all, sick ones among them.
fn score() -> impl Strategy<Value = f32> {
    let sick =
        prop::sample::select(vec![f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 0.0]);
    prop_oneof![8 => -50.0_f32..50.0, 1 => sick]
}

proptest! {
    #[test]
    fn a_target_adds_up_to_one_or_to_nothing(
        scores in prop::collection::vec(score(), 1..300),
        (temperature, top_k, top_p, min_p) in (0.0_f32..3.0, 0..40_u32, 0.01_f32..=1.0, 0.0_f32..=1.0),
        (repetition_penalty, seed, words) in (0.5_f32..2.0, any::<u64>(), prop::collection::vec(any::<u32>(), 10)),
    ) {
        let sampling = Sampling { temperature, top_k, top_p, min_p, repetition_penalty, seed, ..Sampling::default() };
        let mask = Mask(&words);
        let possible = (0..).zip(&scores).any(|(token, score)| {
            mask.allows(token) && !score.is_nan() && *score > f32::NEG_INFINITY
        });
        let mut random = Random::new(seed);
        let prompt: Vec<Token> = (0..20).map(|_| u32::try_from(random.next_u64() % 300).unwrap()).collect();
        let (mut scratch, mut sampler) = (Scratch::default(), Sampler::new(sampling, &prompt));
        let target = sampler.target(&mut scratch, &scores, Some(mask));
        let sum: f32 = target.iter().sum();
        prop_assert!(!possible && sum == 0.0 || (sum - 1.0).abs() < 1e-3, "{sum}");
        let drawn = sampler.sample(&mut scratch, &scores, Some(mask));
        prop_assert_eq!(drawn.is_some(), possible);
        prop_assert!(drawn.is_none_or(|token| target[token as usize] > 0.0));
    }
}
