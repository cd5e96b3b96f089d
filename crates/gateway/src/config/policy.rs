//! `[clocks]`, `[stream]` and `[[routes]]`: how long things may take, and for which requests.
//!
//! A route starts from the defaults and changes what it writes. Only what is written is held
//! against the other clocks, so that shortening one never forces anyone to shorten the rest.

use std::time::Duration;

use firsttoken_logic::tail::admission::Priority;

use super::env::Text;
use super::problems::{Complaint, Place, Report, Spot};
use super::raw::Section;
use super::resolve::{DEFAULT_ROUTE, matches};
use super::{ModelRule, Policy, Route, targets};

/// What `[clocks]` and `[stream]` of `section` change about `base`.
pub(super) fn policy(section: &mut Section<'_>, base: &Policy) -> Policy {
    let mut policy = base.clone();
    section.section("clocks", |section| clocks(section, &mut policy));
    section.section("stream", |section| stream(section, &mut policy));
    section.section("retry", |section| retry(section, &mut policy));
    section.section("hedge", |section| hedge(section, &mut policy));
    section.section("queue", |section| queue(section, &mut policy));
    policy
}

fn retry(section: &mut Section<'_>, policy: &mut Policy) {
    let retry = &mut policy.retry;
    if let Some(attempts) = section.number("attempts_max", 1..=10) {
        retry.attempts_max = u32::try_from(attempts.value).unwrap_or(1);
    }
    if let Some(same) = section.flag("same_upstream") {
        retry.same_upstream = same.value;
    }
    if let Some(wait) = section.millis("wait_max_ms", 0) {
        retry.wait_max = wait.value;
    }
}

fn hedge(section: &mut Section<'_>, policy: &mut Policy) {
    let hedge = &mut policy.hedge;
    if let Some(percent) = section.number("percent", 0..=20) {
        hedge.share_per_mille = u32::try_from(percent.value * 10).unwrap_or(0);
    }
    if let Some(delay) = section.millis("delay_min_ms", 1) {
        hedge.delay_min = delay.value;
    }
    if let Some(samples) = section.number("samples_min", 1..=100_000) {
        hedge.samples_min = samples.value;
    }
}

fn queue(section: &mut Section<'_>, policy: &mut Policy) {
    if let Some(wait) = section.millis("wait_max_ms", 0) {
        policy.queue.wait_max = wait.value;
    }
    if let Some(waiting) = section.number("waiting_max", 0..=100_000) {
        policy.queue.waiting_max = u32::try_from(waiting.value).unwrap_or(u32::MAX);
    }
    if let Some(priority) = section.text("priority", priority) {
        policy.priority = priority.value;
    }
}

fn priority(text: &Text) -> Result<Priority, Complaint> {
    match text.value.as_str() {
        "interactive" => Ok(Priority::Interactive),
        "batch" => Ok(Priority::Batch),
        _ => {
            Err(Complaint::new(format!("`{}` is not a priority", text.shown))
                .hint("`interactive` or `batch`"))
        }
    }
}

fn clocks(section: &mut Section<'_>, policy: &mut Policy) {
    let clocks = &mut policy.clocks;
    let mut written = Vec::new();
    for (key, clock) in [
        ("connect_ms", &mut clocks.connect),
        ("headers_ms", &mut clocks.headers),
        ("first_content_ms", &mut clocks.first_content),
        ("stall_ms", &mut clocks.stall),
        ("idle_ms", &mut clocks.idle),
        ("total_ms", &mut clocks.total),
    ] {
        if let Some(spot) = section.clock(key) {
            *clock = spot.value;
            written.push((key, spot));
        }
    }
    for (key, spot) in written {
        let Some(value) = spot.value else { continue };
        ends_first(section.report, &spot.place, value, clocks.total, "total_ms");
        if key == "headers_ms" {
            ends_first(section.report, &spot.place, value, clocks.first_content, "first_content_ms");
        }
    }
}

/// Reports a written clock that never runs out, because another one does before.
fn ends_first(report: &mut Report, place: &Place, value: Duration, other: Option<Duration>, key: &str) {
    if let Some(other) = other.filter(|other| value > *other) {
        let (value, other) = (value.as_millis(), other.as_millis());
        let message = format!("{value} ms never run out: {key} = {other} ends the request first");
        report.add(place, Complaint::new(message).hint(format!("lower it, or raise {key}")));
    }
}

fn stream(section: &mut Section<'_>, policy: &mut Policy) {
    if let Some(Spot { value, place }) = section.millis("head_commit_ms", 0) {
        policy.head_commit = value;
        below(section.report, &place, value, policy.clocks.first_content, "first_content_ms");
    }
    if let Some(keepalive) = section.millis("keepalive_ms", 1) {
        policy.keepalive = keepalive.value;
    }
    if let Some(Spot { value, place }) = section.millis("stall_threshold_ms", 1) {
        policy.stall_threshold = value;
        below(section.report, &place, value, policy.clocks.stall, "stall_ms");
    }
    if let Some(inject) = section.flag("inject_usage") {
        policy.inject_usage = inject.value;
    }
    if let Some(strict) = section.flag("strict") {
        policy.strict = strict.value;
    }
}

/// Reports a written time that must be shorter than a clock and is not.
fn below(report: &mut Report, place: &Place, value: Duration, clock: Option<Duration>, key: &str) {
    if let Some(clock) = clock.filter(|clock| value >= *clock) {
        let (value, clock) = (value.as_millis(), clock.as_millis());
        let message = format!("{value} ms must be below {key} = {clock}, which ends the request first");
        report.add(place, Complaint::new(message).hint(format!("lower it, or raise {key}")));
    }
}

/// Reads `[[routes]]`, each of which must be reachable.
pub(super) fn routes(top: &mut Section<'_>, defaults: &Policy, models: &[ModelRule]) -> Vec<Route> {
    let read = top.sections("routes", |section| {
        let problems = section.report.count();
        let (name, route) = route(section, defaults, models);
        // What a route with a mistake in it would select is a guess.
        let sound = section.report.count() == problems;
        (name, (Spot { value: route, place: section.place.clone() }, sound))
    });
    let (names, routes): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    targets::unique(&names, "has the same name", &String::new(), top.report);
    let sound: Vec<_> = routes.iter().filter(|(_, sound)| *sound).map(|(route, _)| route).collect();
    for (index, route) in sound.iter().enumerate() {
        let hides = |earlier: &&&Spot<Route>| {
            covers(&earlier.value.models, &route.value.models)
                && covers(&earlier.value.paths, &route.value.paths)
        };
        if let Some(earlier) = sound.iter().take(index).find(hides) {
            let message = format!("is never reached: {} applies to all of it first", earlier.place.key());
            top.report.add(&route.place, Complaint::new(message).hint("put it before that route"));
        }
    }
    routes.into_iter().map(|(route, _)| route.value).collect()
}

fn route(section: &mut Section<'_>, defaults: &Policy, rules: &[ModelRule]) -> (Spot<String>, Route) {
    let name = targets::named(section);
    if name.value == DEFAULT_ROUTE {
        let complaint = Complaint::new(format!("`{DEFAULT_ROUTE}` is what the timeline calls no route"));
        section.report.add(&name.place, complaint.hint("choose another name"));
    }
    let values = |spots: Vec<Spot<String>>| spots.into_iter().map(|spot| spot.value).collect();
    let route = Route {
        name: name.value.clone(),
        models: values(section.texts("models", |text| served(text, rules))),
        paths: values(section.texts("paths", path)),
        policy: policy(section, defaults),
    };
    (name, route)
}

/// A pattern of models that some rule serves.
fn served(text: &Text, rules: &[ModelRule]) -> Result<String, Complaint> {
    let pattern = targets::pattern(text)?;
    let known = || rules.iter().any(|rule| matches(&rule.pattern, &pattern));
    if pattern.contains('*') || rules.is_empty() || known() {
        return Ok(pattern);
    }
    let names = rules.iter().map(|rule| rule.pattern.as_str());
    let near = super::problems::nearest(&pattern, names).map(|near| format!("did you mean `{near}`?"));
    let message = format!("no rule of [[models]] serves `{}`", text.shown);
    Err(Complaint::new(message).maybe_hint(near))
}

/// A path or pattern of paths.
fn path(text: &Text) -> Result<String, Complaint> {
    let value = &text.value;
    let is_path = value.starts_with(['/', '*'])
        && !value.contains(['?', '#'])
        && !value.chars().any(|c| c.is_whitespace() || c.is_control());
    if is_path {
        return Ok(value.clone());
    }
    Err(Complaint::new(format!("`{}` is not a path", text.shown)).hint("write /v1/messages or /v1/*"))
}

/// Whether everything that `later` selects is selected by `earlier`; an empty list selects everything.
fn covers(earlier: &[String], later: &[String]) -> bool {
    earlier.is_empty()
        || (!later.is_empty() && later.iter().all(|narrow| earlier.iter().any(|wide| matches(wide, narrow))))
}
