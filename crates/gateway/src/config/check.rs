//! Turns the TOML into a [`Config`], or into every problem that it has.
//!
//! Two principles decide what is an error. A name must mean something: no key is unknown, no name
//! stands twice, no reference leads nowhere. And what is written must be able to take effect: a
//! clock longer than the one that ends the request first, or a rule that another hides, is a
//! mistake that would show at the worst moment. Defaults are exempt from the second: lowering one
//! clock does not force anyone to lower the others.

use std::net::SocketAddr;

use super::env::{Lookup, Text};
use super::policy::{policy, routes};
use super::problems::{Complaint, Problems, Report, Spot};
use super::proxy::EnvProxy;
use super::raw::{self, Section};
use super::{
    Config, EngineConfig, IpNet, Key, KeyLimits, Limits, ModelRule, UpstreamConfig, engines, targets, url,
};

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;
const GIB: u32 = 1024 * MIB;

/// Most threads that make sense anywhere.
const THREADS_MAX: u32 = 1024;

/// Most connections or timelines.
const COUNT_MAX: u32 = 1_000_000;

/// The configuration that `text` describes; see [`Config::from_toml`].
pub(super) fn config(text: &str, file: &str, env: &Lookup<'_>) -> Result<Config, Problems> {
    let mut report = Report::default();
    let env_proxy = EnvProxy::read(env);
    let config = raw::read(text, env, &mut report, |top| root(top, &env_proxy));
    report.finish(config.unwrap_or_else(Config::bare), file, text)
}

fn root(top: &mut Section<'_>, env_proxy: &EnvProxy) -> Config {
    let base = Config::bare();
    let listen = top.text("listen", listen);
    let threads = top.size("threads", 1..=THREADS_MAX).map_or(base.threads, |spot| spot.value);
    let trusted_proxies = values(top.texts("trusted_proxies", IpNet::parse));
    let cors_origins = cors_origins(top);
    let drain = top.millis("drain_ms", 0).map_or(base.drain, |spot| spot.value);
    let problems = top.report.count();
    let keys = keys(top);
    let no_keys = keys.is_empty() && top.report.count() == problems;
    if let Some(listen) = &listen
        && let Some(complaint) = exposed(listen.value, !no_keys)
    {
        top.report.add(&listen.place, complaint);
    }
    let (upstreams, engines, models) = targets(top, env_proxy);
    let defaults = policy(top, &base.defaults);
    let limits = top.section("limits", limits).unwrap_or(base.limits);
    let routes = routes(top, &defaults, &models);
    Config {
        listen: listen.map_or(base.listen, |spot| spot.value),
        threads,
        keys,
        trusted_proxies,
        cors_origins,
        upstreams,
        engines,
        demo: base.demo,
        models,
        routes,
        defaults,
        limits,
        drain,
    }
}

/// Who answers, and for which names: an engine is an upstream with a rule of its own, before all others.
fn targets(
    top: &mut Section<'_>,
    env_proxy: &EnvProxy,
) -> (Vec<UpstreamConfig>, Vec<EngineConfig>, Vec<ModelRule>) {
    let problems = top.report.count();
    let (mut names, mut upstreams): (Vec<_>, Vec<_>) =
        top.sections("upstreams", |section| targets::upstream(section, env_proxy)).into_iter().unzip();
    let others = upstreams.len();
    let (engine_names, engines): (Vec<_>, Vec<_>) =
        top.sections("engines", engines::engine).into_iter().unzip();
    if upstreams.is_empty() && engines.is_empty() && top.report.count() == problems {
        let hint =
            "add [[upstreams]] with `name`, `provider` and `api_key`, or [[engines]] with `name` and `file`";
        top.report.add(&top.place, Complaint::new("no [[upstreams]]: nobody would answer").hint(hint));
    }
    // What stands twice is said of the name, and not again of its rule.
    let is_first =
        |at: usize, name: &str| engine_names.iter().position(|spot| spot.value == name) == Some(at);
    let rule = |(at, name): (usize, &Spot<String>)| Spot {
        value: ModelRule::new(&name.value, others + at),
        place: name.place.clone(),
    };
    let is_rule = |(at, name): &(usize, &Spot<String>)| !name.value.is_empty() && is_first(*at, &name.value);
    let mut rules: Vec<_> = engine_names.iter().enumerate().filter(is_rule).map(rule).collect();
    upstreams.extend(engines.iter().map(EngineConfig::upstream));
    names.extend(engine_names);
    targets::unique(&names, "has the same name", &String::new(), top.report);
    let written = top.sections("models", |section| targets::model(section, &names));
    let has_rules = !written.is_empty();
    rules.extend(written.into_iter().flatten());
    let mut rules = targets::rules(rules, &upstreams, top.report);
    if !has_rules {
        rules.extend(targets::default_rules(others, top.report, &top.place));
    }
    (upstreams, engines, rules)
}

/// What is wrong with listening there: only loopback may go without keys.
pub(super) fn exposed(listen: SocketAddr, keys: bool) -> Option<Complaint> {
    let message = format!("`{listen}` can be reached from other machines, and there are no keys");
    let hint = "`firsttoken key new` makes a key and prints its [[keys]] entry; or listen on 127.0.0.1";
    (!keys && !listen.ip().is_loopback()).then(|| Complaint::new(message).hint(hint))
}

fn values<T>(spots: Vec<Spot<T>>) -> Vec<T> {
    spots.into_iter().map(|spot| spot.value).collect()
}

fn listen(text: &Text) -> Result<SocketAddr, Complaint> {
    text.value.parse().map_err(|_| {
        let hint = "write 127.0.0.1:8080 for this machine only, 0.0.0.0:8080 for every interface";
        Complaint::new(format!("`{}` is not an IP address with a port", text.shown)).hint(hint)
    })
}

fn cors_origins(top: &mut Section<'_>) -> Vec<String> {
    let origins = top.texts("cors_origins", url::origin);
    if origins.len() > 1
        && let Some(any) = origins.iter().find(|origin| origin.value == "*")
    {
        let complaint = Complaint::new("`*` allows every origin, so the others say nothing");
        top.report.add(&any.place, complaint.hint("keep `*` alone, or take it out"));
    }
    values(origins)
}

fn keys(top: &mut Section<'_>) -> Vec<Key> {
    let read = top.sections("keys", |section| {
        let name = targets::named(section);
        let tenant = section.text("tenant", targets::name).map(|spot| spot.value);
        section.missing("sha256", "`firsttoken key new` makes a key and prints this line");
        let place = section.place.clone();
        let sha256 = section.text("sha256", sha256).unwrap_or(Spot { value: [0; 32], place });
        (name, tenant, sha256, key_limits(section))
    });
    targets::unique(read.iter().map(|key| &key.0), "has the same name", &String::new(), top.report);
    targets::unique(read.iter().map(|key| &key.2), "is the same key", &[0; 32], top.report);
    let key =
        |(name, tenant, sha256, limits): (Spot<String>, Option<String>, Spot<[u8; 32]>, KeyLimits)| Key {
            tenant: tenant.unwrap_or_else(|| name.value.clone()),
            name: name.value,
            sha256: sha256.value,
            limits,
        };
    read.into_iter().map(key).collect()
}

fn key_limits(section: &mut Section<'_>) -> KeyLimits {
    let mut number = |key| {
        let spot = section.number(key, 1..=u64::from(COUNT_MAX))?;
        u32::try_from(spot.value).ok()
    };
    KeyLimits {
        requests_per_minute: number("requests_per_minute"),
        concurrency_max: number("concurrency_max"),
    }
}

/// 64 hexadecimal digits. What stands here instead may be the key itself, so it is not repeated.
fn sha256(text: &Text) -> Result<[u8; 32], Complaint> {
    let mut hash = [0; 32];
    let digits: Option<Vec<u32>> = text.value.chars().map(|c| c.to_digit(16)).collect();
    let Some(digits) = digits.filter(|digits| digits.len() == 64) else {
        let complaint = Complaint::new("is not 64 hexadecimal digits");
        return Err(if text.value.starts_with(crate::keys::SECRET_PREFIX) {
            complaint
                .hint("this is the key itself; here goes its SHA-256, so that the file gives nothing away")
        } else {
            complaint.hint("`firsttoken key new` prints this line")
        });
    };
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |byte, digit| (byte << 4) | u8::try_from(*digit).unwrap_or(0));
    }
    Ok(hash)
}

fn limits(section: &mut Section<'_>) -> Limits {
    let base = Limits::default();
    let mut size = |key, range, default| section.size(key, range).map_or(default, |spot| spot.value);
    // The HTTP/1 codec needs at least 8 KiB to work in.
    let header_bytes_max = size("header_bytes_max", 8 * KIB..=MIB, base.header_bytes_max);
    let body_bytes_max = size("body_bytes_max", 1..=GIB, base.body_bytes_max);
    let answer_bytes_max = size("answer_bytes_max", 1..=GIB, base.answer_bytes_max);
    let connections_max = size("connections_max", 1..=COUNT_MAX, base.connections_max);
    let timelines_max = size("timelines_max", 1..=COUNT_MAX, base.timelines_max);
    let event = section.size("event_bytes_max", KIB..=64 * MIB);
    let stream = section.size("stream_bytes_max", 16 * KIB..=64 * MIB);
    let event_bytes_max = event.as_ref().map_or(base.event_bytes_max, |spot| spot.value);
    let stream_bytes_max = stream.as_ref().map_or(base.stream_bytes_max, |spot| spot.value);
    if event_bytes_max > stream_bytes_max
        && let Some(place) = event.or(stream).map(|spot| spot.place)
    {
        let message = format!(
            "event_bytes_max = {event_bytes_max} is more than stream_bytes_max = {stream_bytes_max}, \
             which must hold a whole event"
        );
        section.report.add(&place, Complaint::new(message).hint("lower the first or raise the second"));
    }
    let mut time = |key, default| section.millis(key, 1).map_or(default, |spot| spot.value);
    Limits {
        body_bytes_max,
        header_bytes_max,
        event_bytes_max,
        stream_bytes_max,
        request_timeout: time("request_timeout_ms", base.request_timeout),
        client_stall: time("client_stall_ms", base.client_stall),
        connections_max,
        timelines_max,
        answer_bytes_max,
    }
}
