//! `[[upstreams]]` and `[[models]]`: who answers, and for which model names.
//!
//! Invariant: every rule can apply. A rule that an earlier one hides is a mistake that would
//! otherwise show as "the wrong model answered", so it is an error.

use super::env::Text;
use super::problems::{Complaint, Place, Report, Spot, nearest};
use super::proxy::EnvProxy;
use super::raw::Section;
use super::resolve::matches;
use super::{Auth, Fallback, ModelRule, NAME_CHARS_MAX, Provider, UpstreamConfig, check_name, url};

/// Longest model name or pattern.
pub(super) const MODEL_BYTES_MAX: usize = 256;

/// A name that no other of its kind may have.
pub(super) fn name(text: &Text) -> Result<String, Complaint> {
    match check_name(&text.value) {
        Ok(()) => Ok(text.value.clone()),
        Err(message) => Err(Complaint::new(format!("`{}` {message}", text.shown))),
    }
}

/// Reads `name`, which must be there; what is wrong with it is reported.
pub(super) fn named(section: &mut Section<'_>) -> Spot<String> {
    section.missing("name", "give it a name of its own, for logs and metrics");
    let place = section.place.clone();
    section.text("name", name).unwrap_or(Spot { value: String::new(), place })
}

/// Reports every value that an earlier one has too. Stand-ins (empty) are passed over.
pub(super) fn unique<'a, T: PartialEq + 'a>(
    spots: impl IntoIterator<Item = &'a Spot<T>>,
    what: &str,
    stand_in: &T,
    report: &mut Report,
) {
    let mut seen: Vec<&Spot<T>> = Vec::new();
    for spot in spots {
        if let Some(first) = seen.iter().find(|first| first.value == spot.value) {
            let message = format!("{what} as {}", first.place.key());
            report.add(&spot.place, Complaint::new(message).hint("each must be different"));
        } else if spot.value != *stand_in {
            seen.push(spot);
        }
    }
}

/// Reads one of `[[upstreams]]`.
pub(super) fn upstream(section: &mut Section<'_>, env_proxy: &EnvProxy) -> (Spot<String>, UpstreamConfig) {
    let name = named(section);
    section.missing("provider", "`openai` for OpenAI and every server that is compatible, or `anthropic`");
    let provider = section.text("provider", provider).map_or(Provider::OpenAi, |spot| spot.value);
    let base_url = section
        .text("base_url", url::base_url)
        .map_or_else(|| provider.official_base_url(), |spot| spot.value);
    let auth = auth(section, provider);
    let proxy = match section.text("proxy", url::proxy) {
        Some(given) => given.value,
        None => env_proxy.toward(&base_url, section.report),
    };
    let h2c = section.flag("h2c");
    if let Some(Spot { value: true, place }) = &h2c
        && base_url.scheme_str() == Some("https")
    {
        let hint = "leave it out: over TLS the protocol is negotiated";
        section
            .report
            .add(place, Complaint::new("h2c is HTTP/2 without TLS, and base_url is https").hint(hint));
    }
    let h2c = h2c.is_some_and(|spot| spot.value);
    let responses = section.flag("responses").is_none_or(|spot| spot.value);
    let concurrency = section.concurrency("concurrency").and_then(|spot| spot.value);
    let config = UpstreamConfig {
        name: name.value.clone(),
        provider,
        base_url,
        auth,
        proxy,
        h2c,
        responses,
        local: false,
        concurrency,
    };
    (name, config)
}

fn provider(text: &Text) -> Result<Provider, Complaint> {
    match text.value.as_str() {
        "openai" => Ok(Provider::OpenAi),
        "anthropic" => Ok(Provider::Anthropic),
        _ => Err(Complaint::new(format!("`{}` is not a provider", text.shown))
            .hint("`openai` (also for every compatible server) or `anthropic`")),
    }
}

fn auth(section: &mut Section<'_>, provider: Provider) -> Auth {
    let key = section.text("api_key", url::api_key);
    let auth = section.text("auth", |text| match text.value.as_str() {
        "caller" => Ok(Auth::Caller),
        "none" => Ok(Auth::None),
        _ => Err(Complaint::new(format!("`{}` is not a way to authenticate", text.shown))
            .hint("`caller` or `none`; a key of yours goes into `api_key`")),
    });
    if let Some(auth) = &auth
        && section.has("api_key")
    {
        section.report.add(
            &auth.place,
            Complaint::new("`auth` and `api_key` contradict each other").hint("leave one of them out"),
        );
    } else if !section.has("auth") && !section.has("api_key") {
        let hint = format!(
            "`api_key = \"${{{}}}\"`, or `auth = \"caller\"` to pass on the caller's own key, or `auth = \"none\"`",
            provider.key_variable()
        );
        section.report.add(&section.place, Complaint::new("`api_key` or `auth` is missing").hint(hint));
    }
    match (key, auth) {
        (Some(key), _) => Auth::Key(key.value),
        (None, Some(auth)) => auth.value,
        (None, None) => Auth::None,
    }
}

/// A model name or pattern.
pub(super) fn pattern(text: &Text) -> Result<String, Complaint> {
    let value = &text.value;
    if value.is_empty() || value.len() > MODEL_BYTES_MAX {
        return Err(Complaint::new(format!("must have 1 to {MODEL_BYTES_MAX} bytes, not {}", value.len())));
    }
    if value.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Complaint::new(format!("`{}` has a space or control character in it", text.shown)));
    }
    Ok(value.clone())
}

/// Reads one of `[[models]]`: a rule for its name and one for each alias.
pub(super) fn model(section: &mut Section<'_>, upstreams: &[Spot<String>]) -> Vec<Spot<ModelRule>> {
    section.missing("name", "the model name that callers send; `*` stands for any text");
    let name = section.text("name", pattern);
    let aliases = section.texts("aliases", pattern);
    let target = section.text("upstream", |text| upstream_index(text, upstreams)).map(|spot| spot.value);
    if upstreams.len() > 1 {
        let names = upstreams.iter().map(|spot| spot.value.as_str()).collect::<Vec<_>>().join(", ");
        section.missing("upstream", &format!("one of {names}"));
    }
    let rename = section.text("upstream_model", pattern);
    let substitutes = rename.as_ref().filter(|rename| rename.value.contains('*'));
    if let Some(rename) = substitutes {
        let stars = |pattern: &str| pattern.matches('*').count();
        for pattern in name.iter().chain(&aliases).filter(|spot| stars(&spot.value) != 1) {
            let message = format!("needs exactly one `*`, because {} has one to fill in", rename.place.key());
            section.report.add(&pattern.place, Complaint::new(message));
        }
        if stars(&rename.value) > 1 {
            section.report.add(&rename.place, Complaint::new("has more than one `*` to fill in"));
        }
    }
    // An alias stands for the model's name, unless both are sent on under another.
    let literal = name.as_ref().filter(|name| !name.value.contains('*')).map(|name| name.value.clone());
    if let (Some(alias), None, Some(name), false) =
        (aliases.first(), &literal, &name, section.has("upstream_model"))
    {
        let message = format!("an alias of `{}` does not say which model is meant", name.value);
        section.report.add(&alias.place, Complaint::new(message).hint("add `upstream_model`"));
    }
    let fallbacks = section.sections("fallbacks", |section| fallback(section, upstreams, target));
    let rename = rename.map(|spot| spot.value);
    let alias_rename = rename.clone().or(literal);
    let upstream = target.unwrap_or(0);
    let rule = |pattern: Spot<String>, rename: &Option<String>| Spot {
        value: ModelRule {
            pattern: pattern.value,
            upstream,
            rename: rename.clone(),
            fallbacks: fallbacks.clone(),
        },
        place: pattern.place,
    };
    let by_name = name.map(|name| rule(name, &rename));
    by_name.into_iter().chain(aliases.into_iter().map(|alias| rule(alias, &alias_rename))).collect()
}

/// Reads one of `fallbacks`: an upstream other than `first`, and the model's name there.
fn fallback(section: &mut Section<'_>, upstreams: &[Spot<String>], first: Option<usize>) -> Fallback {
    let names = upstreams.iter().map(|spot| spot.value.as_str()).collect::<Vec<_>>().join(", ");
    section.missing("upstream", &format!("one of {names}"));
    let upstream = section.text("upstream", |text| upstream_index(text, upstreams));
    let rename = section.text("upstream_model", pattern);
    if let (Some(upstream), None) = (upstream.as_ref().filter(|spot| Some(spot.value) == first), &rename) {
        let complaint = Complaint::new("is the upstream that has failed then");
        let hint =
            "name another one, or another model of it; [retry] same_upstream = true asks the same again";
        section.report.add(&upstream.place, complaint.hint(hint));
    }
    if let Some(starred) = rename.as_ref().filter(|rename| rename.value.contains('*')) {
        let complaint = Complaint::new("has a `*`: what it would stand for is not known here");
        section.report.add(&starred.place, complaint.hint("write the model's whole name"));
    }
    Fallback { upstream: upstream.map_or(0, |spot| spot.value), rename: rename.map(|spot| spot.value) }
}

fn upstream_index(text: &Text, upstreams: &[Spot<String>]) -> Result<usize, Complaint> {
    upstreams.iter().position(|spot| spot.value == text.value).ok_or_else(|| {
        let names = || upstreams.iter().map(|spot| spot.value.as_str()).filter(|name| !name.is_empty());
        let hint = match nearest(&text.value, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if names().next().is_none() => "add an [[upstreams]] with that name".to_owned(),
            None => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        };
        Complaint::new(format!("no upstream is called `{}`", text.shown)).hint(hint)
    })
}

/// The rules in the order of the file, each of which must be reachable.
///
/// A rule is hidden by an earlier one that matches everything it does. Only a second rule for the very
/// same pattern is reached, when its upstream speaks another dialect: see [`super::Config::resolve`].
pub(super) fn rules(
    rules: Vec<Spot<ModelRule>>,
    upstreams: &[UpstreamConfig],
    report: &mut Report,
) -> Vec<ModelRule> {
    let provider = |rule: &ModelRule| upstreams.get(rule.upstream).map(|upstream| upstream.provider);
    for (index, Spot { value: rule, place }) in rules.iter().enumerate() {
        let hides = |earlier: &&Spot<ModelRule>| {
            let earlier = &earlier.value;
            matches(&earlier.pattern, &rule.pattern)
                && (earlier.pattern != rule.pattern || provider(earlier) == provider(rule))
        };
        if let Some(earlier) = rules.iter().take(index).find(hides) {
            let (first, hidden) = (&earlier.value.pattern, &rule.pattern);
            let complaint = if first == hidden {
                Complaint::new(format!("`{hidden}` has a rule already: {}", earlier.place.key()))
                    .hint("keep one of the two")
            } else {
                Complaint::new(format!(
                    "`{hidden}` is never reached: {} = `{first}` matches it first",
                    earlier.place.key()
                ))
                .hint("put it before that rule")
            };
            report.add(place, complaint);
        }
    }
    rules.into_iter().map(|spot| spot.value).collect()
}

/// The rule where the file has none: the one upstream answers for every name. Engines answer for theirs.
pub(super) fn default_rules(upstreams: usize, report: &mut Report, place: &Place) -> Option<ModelRule> {
    if upstreams > 1 {
        let message = "there is more than one upstream, but no [[models]] says which answers for what";
        let hint = "add [[models]] with `name = \"gpt-*\"` and `upstream = \"…\"`";
        report.add(place, Complaint::new(message).hint(hint));
    }
    (upstreams > 0).then(|| ModelRule::new("*", 0))
}

/// Checks a name; see [`check_name`].
pub(super) fn name_problem(name: &str) -> Option<String> {
    let chars = name.chars().count();
    if !(1..=NAME_CHARS_MAX).contains(&chars) {
        return Some(format!("must have 1 to {NAME_CHARS_MAX} characters, not {chars}"));
    }
    (name.trim() != name || name.chars().any(char::is_control))
        .then(|| "must not start or end with a space or have control characters in it".to_owned())
}
