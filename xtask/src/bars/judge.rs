//! From the figures of all rounds to a verdict.
//!
//! A ratio is formed within a round, where both arms met the same machine, and judged by the median
//! over the rounds with its order-statistic interval: no distribution is assumed and nothing is left
//! out. The peer against itself is judged alike; where that is not near 1, neither is anything else.
//!
//! Invariant: pure. The same figures give the same verdict.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::table::Bar;

/// Where the peer against itself must lie for a ratio to mean anything.
const EQUAL: std::ops::RangeInclusive<f64> = 0.85..=1.18;
/// What the interval must cover.
const CONFIDENCE: f64 = 0.95;

/// Who was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Arm {
    /// Our gateway.
    Ours,
    /// The peer of the gateway.
    Nginx,
    /// Another process of the same peer.
    Again,
    /// Nothing between client and mock: the floor of the rig.
    Direct,
    /// The peer of the engine, as it comes.
    Llama,
    /// The same, tuned by hand for the case.
    Tuned,
    /// Our engine with an empty cache, and without a draft.
    Clean,
}

/// Beside whom a ratio is formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// nginx, the gateway's.
    Nginx,
    /// llama-server, the engine's.
    Llama,
    /// llama-server with options for the case.
    Tuned,
    /// Our own engine with an empty cache.
    Clean,
    /// Our own engine without a draft.
    NoDraft,
}

impl Peer {
    /// Who is below the line of a ratio.
    const fn arm(self) -> Arm {
        match self {
            Self::Nginx => Arm::Nginx,
            Self::Llama => Arm::Llama,
            Self::Tuned => Arm::Tuned,
            Self::Clean | Self::NoDraft => Arm::Clean,
        }
    }

    /// Whose equal [`Arm::Again`] is: the peer as it comes.
    pub(super) const fn equal(self) -> Self {
        match self {
            Self::Tuned => Self::Llama,
            peer => peer,
        }
    }

    /// As readers know it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Llama => "llama-server",
            Self::Tuned => "llama-server tuned",
            Self::Clean => "an empty cache",
            Self::NoDraft => "no draft",
        }
    }

    /// A 99th percentile of fewer samples an arm is no percentile. A stream of an engine that stands still
    /// for seconds says few tokens meanwhile: there a p99 is about the longest gap, and meant so.
    const fn samples_min(self) -> f64 {
        match self {
            Self::Nginx => 2_000.0,
            Self::Llama | Self::Tuned | Self::Clean | Self::NoDraft => 20.0,
        }
    }
}

/// One round: a report per arm.
pub(super) type Round = BTreeMap<Arm, Value>;

/// How figures become a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Judge {
    /// Median over the rounds of ours ÷ peer, at most `max`; without one it is only reported.
    Ratio { max: Option<f64> },
    /// The interval of that median reaches 1, and ends at most at `max`.
    Parity { max: f64 },
    /// Our figure alone, at most `max`.
    Plain { fold: Fold, max: f64 },
}

/// How the plain figures of several rounds become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// The middle one.
    Median,
    /// The largest.
    Worst,
    /// All together.
    Sum,
    /// Each is a list of samples: the 99th percentile of all.
    Pooled99,
}

/// What is said in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// The promise is kept.
    #[serde(rename = "holds")]
    Holds,
    /// It is not.
    #[serde(rename = "falls short")]
    FallsShort,
    /// The measurement does not allow a verdict.
    #[serde(rename = "unresolved")]
    Unresolved,
    /// There is no bar.
    #[serde(rename = "reported")]
    Reported,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::FallsShort => "falls short",
            Self::Unresolved => "unresolved",
            Self::Reported => "reported",
        })
    }
}

/// A median and the interval around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Paired {
    /// Median over the rounds.
    pub(super) median: f64,
    /// 95 % interval (fewer than six rounds: their range, which covers less).
    pub(super) interval: (f64, f64),
}

/// The outcome of one bar.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// The figure that is judged: a ratio, or our plain figure.
    pub(super) figure: Option<f64>,
    /// Around a ratio.
    pub(super) interval: Option<(f64, f64)>,
    /// The peer against itself.
    pub(super) again: Option<Paired>,
    /// The ratio after the floor of the rig has been taken off both.
    pub(super) net: Option<f64>,
    /// Per arm, in the bar's own unit.
    pub(super) arms: BTreeMap<Arm, f64>,
    /// What is said; `None` if we were not measured.
    pub(super) verdict: Option<Verdict>,
    /// Why the verdict is not what the figure alone would say.
    pub(super) note: Option<String>,
}

/// Judges one bar by all rounds of its scenario.
pub(super) fn judge(bar: &Bar, rounds: &[Round]) -> Outcome {
    match bar.judge {
        Judge::Ratio { max } => judge_ratio(bar, rounds, max, |ours, max| ours.median <= max),
        Judge::Parity { max } => {
            judge_ratio(bar, rounds, Some(max), |ours, max| ours.interval.0 <= 1.0 && ours.interval.1 <= max)
        }
        Judge::Plain { fold, max } => judge_plain(bar, rounds, fold, max),
    }
}

fn judge_ratio(
    bar: &Bar,
    rounds: &[Round],
    max: Option<f64>,
    holds: impl Fn(Paired, f64) -> bool,
) -> Outcome {
    let peer = bar.peer.arm();
    let at = |round: &Round, arm| number(round, arm, bar.figure);
    let ratios = |top, bottom| {
        let one = |r| Some(at(r, top)? / at(r, bottom).filter(|x| *x > 0.0)?);
        paired(&rounds.iter().filter_map(one).collect::<Vec<_>>())
    };
    let ours = ratios(Arm::Ours, peer);
    let again = ratios(Arm::Again, bar.peer.equal().arm());
    let net = |r: &Round| {
        let floor = at(r, Arm::Direct)?;
        Some((at(r, Arm::Ours)? - floor) / Some(at(r, peer)? - floor).filter(|x| *x > 0.0)?)
    };
    let arms = [Arm::Ours, peer, Arm::Again, Arm::Direct];
    let of_arm = |arm| Some((arm, median(&rounds.iter().filter_map(|r| at(r, arm)).collect::<Vec<_>>())?));
    let note = problem(bar, rounds, &arms);
    let equal = again.is_some_and(|a| EQUAL.contains(&a.median));
    let verdict = match (max, ours) {
        (None, Some(_)) => Some(Verdict::Reported),
        (Some(_), Some(_)) if !equal || note.is_some() => Some(Verdict::Unresolved),
        (Some(max), Some(ours)) if holds(ours, max) => Some(Verdict::Holds),
        // The peer is not seen to be equal to itself, either.
        (Some(max), Some(ours))
            if matches!(bar.judge, Judge::Parity { .. })
                && ours.interval.0 <= 1.0
                && again.is_some_and(|again| !holds(again, max)) =>
        {
            Some(Verdict::Unresolved)
        }
        (Some(_), Some(_)) => Some(Verdict::FallsShort),
        (_, None) if rounds.iter().any(|r| r.contains_key(&Arm::Ours)) => Some(Verdict::Unresolved),
        (_, None) => None,
    };
    Outcome {
        figure: ours.map(|p| p.median),
        interval: ours.map(|p| p.interval),
        again,
        net: median(&rounds.iter().filter_map(net).collect::<Vec<_>>()),
        arms: arms.into_iter().filter_map(of_arm).collect(),
        verdict,
        note,
    }
}

fn judge_plain(bar: &Bar, rounds: &[Round], fold: Fold, max: f64) -> Outcome {
    let of_arm = |arm| Some((arm, folded(bar.figure, rounds, arm, fold)?));
    let arms: BTreeMap<Arm, f64> =
        [Arm::Ours, bar.peer.arm(), Arm::Again, Arm::Direct].into_iter().filter_map(of_arm).collect();
    let figure = arms.get(&Arm::Ours).copied();
    let note = problem(bar, rounds, &[Arm::Ours]);
    let measured = rounds.iter().any(|r| r.contains_key(&Arm::Ours));
    let verdict = match figure {
        Some(figure) if figure > max => Some(Verdict::FallsShort),
        Some(_) if note.is_none() => Some(Verdict::Holds),
        _ if measured => Some(Verdict::Unresolved),
        _ => None,
    };
    Outcome { figure, arms, verdict, note, ..Outcome::default() }
}

/// What makes these rounds no basis for a verdict.
fn problem(bar: &Bar, rounds: &[Round], arms: &[Arm]) -> Option<String> {
    for arm in arms {
        let reports = || rounds.iter().filter_map(|r| r.get(arm));
        let sum = |pointer: &str| reports().filter_map(|v| v.pointer(pointer)?.as_f64()).sum::<f64>();
        let name = format!("{arm:?}").to_lowercase();
        if sum("/failed") > 0.0 {
            return Some(format!("{name}: {} requests failed", sum("/failed")));
        }
        if let Some(error) = reports().find_map(|v| v.pointer("/problem")?.as_str()) {
            return Some(format!("{name}: {error}"));
        }
        let samples = bar.figure.strip_suffix("/p99").map(|p| sum(&format!("{p}/n")));
        if reports().next().is_some() && samples.is_some_and(|n| n < bar.peer.samples_min()) {
            return Some(format!("{name}: {} samples are too few for a p99", samples.unwrap_or(0.0)));
        }
    }
    None
}

fn folded(pointer: &str, rounds: &[Round], arm: Arm, fold: Fold) -> Option<f64> {
    if fold == Fold::Pooled99 {
        let lists = rounds.iter().filter_map(|r| r.get(&arm)?.pointer(pointer)?.as_array());
        let mut all: Vec<f64> = lists.flatten().filter_map(Value::as_f64).collect();
        all.sort_by(f64::total_cmp);
        return all.get((all.len() * 99).div_ceil(100).checked_sub(1)?).copied();
    }
    let all: Vec<f64> = rounds.iter().filter_map(|r| number(r, arm, pointer)).collect();
    match fold {
        Fold::Median => median(&all),
        Fold::Worst => all.into_iter().reduce(f64::max),
        Fold::Sum | Fold::Pooled99 => (!all.is_empty()).then(|| all.iter().sum()),
    }
}

fn number(round: &Round, arm: Arm, pointer: &str) -> Option<f64> {
    round.get(&arm)?.pointer(pointer)?.as_f64()
}

/// The middle; the mean of the two middle ones of an even number.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let (low, high) = (v.get(v.len().checked_sub(1)? / 2)?, v.get(v.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// The median and the narrowest pair of order statistics that covers it with the wanted confidence.
pub(super) fn paired(values: &[f64]) -> Option<Paired> {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let (n, median) = (v.len(), median(values)?);
    // P(the median lies below the k-th smallest) = P(Bin(n, 1/2) < k).
    let (mut below, mut term, mut k) = (0.0, 0.5_f64.powi(i32::try_from(n).ok()?), 0);
    while 2.0 * (below + term) <= 1.0 - CONFIDENCE {
        below += term;
        term *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
    let k = k.max(1);
    Some(Paired { median, interval: (v[k - 1], v[n - k]) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bar(judge: Judge, figure: &'static str) -> Bar {
        let (name, what) = ("x".into(), "x".into());
        Bar { name, what, scenario: "x", figure, unit: "µs", judge, peer: Peer::Nginx }
    }

    /// Rounds on a machine that becomes slower and slower: the pairs see through it.
    fn rounds(ours: f64, again: f64) -> Vec<Round> {
        let arm = |us: f64| json!({ "failed": 0, "d": { "p99": us, "n": 400 } });
        (1..=7)
            .map(|drift| {
                let d = f64::from(drift) * 100.0;
                let arms = [(Arm::Ours, ours), (Arm::Nginx, 1.0), (Arm::Again, again), (Arm::Direct, 0.5)];
                arms.into_iter().map(|(a, x)| (a, arm(x * d))).collect()
            })
            .collect()
    }

    #[test]
    fn the_interval_is_the_narrowest_that_covers() {
        // The usual table: 6 → 1st and 6th, 9 → 2nd and 8th, 20 → 6th and 15th.
        for (n, low, high) in [(6, 1, 6), (7, 1, 7), (9, 2, 8), (20, 6, 15)] {
            let values: Vec<f64> = (1..=n).rev().map(f64::from).collect();
            let got = paired(&values).unwrap();
            assert_eq!(got.interval, (f64::from(low), f64::from(high)), "{n}");
        }
        assert_eq!(paired(&[3.0, 1.0]).unwrap(), Paired { median: 2.0, interval: (1.0, 3.0) });
        assert!(paired(&[]).is_none());
    }

    #[test]
    fn a_ratio_holds_falls_short_or_stays_open() {
        let verdict =
            |ours, again, max| judge(&bar(Judge::Ratio { max }, "/d/p99"), &rounds(ours, again)).verdict;
        assert_eq!(verdict(1.3, 1.0, Some(1.3)), Some(Verdict::Holds));
        assert_eq!(verdict(1.4, 1.0, Some(1.3)), Some(Verdict::FallsShort));
        assert_eq!(verdict(1.0, 1.3, Some(1.3)), Some(Verdict::Unresolved));
        assert_eq!(verdict(9.0, 1.0, None), Some(Verdict::Reported));
        let outcome = judge(&bar(Judge::Ratio { max: Some(1.3) }, "/d/p99"), &rounds(1.5, 1.0));
        assert_eq!((outcome.figure, outcome.net), (Some(1.5), Some(2.0)));
    }

    #[test]
    fn parity_is_an_interval_that_reaches_one() {
        let beside = |ours: &[f64], again: &[f64]| {
            let round = |(us, again): (&f64, &f64)| {
                let arms = [(Arm::Ours, *us), (Arm::Llama, 1.0), (Arm::Again, *again)];
                arms.into_iter().map(|(arm, us)| (arm, json!({ "us": us }))).collect()
            };
            let rounds: Vec<Round> = ours.iter().zip(again).map(round).collect();
            let parity = Bar { peer: Peer::Llama, ..bar(Judge::Parity { max: 1.053 }, "/us") };
            judge(&parity, &rounds).verdict
        };
        let verdict = |ours| beside(ours, &[1.0; 7]);
        assert_eq!(verdict(&[0.99, 1.01, 1.0, 1.02, 1.03, 1.0, 0.98]), Some(Verdict::Holds));
        assert_eq!(verdict(&[0.7; 7]), Some(Verdict::Holds));
        assert_eq!(verdict(&[1.01, 1.02, 1.01, 1.03, 1.02, 1.01, 1.02]), Some(Verdict::FallsShort));
        let wide = [0.9, 1.2, 1.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(verdict(&wide), Some(Verdict::FallsShort));
        assert_eq!(beside(&wide, &wide), Some(Verdict::Unresolved), "the peer differs as much from itself");
        assert_eq!(beside(&[1.2; 7], &wide), Some(Verdict::FallsShort));
    }

    #[test]
    fn failures_and_few_samples_leave_it_open() {
        let ratio = bar(Judge::Ratio { max: Some(2.0) }, "/d/p99");
        let mut failed = rounds(1.0, 1.0);
        failed[3].insert(Arm::Nginx, json!({ "failed": 2, "d": { "p99": 1.0, "n": 400 } }));
        let outcome = judge(&ratio, &failed);
        assert_eq!(outcome.verdict, Some(Verdict::Unresolved));
        assert_eq!(outcome.note.as_deref(), Some("nginx: 2 requests failed"));
        assert!(judge(&ratio, &rounds(1.0, 1.0)[..4]).note.unwrap().contains("too few"));
    }

    #[test]
    fn plain_figures_fold() {
        let round = |n: f64| Round::from([(Arm::Ours, json!({ "n": n, "list": [n, n + 1.0] }))]);
        let all = [round(1.0), round(5.0), round(3.0)];
        let figure = |fold, pointer| judge(&bar(Judge::Plain { fold, max: 5.0 }, pointer), &all);
        assert_eq!(figure(Fold::Worst, "/n").figure, Some(5.0));
        assert_eq!(figure(Fold::Worst, "/n").verdict, Some(Verdict::Holds));
        assert_eq!(figure(Fold::Median, "/n").figure, Some(3.0));
        assert_eq!(figure(Fold::Sum, "/n").verdict, Some(Verdict::FallsShort));
        assert_eq!(figure(Fold::Pooled99, "/list").figure, Some(6.0));
        assert_eq!(figure(Fold::Sum, "/not-there").verdict, Some(Verdict::Unresolved));
    }
}
