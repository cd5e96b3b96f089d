//! Which upstream serves a model, and which policy applies to a request.
//!
//! Rules are few and requests many, so there is no index: a name is matched against each pattern in
//! turn, and the first match wins. A pattern is a name in which each `*` stands for any text.

use std::borrow::Cow;

use super::problems::nearest;
use super::targets::MODEL_BYTES_MAX;
use super::{Config, Fallback, ModelRule, Policy, Provider};

/// Name of the policy that applies where no route does.
pub const DEFAULT_ROUTE: &str = "default";

/// Where a request for a model goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Index into [`Config::upstreams`].
    pub upstream: usize,
    /// The name to ask that upstream for.
    pub model: Cow<'a, str>,
    /// The pattern that matched: a bounded name for metrics.
    pub rule: &'a str,
    /// Who may answer in its place.
    pub fallbacks: &'a [Fallback],
}

impl Config {
    /// Where a request for `model` goes.
    ///
    /// First match wins. A pattern may have a rule for each dialect: then the one whose upstream speaks
    /// `dialect_of` is taken, because there the bytes pass through untouched. `None` if no rule matches,
    /// or the name is longer than any that a rule can mean.
    #[must_use]
    pub fn resolve<'a>(&'a self, model: &'a str, dialect_of: Option<Provider>) -> Option<Target<'a>> {
        if model.len() > MODEL_BYTES_MAX {
            return None;
        }
        let first = self.models.iter().find(|rule| matches(&rule.pattern, model))?;
        let speaks = |upstream: usize| self.upstreams.get(upstream).map(|found| found.provider) == dialect_of;
        let same = |rule: &&ModelRule| rule.pattern == first.pattern && speaks(rule.upstream);
        let rule = self.models.iter().find(same).unwrap_or(first);
        let name = match rule.rename.as_deref().map(|rename| (rename, rename.split_once('*'))) {
            None => Cow::Borrowed(model),
            Some((rename, None)) => Cow::Borrowed(rename),
            Some((_, Some((before, after)))) => {
                Cow::Owned(format!("{before}{}{after}", starred(&rule.pattern, model)))
            }
        };
        Some(Target { upstream: rule.upstream, model: name, rule: &rule.pattern, fallbacks: &rule.fallbacks })
    }

    /// The model name or pattern that `model` was most likely meant to be, for "did you mean".
    #[must_use]
    pub fn nearest_model(&self, model: &str) -> Option<&str> {
        if model.len() > MODEL_BYTES_MAX {
            return None;
        }
        let names = self.models.iter().map(|rule| rule.pattern.as_str());
        let exact = nearest(model, names.clone().filter(|name| !name.contains('*')));
        // Of a pattern such as `gpt-*` the part before the star is what can be misspelled.
        exact.or_else(|| {
            names.filter(|name| name.contains('*')).find(|name| {
                let stem = name.split('*').next().unwrap_or_default();
                let start: String = model.chars().take(stem.chars().count()).collect();
                stem.chars().count() > 1 && nearest(&start, [stem]).is_some()
            })
        })
    }

    /// What applies to a request for `model` (if it names one) at `path`, and the route's name.
    #[must_use]
    pub fn policy(&self, model: Option<&str>, path: &str) -> (&Policy, &str) {
        let any = |patterns: &[String], text: &str| patterns.iter().any(|pattern| matches(pattern, text));
        let applies = |route: &&super::Route| {
            (route.models.is_empty() || model.is_some_and(|model| any(&route.models, model)))
                && (route.paths.is_empty() || any(&route.paths, path))
        };
        self.routes
            .iter()
            .find(applies)
            .map_or((&self.defaults, DEFAULT_ROUTE), |route| (&route.policy, &route.name))
    }
}

/// Whether `text` is what `pattern` says, each `*` of which stands for any text.
///
/// Takes at most `pattern` × `text` steps: after a mismatch only the last star is tried again.
/// Every `*` in `text` is a character that only a star matches, so `matches(a, b)` also says whether
/// the pattern `a` matches everything that the pattern `b` does.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on after a mismatch: behind the last star, with one more byte given to it.
    let mut again: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(p), text.get(t)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                p += 1;
                again = Some((p, t));
            }
            (Some(wanted), Some(found)) if wanted == found => {
                p += 1;
                t += 1;
            }
            _ => match again {
                Some((behind, from)) if from < text.len() => {
                    p = behind;
                    t = from + 1;
                    again = Some((behind, t));
                }
                _ => return false,
            },
        }
    }
}

/// What the one `*` of `pattern` stands for in `text`, which it matches.
fn starred<'a>(pattern: &str, text: &'a str) -> &'a str {
    let (before, after) = pattern.split_once('*').unwrap_or((pattern, ""));
    text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).unwrap_or_default()
}
