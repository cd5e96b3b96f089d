//! Which model answers: the best of which it is forecast that it keeps the latency budget.
//!
//! A budget steers and never cuts: where nothing fits, what comes nearest answers, and the choice says so. What is forecast
//! is the p99 ([`super::forecast`]); where it is not measured, twice the median stands in, and the standing
//! says *guessed*. Of whom nothing at all is known is not chosen while anybody is known.
//!
//! So that a model that nobody asks is not forgotten, [`EXPLORE_PER_MILLE`] of the calls *explore*: they ask one whose p99
//! is not measured, or that would be preferred if it were not too slow. Who is forecast to break the budget and
//! has just done so, within [`DOUBT_AFTER`], is known to, and not explored; nor is one whose typical time is far above it.
//! So one that stays slow costs a call once in a while, and one that has recovered is asked by the
//! full share from its first good call on. Who asks for the best is never given a lesser model to explore it.
//!
//! | goal | among those that fit |
//! |---|---|
//! | auto | the highest quality, up to what is enough for the request; then the cheapest; then the fastest |
//! | best | the highest quality; then the cheapest; then the fastest |
//! | fast | the fastest: who leaves the most of the budget |
//!
//! Invariant: someone who is allowed is chosen if there is one, and someone who is known to fit is passed over only by one
//! who is preferred, or explored.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::time::Duration;

use super::forecast::{Estimate, Forecast};

/// Calls of a thousand that explore, at most.
pub const EXPLORE_PER_MILLE: u32 = 20;
/// What was heard so long ago may have changed.
pub const DOUBT_AFTER: Duration = Duration::from_secs(30);
/// A p99 that is not measured is taken for so many medians. Most are nearly three; but who is doubted is never
/// measured, and who is trusted is, within some hundred calls of which few are late.
const TRUST: u32 = 2;
/// A typical time so many times above the budget is far above it.
const FAR: u32 = 2;

/// What a request is for, where it says no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Someone reads along.
    Chat,
    /// Someone is typing.
    Completion,
    /// Someone waits for a text.
    Summary,
    /// Nobody waits.
    Batch,
}

/// How long an answer should take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyBudget {
    /// To its first content.
    pub ttft: Option<Duration>,
    /// To its end.
    pub total: Option<Duration>,
}

impl Feature {
    /// What such a request should take.
    #[must_use]
    pub const fn budget(self) -> LatencyBudget {
        let (ttft_ms, total_s) = match self {
            Self::Chat => (500, 5),
            Self::Completion => (200, 2),
            Self::Summary => (3_000, 15),
            Self::Batch => (10_000, 60),
        };
        LatencyBudget {
            ttft: Some(Duration::from_millis(ttft_ms)),
            total: Some(Duration::from_secs(total_s)),
        }
    }
}

/// What is wanted within the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// As good as the request needs.
    #[default]
    Auto,
    /// As fast as can be.
    Fast,
    /// As good as can be.
    Best,
}

/// What a model costs, in millionths of the currency for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
}

/// A model that could answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// How good it is; more is better.
    pub quality: u32,
    /// What it costs.
    pub price: Price,
    /// How long it will take.
    pub forecast: Forecast,
    /// Whether its breaker and its limits have nothing against a call.
    pub allowed: bool,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What is wanted.
    pub goal: Goal,
    /// … within this.
    pub budget: LatencyBudget,
    /// More quality than this is worth nothing to the request, where the goal is `auto`.
    pub quality_enough: u32,
    /// Tokens of the prompt, about.
    pub input_tokens: u32,
    /// Tokens of the answer, about.
    pub output_tokens: u32,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            goal: Goal::Auto,
            budget: LatencyBudget::default(),
            quality_enough: u32::MAX,
            input_tokens: 1_000,
            output_tokens: 300,
        }
    }
}

/// One of the times that a budget is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// To the first content.
    Ttft,
    /// To the end.
    Total,
}

/// A forecast beside its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Against {
    /// Which time: of several that which leaves the least.
    pub time: Time,
    /// Its forecast.
    pub p99: Duration,
    /// Whether that is a guess by the median or by the configuration.
    pub guessed: bool,
    /// What it should be.
    pub budget: Duration,
}

/// How a model stands to the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is no budget.
    Unbound,
    /// It keeps it.
    Fits(Against),
    /// It does not.
    Breaks(Against),
    /// This time is not known at all.
    Unknown(Time),
}

/// Why a model was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Of those that fit it is what the goal prefers.
    Preferred,
    /// Nothing fits, and it comes nearest.
    NothingFits,
    /// Nothing is known of anybody, and it is the first.
    NothingKnown,
    /// All are left alone by their breakers or limits; they steer and do not refuse.
    NobodyAllowed,
    /// To find out how it is by now, in place of the one at this index.
    Explores(usize),
}

/// Who answers, and who does if that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Indices of all candidates: who is asked first, and those behind it.
    pub order: Vec<usize>,
    /// Why the first one is.
    pub why: Why,
    /// How each candidate stands, in their own order.
    pub standings: Vec<Standing>,
}

/// Chooses. `chance_per_mille`, below a thousand and random, says whether this call may explore. `None` where there is
/// nobody.
#[must_use]
pub fn route(candidates: &[Candidate], ask: &Ask, chance_per_mille: u32) -> Option<Choice> {
    let seen: Vec<Seen<'_>> =
        candidates.iter().enumerate().map(|(at, candidate)| Seen::new(at, candidate, ask)).collect();
    let mut order: Vec<&Seen<'_>> = seen.iter().collect();
    // Stable: who is alike stays in the order of the configuration.
    order.sort_by(|a, b| b.candidate.allowed.cmp(&a.candidate.allowed).then_with(|| a.compare(b, ask)));
    let first = *order.first()?;
    let mut why = match first.standing {
        _ if !first.candidate.allowed => Why::NobodyAllowed,
        Standing::Unbound | Standing::Fits(_) => Why::Preferred,
        Standing::Breaks(_) => Why::NothingFits,
        Standing::Unknown(_) => Why::NothingKnown,
    };
    if chance_per_mille < EXPLORE_PER_MILLE && first.candidate.allowed {
        let worth = order.iter().filter(|other| other.is_worth_a_look(first, ask));
        // Of whom the last was heard the longest ago, or nothing.
        let longest = worth.max_by_key(|other| other.unheard_for(ask)).map(|other| other.at);
        if let Some(at) = longest {
            why = Why::Explores(first.at);
            order.sort_by_key(|other| other.at != at);
        }
    }
    let order = order.iter().map(|seen| seen.at).collect();
    Some(Choice { order, why, standings: seen.iter().map(|seen| seen.standing).collect() })
}

/// A candidate, as the request sees it.
struct Seen<'a> {
    at: usize,
    candidate: &'a Candidate,
    standing: Standing,
    /// The p99 as a part of the budget; without a budget the TTFT in seconds. Less is faster.
    slowness: Option<f32>,
    /// In the currency's millionths of millionths.
    cost: u64,
}

impl<'a> Seen<'a> {
    fn new(at: usize, candidate: &'a Candidate, ask: &Ask) -> Self {
        let price = candidate.price;
        let cost = price.input.saturating_mul(ask.input_tokens.into());
        let cost = cost.saturating_add(price.output.saturating_mul(ask.output_tokens.into()));
        let standing = standing(&candidate.forecast, ask.budget);
        let slowness = match standing {
            Standing::Unbound => guess(&candidate.forecast.ttft).map(|(p99, _)| p99.as_secs_f32()),
            Standing::Fits(against) | Standing::Breaks(against) => Some(against.part()),
            Standing::Unknown(_) => None,
        };
        Self { at, candidate, standing, slowness, cost }
    }

    const fn fits(&self) -> bool {
        matches!(self.standing, Standing::Unbound | Standing::Fits(_))
    }

    /// Who is asked sooner.
    fn compare(&self, other: &Self, ask: &Ask) -> Ordering {
        let slowness = |seen: &Self| seen.slowness.unwrap_or(f32::INFINITY);
        let faster = slowness(self).total_cmp(&slowness(other));
        if ask.goal == Goal::Fast {
            return faster;
        }
        let fit = other.fits().cmp(&self.fits());
        fit.then_with(|| if self.fits() { self.worse(other, ask) } else { Ordering::Equal }).then(faster)
    }

    /// Quality and cost alone: less is preferred.
    fn worse(&self, other: &Self, ask: &Ask) -> Ordering {
        let enough = if ask.goal == Goal::Auto { ask.quality_enough } else { u32::MAX };
        let quality = |seen: &Self| seen.candidate.quality.min(enough);
        quality(other).cmp(&quality(self)).then(self.cost.cmp(&other.cost))
    }

    /// Whether something is learnt by asking it in place of `first`, and nothing is spoilt that is known.
    fn is_worth_a_look(&self, first: &Self, ask: &Ask) -> bool {
        let times = || ask.times(&self.candidate.forecast);
        let breaks = times()
            .any(|(estimate, budget)| budget.is_some_and(|budget| is_known_to_break(estimate, budget)));
        if self.at == first.at || !self.candidate.allowed || breaks {
            return false;
        }
        let is_old = times().any(|(estimate, _)| estimate.basis.age.is_none_or(|age| age > DOUBT_AFTER));
        let is_guessed =
            times().any(|(estimate, _)| estimate.p99.is_none() || estimate.basis.prior.is_some());
        match (self.standing, ask.goal) {
            (Standing::Breaks(_), Goal::Auto | Goal::Best) => {
                !first.fits() || self.worse(first, ask) == Ordering::Less
            }
            (_, Goal::Auto) => is_guessed,
            (_, Goal::Best) => is_guessed && self.candidate.quality >= first.candidate.quality,
            (_, Goal::Fast) => is_guessed || is_old,
        }
    }

    /// Time since anything was heard of it.
    fn unheard_for(&self, ask: &Ask) -> Duration {
        let ages = ask.times(&self.candidate.forecast).map(|(estimate, _)| estimate.basis.age);
        ages.map(|age| age.unwrap_or(Duration::MAX)).max().unwrap_or(Duration::MAX)
    }
}

impl Ask {
    /// The times that matter, with their budgets.
    fn times<'a>(&self, forecast: &'a Forecast) -> impl Iterator<Item = (&'a Estimate, Option<Duration>)> {
        let LatencyBudget { ttft, total } = self.budget;
        let is_fast = self.goal == Goal::Fast && total.is_none();
        let ttft = (ttft.is_some() || is_fast).then_some((&forecast.ttft, ttft));
        let total = total.map(|budget| (&forecast.total, Some(budget)));
        ttft.into_iter().chain(total)
    }
}

impl Against {
    /// The forecast as a part of the budget.
    fn part(&self) -> f32 {
        self.p99.as_secs_f32() / self.budget.as_secs_f32().max(f32::MIN_POSITIVE)
    }
}

/// The p99, and whether it is guessed.
fn guess(estimate: &Estimate) -> Option<(Duration, bool)> {
    let measured = estimate.p99.filter(|_| estimate.basis.prior.is_none()).map(|p99| (p99, false));
    measured.or_else(|| estimate.p50.map(|p50| (p50.saturating_mul(TRUST), true)))
}

fn standing(forecast: &Forecast, budget: LatencyBudget) -> Standing {
    let times = [(Time::Ttft, &forecast.ttft, budget.ttft), (Time::Total, &forecast.total, budget.total)];
    let mut least: Option<Against> = None;
    for (time, estimate, budget) in times {
        let Some(budget) = budget else { continue };
        let Some((p99, guessed)) = guess(estimate) else { return Standing::Unknown(time) };
        let against = Against { time, p99, guessed, budget };
        if least.is_none_or(|least| against.part() > least.part()) {
            least = Some(against);
        }
    }
    match least {
        None => Standing::Unbound,
        Some(against) if against.p99 <= against.budget => Standing::Fits(against),
        Some(against) => Standing::Breaks(against),
    }
}

/// Whether there is no doubt that a call would not keep the budget: the last one, a moment ago, has not, or
/// what is typical is far from it.
fn is_known_to_break(estimate: &Estimate, budget: Duration) -> bool {
    let basis = estimate.basis;
    // Where calls take longer than that, what is heard is never more recent.
    let recent = estimate.p50.unwrap_or_default().saturating_mul(2).max(DOUBT_AFTER);
    let is_recent = basis.age.is_some_and(|age| age <= recent);
    let typically = basis.prior.is_some_and(|typical| typical > budget.saturating_mul(FAR));
    let lately = is_recent && basis.last.is_some_and(|last| last > budget);
    let forecast = guess(estimate).is_some_and(|(p99, _)| p99 > budget);
    typically || (forecast && lately)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::super::forecast::{Basis, TAIL};
    use super::*;

    const NEVER: u32 = EXPLORE_PER_MILLE;
    const CHAT: Ask = Ask {
        goal: Goal::Auto,
        budget: Feature::Chat.budget(),
        quality_enough: u32::MAX,
        input_tokens: 1_000,
        output_tokens: 100,
    };

    /// Known by many calls, the last of them a second ago and as long as the median.
    fn known(p50_ms: u64, p99_ms: u64) -> Estimate {
        let p50 = Duration::from_millis(p50_ms);
        let basis = Basis { calls: 1_000, age: Some(Duration::from_secs(1)), last: Some(p50), prior: None };
        Estimate { p50: Some(p50), p99: Some(Duration::from_millis(p99_ms)), basis }
    }

    fn candidate(quality: u32, price: u64, p99_ms: u64) -> Candidate {
        Candidate {
            quality,
            price: Price { input: price, output: price * 5 },
            forecast: Forecast { ttft: known(p99_ms / 3, p99_ms), total: known(1_000, 2_000) },
            allowed: true,
        }
    }

    fn poor() -> Candidate {
        candidate(1, 1, 150)
    }

    fn fair() -> Candidate {
        candidate(2, 3, 450)
    }

    fn good() -> Candidate {
        candidate(3, 15, 1_500)
    }

    fn choose(candidates: &[Candidate], ask: &Ask) -> (Vec<usize>, Why) {
        route(candidates, ask, NEVER).map(|choice| (choice.order, choice.why)).unwrap()
    }

    #[test]
    fn the_best_that_fits_answers_and_the_next_ones_stand_behind_it() {
        let all = [poor(), fair(), good()];
        assert_eq!(choose(&all, &CHAT), (vec![1, 0, 2], Why::Preferred));
        let summary = Ask { budget: Feature::Summary.budget(), ..CHAT };
        assert_eq!(choose(&all, &summary), (vec![2, 1, 0], Why::Preferred));
        let choice = route(&all, &CHAT, NEVER).unwrap();
        let against = |p99_ms| Against {
            time: Time::Ttft,
            p99: Duration::from_millis(p99_ms),
            guessed: false,
            budget: Duration::from_millis(500),
        };
        assert_eq!(choice.standings[1..], [Standing::Fits(against(450)), Standing::Breaks(against(1_500))]);
        assert_eq!(route(&[], &CHAT, NEVER), None);
    }

    #[test]
    fn the_total_counts_as_well() {
        let mut long = fair();
        long.forecast.total = known(4_000, 9_000);
        let choice = route(&[long, poor()], &CHAT, NEVER).unwrap();
        assert_eq!(choice.order, [1, 0]);
        assert!(matches!(choice.standings[0], Standing::Breaks(Against { time: Time::Total, .. })));
        let ttft_only = Ask { budget: LatencyBudget { total: None, ..CHAT.budget }, ..CHAT };
        assert_eq!(choose(&[long, poor()], &ttft_only).0, [0, 1]);
    }

    #[test]
    fn where_nothing_fits_the_nearest_answers_and_it_says_so() {
        let completion = Ask { budget: Feature::Completion.budget(), ..CHAT };
        assert_eq!(choose(&[good(), fair()], &completion), (vec![1, 0], Why::NothingFits));
    }

    #[test]
    fn without_a_budget_the_best_answers() {
        let free = Ask { budget: LatencyBudget::default(), ..CHAT };
        assert_eq!(choose(&[poor(), good(), fair()], &free), (vec![1, 2, 0], Why::Preferred));
    }

    #[test]
    fn enough_is_enough_unless_the_best_is_wanted() {
        let all = [candidate(3, 15, 400), candidate(2, 3, 450), candidate(1, 1, 100)];
        let simple = Ask { quality_enough: 2, ..CHAT };
        assert_eq!(choose(&all, &simple).0, [1, 0, 2]);
        assert_eq!(choose(&all, &Ask { goal: Goal::Best, ..simple }).0, [0, 1, 2]);
        assert_eq!(choose(&all, &Ask { goal: Goal::Fast, ..simple }).0, [2, 0, 1]);
    }

    #[test]
    fn of_equals_the_cheapest_for_this_request_answers() {
        let reads = Candidate { price: Price { input: 1, output: 100 }, ..fair() };
        let writes = Candidate { price: Price { input: 10, output: 10 }, ..fair() };
        let long_prompt = Ask { input_tokens: 100_000, ..CHAT };
        assert_eq!(choose(&[writes, reads], &long_prompt).0, [1, 0]);
        assert_eq!(choose(&[writes, reads], &Ask { output_tokens: 10_000, ..CHAT }).0, [0, 1]);
    }

    #[test]
    fn who_is_left_alone_comes_last_and_answers_where_nobody_else_does() {
        let ill = |candidate: Candidate| Candidate { allowed: false, ..candidate };
        assert_eq!(choose(&[ill(fair()), poor(), good()], &CHAT), (vec![1, 2, 0], Why::Preferred));
        assert_eq!(choose(&[ill(poor()), ill(fair())], &CHAT), (vec![1, 0], Why::NobodyAllowed));
        let choice = route(&[ill(poor()), ill(fair())], &CHAT, 0).unwrap();
        assert_eq!(choice.why, Why::NobodyAllowed, "there is nothing to find out");
    }

    #[test]
    fn a_median_stands_in_for_a_p99_and_of_whom_nothing_is_known_is_not_chosen() {
        let mut thin = good();
        thin.forecast.ttft = Estimate { p99: None, ..known(150, 0) };
        let choice = route(&[fair(), thin], &CHAT, NEVER).unwrap();
        assert_eq!(choice.order, [1, 0]);
        assert!(matches!(choice.standings[1], Standing::Fits(Against { guessed: true, .. })));
        let new = Candidate { forecast: Forecast::default(), ..good() };
        assert_eq!(choose(&[new, fair()], &CHAT), (vec![1, 0], Why::Preferred));
        let completion = Ask { budget: Feature::Completion.budget(), ..CHAT };
        assert_eq!(choose(&[new, fair()], &completion), (vec![1, 0], Why::NothingFits));
        assert_eq!(choose(&[new, new], &CHAT), (vec![0, 1], Why::NothingKnown));
    }

    #[test]
    fn who_was_never_tried_is_found_by_few_calls() {
        let new = Candidate { forecast: Forecast::default(), ..good() };
        let explored = (0..1000).filter(|chance| {
            let choice = route(&[fair(), new], &CHAT, *chance).unwrap();
            assert_eq!(choice.order == [1, 0], choice.why == Why::Explores(0));
            choice.why == Why::Explores(0)
        });
        assert_eq!(explored.count(), EXPLORE_PER_MILLE as usize);
    }

    #[test]
    fn who_has_recovered_is_found_and_who_has_not_is_asked_once_in_a_while() {
        let look = |age_s, last_ms| {
            let mut slow = good();
            slow.forecast.ttft.basis.age = Some(Duration::from_secs(age_s));
            slow.forecast.ttft.basis.last = Some(Duration::from_millis(last_ms));
            route(&[fair(), slow], &CHAT, 0).unwrap().why
        };
        assert_eq!(look(1, 1_500), Why::Preferred, "it has just shown that it is too slow");
        assert_eq!(look(31, 1_500), Why::Explores(0), "that was a while ago");
        assert_eq!(look(1, 400), Why::Explores(0), "its last call was fast enough");
    }

    #[test]
    fn who_is_typically_far_too_slow_is_not_tried_with_this_budget() {
        let typical = Duration::from_millis(1_200);
        let mut new = Candidate { forecast: Forecast::default(), ..good() };
        new.forecast.ttft =
            Estimate { p50: Some(typical), p99: Some(typical * TAIL), basis: Basis::default() };
        new.forecast.ttft.basis.prior = Some(typical);
        assert_eq!(route(&[fair(), new], &CHAT, 0).unwrap().why, Why::Preferred);
        let longer = Ask { budget: Feature::Summary.budget(), ..CHAT };
        let total = Ask { budget: LatencyBudget { total: None, ..longer.budget }, ..longer };
        assert_eq!(choose(&[fair(), new], &total).0, [1, 0], "here it has our trust");
    }

    #[test]
    fn nobody_explores_what_would_not_be_preferred() {
        let mut slow = poor();
        slow.forecast.ttft = known(450, 900);
        assert_eq!(route(&[fair(), slow], &CHAT, 0).unwrap().why, Why::Preferred, "worse, and too slow");
        let new = Candidate { forecast: Forecast::default(), ..poor() };
        assert_eq!(route(&[fair(), new], &CHAT, 0).unwrap().why, Why::Explores(0), "it may be needed");
        let best = Ask { goal: Goal::Best, ..CHAT };
        assert_eq!(route(&[fair(), new], &best, 0).unwrap().why, Why::Preferred);
    }

    fn any_estimate() -> impl Strategy<Value = Estimate> {
        let ms = || (1..20_000_u64).prop_map(Duration::from_millis);
        let basis =
            (prop::option::of(0..400_u64), ms(), prop::option::of(ms())).prop_map(|(age_s, last, prior)| {
                Basis { calls: 100, age: age_s.map(Duration::from_secs), last: age_s.map(|_| last), prior }
            });
        (prop::option::of(ms()), 1..5_u32, any::<bool>(), basis).prop_map(|(p50, tail, thin, basis)| {
            Estimate { p50, p99: p50.filter(|_| !thin).map(|p50| p50 * tail), basis }
        })
    }

    fn any_candidate() -> impl Strategy<Value = Candidate> {
        (1..4_u32, 1..20_u64, any_estimate(), any_estimate(), any::<bool>()).prop_map(
            |(quality, input, ttft, total, allowed)| Candidate {
                quality,
                price: Price { input, output: input * 4 },
                forecast: Forecast { ttft, total },
                allowed,
            },
        )
    }

    fn any_ask() -> impl Strategy<Value = Ask> {
        let ms = || prop::option::of((0..10_000_u64).prop_map(Duration::from_millis));
        let goal = prop::sample::select(vec![Goal::Auto, Goal::Fast, Goal::Best]);
        (goal, ms(), ms(), 1..4_u32).prop_map(|(goal, ttft, total, quality_enough)| Ask {
            goal,
            budget: LatencyBudget { ttft, total },
            quality_enough,
            ..Ask::default()
        })
    }

    proptest! {
        #[test]
        fn everybody_is_in_the_order_once_and_who_is_allowed_and_fits_comes_first(
            candidates in prop::collection::vec(any_candidate(), 1..6),
            ask in any_ask(),
            chance in 0..1_000_u32,
        ) {
            let Choice { order, why, standings } = route(&candidates, &ask, chance).unwrap();
            let mut all = order.clone();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..candidates.len()));
            let first = candidates[order[0]];
            prop_assert_eq!(first.allowed, candidates.iter().any(|candidate| candidate.allowed));
            prop_assert!(order.iter().map(|at| !candidates[*at].allowed).is_sorted(), "who is left alone is last");
            let fits = |at: usize| matches!(standings[at], Standing::Unbound | Standing::Fits(_));
            let regular = if let Why::Explores(at) = why { at } else { order[0] };
            if first.allowed && (0..candidates.len()).any(|at| candidates[at].allowed && fits(at)) {
                prop_assert!(fits(regular) || ask.budget == LatencyBudget::default());
            }
        }

        #[test]
        fn few_explore_and_never_where_the_budget_is_known_to_be_broken(
            candidates in prop::collection::vec(any_candidate(), 1..6),
            ask in any_ask(),
            chance in 0..1_000_u32,
        ) {
            let Choice { order, why, .. } = route(&candidates, &ask, chance).unwrap();
            if let Why::Explores(regular) = why {
                prop_assert!(chance < EXPLORE_PER_MILLE && order[1] == regular);
                let Forecast { ttft, total } = candidates[order[0]].forecast;
                for (estimate, budget) in [(ttft, ask.budget.ttft), (total, ask.budget.total)] {
                    prop_assert!(budget.is_none_or(|budget| !is_known_to_break(&estimate, budget)));
                }
            }
        }
    }
}
