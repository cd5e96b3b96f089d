//! Upstreams and the rules that lead to them.

use http::Uri;

use super::{UPSTREAM, complains, complains_after_upstream, good};
use crate::config::{Auth, Config, Provider, Target};

#[test]
fn base_urls_have_one_form() {
    for (given, kept, prefix) in [
        ("https://api.openai.com/v1", "https://api.openai.com/", ""),
        ("https://api.openai.com/v1/", "https://api.openai.com/", ""),
        ("https://api.openai.com", "https://api.openai.com/", ""),
        ("HTTP://Host:8000//", "http://Host:8000/", ""),
        ("http://[::1]:8000/api/v1", "http://[::1]:8000/api", "/api"),
        ("http://h/api", "http://h/api", "/api"),
        ("http://h/v1/v1", "http://h/v1", "/v1"),
        ("https://${HOST}/v1", "https://example.com/", ""),
    ] {
        let text = format!("{UPSTREAM}base_url = \"{given}\"\n");
        let upstream = good(&text).upstreams.remove(0);
        assert_eq!(upstream.base_url.to_string(), kept, "{given}");
        assert_eq!(upstream.path_prefix(), prefix, "{given}");
    }
}

#[test]
fn bad_urls() {
    for (given, problem) in [
        ("ftp://h", "`ftp://h` is neither http nor https; hint: write https://api.openai.com"),
        ("https://", "`https://` is not a URL: empty string"),
        ("https://a b", "`https://a b` is not a URL: invalid uri character"),
        ("http://:80", "`http://:80` names no host"),
        ("http://h:0", "`http://h:0` has a port that is not 1 to 65535"),
        ("http://h:", "`http://h:` has a port that is not 1 to 65535"),
        (
            "http://h?a=1",
            "`http://h?a=1` has a query or fragment; hint: a base URL is only scheme, host and path",
        ),
        (
            "http://h#a",
            "`http://h#a` has a query or fragment; hint: a base URL is only scheme, host and path",
        ),
        ("http://me:pw@h", "`http://…@h` has a user name in it; hint: take it out and use `api_key`"),
        (
            "http://h/v1/chat/completions",
            "`http://h/v1/chat/completions` names an endpoint; hint: leave out `/chat/completions`: callers choose the endpoint",
        ),
    ] {
        let text = format!("base_url = \"{given}\"\n");
        complains_after_upstream(&text, &[&format!("f.toml:1:12: upstreams[0].base_url: {problem}")]);
    }
    for (given, problem) in [
        ("socks5://p:1", "`socks5://p:1` is neither http nor https; hint: write http://proxy.example:3128"),
        (
            "https://p:1",
            "`https://p:1` is a proxy reached over TLS, which is not supported; hint: write http://host:port; what goes through the tunnel is encrypted all the same",
        ),
        ("http://me:pw@p:1/x", "`http://…@p:1/x` has a path; hint: a proxy is only scheme, host and port"),
    ] {
        let text = format!("proxy = \"{given}\"\n");
        complains_after_upstream(&text, &[&format!("f.toml:1:9: upstreams[0].proxy: {problem}")]);
    }
}

#[test]
fn an_upstream_says_how_it_authenticates() {
    complains(
        "[[upstreams]]\nname = \"a\"\nprovider = \"anthropic\"\n\
         [[upstreams]]\nname = \"b\"\nprovider = \"openai\"\napi_key = \"x\"\nauth = \"caller\"\n\
         [[upstreams]]\nname = \"b\"\nauth = \"key\"\n\
         [[upstreams]]\nname = \"c\"\nprovider = \"openai\"\napi_key = \"${EMPTY}\"\n\
         [[upstreams]]\nname = \"d\"\nprovider = \"openai\"\napi_key = \"${SECRET}\"\nh2c = true\n\
         [[models]]\nname = \"*\"\nupstream = \"a\"\n",
        &[
            "f.toml:1:1: upstreams[0]: `api_key` or `auth` is missing; hint: `api_key = \"${ANTHROPIC_API_KEY}\"`, or `auth = \"caller\"` to pass on the caller's own key, or `auth = \"none\"`",
            "f.toml:8:8: upstreams[1].auth: `auth` and `api_key` contradict each other; hint: leave one of them out",
            "f.toml:9:1: upstreams[2]: `provider` is missing; hint: `openai` for OpenAI and every server that is compatible, or `anthropic`",
            "f.toml:10:8: upstreams[2].name: has the same name as upstreams[1].name; hint: each must be different",
            "f.toml:11:8: upstreams[2].auth: `key` is not a way to authenticate; hint: `caller` or `none`; a key of yours goes into `api_key`",
            "f.toml:15:11: upstreams[3].api_key: is empty; hint: `auth = \"none\"` for an upstream without keys",
            "f.toml:19:11: upstreams[4].api_key: has characters that no API key has (spaces, line ends or accents); hint: copy it again",
            "f.toml:20:7: upstreams[4].h2c: h2c is HTTP/2 without TLS, and base_url is https; hint: leave it out: over TLS the protocol is negotiated",
        ],
    );
    let upstream = |auth: &str| {
        let text = format!("[[upstreams]]\nname = \"u\"\nprovider = \"openai\"\n{auth}\n");
        good(&text).upstreams.remove(0)
    };
    assert!(matches!(upstream("api_key = \"${KEY}\"").auth, Auth::Key(key) if key == "sk-1"));
    assert!(matches!(upstream("auth = \"caller\"").auth, Auth::Caller));
    assert!(matches!(upstream("auth = \"none\"").auth, Auth::None));
    let shown = format!("{:?}", upstream("api_key = \"sk-1\"\nproxy = \"http://me:pw@p:1\""));
    assert!(!shown.contains("sk-1") && !shown.contains("pw"), "{shown}");
}

/// Two upstreams that speak OpenAI's dialect and one that speaks Anthropic's.
const THREE: &str = "[[upstreams]]\nname = \"o\"\nprovider = \"openai\"\nauth = \"none\"\n\
    [[upstreams]]\nname = \"p\"\nprovider = \"openai\"\nauth = \"none\"\n\
    [[upstreams]]\nname = \"a\"\nprovider = \"anthropic\"\nauth = \"none\"\n";

#[test]
fn every_rule_must_be_reachable() {
    complains(
        &format!(
            "{THREE}[[models]]\nname = \"gpt-*\"\naliases = [\"fast\"]\nupstream = \"o\"\nupstream_model = \"x\"\n\
             [[models]]\nname = \"gpt-4*\"\nupstream = \"p\"\n\
             [[models]]\nname = \"fast\"\nupstream = \"o\"\n\
             [[models]]\nname = \"*\"\nupstream = \"a\"\n\
             [[models]]\nname = \"llama\"\nupstream = \"a\"\n"
        ),
        &[
            "f.toml:19:8: models[1].name: `gpt-4*` is never reached: models[0].name = `gpt-*` matches it first; hint: put it before that rule",
            "f.toml:22:8: models[2].name: `fast` has a rule already: models[0].aliases[0]; hint: keep one of the two",
            "f.toml:28:8: models[4].name: `llama` is never reached: models[3].name = `*` matches it first; hint: put it before that rule",
        ],
    );
}

#[test]
fn rules_that_make_no_sense() {
    complains(
        &format!(
            "{THREE}[[models]]\nupstream = \"o\"\n[[models]]\nname = \"m\"\n[[models]]\nname = \"a b\"\nupstream = \"zzzzzz\"\n\
             [[models]]\nname = \"c-*\"\naliases = [\"c\"]\nupstream = \"o\"\n\
             [[models]]\nname = \"d\"\naliases = [\"e-*\", \"f-*-*\"]\nupstream = \"o\"\nupstream_model = \"*\"\n\
             [[models]]\nname = \"g/*\"\nupstream = \"o\"\nupstream_model = \"*-*\"\n\
             [[models]]\nname = \"\"\nupstream = \"o\"\n"
        ),
        &[
            "f.toml:13:1: models[0]: `name` is missing; hint: the model name that callers send; `*` stands for any text",
            "f.toml:15:1: models[1]: `upstream` is missing; hint: one of o, p, a",
            "f.toml:18:8: models[2].name: `a b` has a space or control character in it",
            "f.toml:19:12: models[2].upstream: no upstream is called `zzzzzz`; hint: there are o, p, a",
            "f.toml:22:12: models[3].aliases[0]: an alias of `c-*` does not say which model is meant; hint: add `upstream_model`",
            "f.toml:25:8: models[4].name: needs exactly one `*`, because models[4].upstream_model has one to fill in",
            "f.toml:26:19: models[4].aliases[1]: needs exactly one `*`, because models[4].upstream_model has one to fill in",
            "f.toml:32:18: models[5].upstream_model: has more than one `*` to fill in",
            "f.toml:34:8: models[6].name: must have 1 to 256 bytes, not 0",
        ],
    );
    complains(
        THREE,
        &[
            "f.toml:1:1: there is more than one upstream, but no [[models]] says which answers for what; hint: add [[models]] with `name = \"gpt-*\"` and `upstream = \"…\"`",
        ],
    );
    complains(
        "upstreams = []\n[[models]]\nname = \"m\"\nupstream = \"o\"\n",
        &[
            "f.toml:1:1: no [[upstreams]]: nobody would answer; hint: add [[upstreams]] with `name`, `provider` and `api_key`, or [[engines]] with `name` and `file`",
            "f.toml:4:12: models[0].upstream: no upstream is called `o`; hint: add an [[upstreams]] with that name",
        ],
    );
}

#[test]
fn models_find_their_upstream() {
    let config = good(&format!(
        "{THREE}[[models]]\nname = \"gpt-5\"\naliases = [\"fast\"]\nupstream = \"o\"\n\
         [[models]]\nname = \"local/*\"\nupstream = \"p\"\nupstream_model = \"x/*:q8\"\n\
         [[models]]\nname = \"*-vision-*\"\nupstream = \"p\"\n\
         [[models]]\nname = \"*\"\nupstream = \"a\"\nupstream_model = \"claude\"\n"
    ));
    let found = |model| config.resolve(model, None).map(|found| (found.upstream, found.model.into_owned()));
    assert_eq!(found("gpt-5"), Some((0, "gpt-5".into())));
    assert_eq!(found("fast"), Some((0, "gpt-5".into())));
    assert_eq!(found("local/llama/3"), Some((1, "x/llama/3:q8".into())));
    assert_eq!(found("a-vision-b"), Some((1, "a-vision-b".into())));
    assert_eq!(found("avision-b"), Some((2, "claude".into())));
    assert_eq!(found(""), Some((2, "claude".into())));
    assert_eq!(config.resolve(&"x".repeat(1000), None), None);
    // Another dialect changes nothing where the pattern has only one rule.
    assert_eq!(config.resolve("gpt-5", Some(Provider::Anthropic)).map(|found| found.upstream), Some(0));
}

#[test]
fn a_pattern_may_have_a_rule_for_each_dialect() {
    let rule = |name: &str, upstream| format!("[[models]]\nname = \"{name}\"\nupstream = \"{upstream}\"\n");
    let config = good(&format!("{THREE}{}{}{}", rule("q-*", "o"), rule("q-*", "a"), rule("*", "p")));
    let upstream = |model, dialect_of| config.resolve(model, dialect_of).map(|found| found.upstream);
    assert_eq!(upstream("q-1", None), Some(0));
    assert_eq!(upstream("q-1", Some(Provider::OpenAi)), Some(0));
    assert_eq!(upstream("q-1", Some(Provider::Anthropic)), Some(2));
    assert_eq!(upstream("other", Some(Provider::Anthropic)), Some(1));
    complains(
        &format!("{THREE}{}{}{}", rule("q", "o"), rule("q", "a"), rule("q", "p")),
        &["f.toml:20:8: models[2].name: `q` has a rule already: models[0].name; hint: keep one of the two"],
    );
}

#[test]
fn did_you_mean() {
    let config = good(&format!(
        "{UPSTREAM}[[models]]\nname = \"gpt-5-mini\"\n[[models]]\nname = \"claude-*\"\n[[models]]\nname = \"*-x\"\n"
    ));
    assert_eq!(config.nearest_model("gtp-5-mini"), Some("gpt-5-mini"));
    assert_eq!(config.nearest_model("cluade-opus-5"), Some("claude-*"));
    assert_eq!(config.nearest_model("mistral"), None);
    assert_eq!(config.nearest_model(""), None);
    assert_eq!(config.nearest_model(&"gpt-5-mini".repeat(100_000)), None);
}

#[test]
fn one_upstream_answers_for_everything() {
    let config = good(UPSTREAM);
    let target = Target { upstream: 0, model: "anything".into(), rule: "*", fallbacks: &[] };
    assert_eq!(config.resolve("anything", Some(Provider::Anthropic)), Some(target));
    assert_eq!(
        config.upstreams.first().map(|u| u.base_url.clone()),
        Some(Provider::OpenAi.official_base_url())
    );
    let simulated = Config::for_upstream(&Uri::from_static("http://127.0.0.1:9"));
    let provider = |dialect| {
        let found = simulated.resolve("sim-n5", Some(dialect)).unwrap();
        assert_eq!(found.model, "sim-n5");
        simulated.upstreams.get(found.upstream).unwrap().provider
    };
    assert_eq!(provider(Provider::OpenAi), Provider::OpenAi);
    assert_eq!(provider(Provider::Anthropic), Provider::Anthropic);
}

#[test]
fn fallbacks_lead_to_other_upstreams() {
    let two = "[[upstreams]]\nname = \"a\"\nprovider = \"openai\"\nauth = \"none\"\n\
               [[upstreams]]\nname = \"b\"\nprovider = \"anthropic\"\nauth = \"none\"\n\
               [[models]]\nname = \"m\"\nupstream = \"a\"\n";
    let config = good(&format!(
        "{two}fallbacks = [{{ upstream = \"b\", upstream_model = \"n\" }}, {{ upstream = \"a\", upstream_model = \"o\" }}]\n"
    ));
    let target = config.resolve("m", None).unwrap();
    let legs: Vec<_> = target.fallbacks.iter().map(|f| (f.upstream, f.rename.as_deref())).collect();
    assert_eq!(legs, [(1, Some("n")), (0, Some("o"))]);
    for (fallbacks, problem) in [
        (
            "[{ upstream = \"a\" }]",
            "f.toml:12:27: models[0].fallbacks[0].upstream: is the upstream that has failed then; hint: name another one, or another model of it; [retry] same_upstream = true asks the same again",
        ),
        (
            "[{ upstream = \"bb\" }]",
            "f.toml:12:27: models[0].fallbacks[0].upstream: no upstream is called `bb`; hint: did you mean `b`?",
        ),
        (
            "[{ upstream = \"b\", upstream_model = \"x-*\" }]",
            "f.toml:12:49: models[0].fallbacks[0].upstream_model: has a `*`: what it would stand for is not known here; hint: write the model's whole name",
        ),
        ("[{}]", "f.toml:12:14: models[0].fallbacks[0]: `upstream` is missing; hint: one of a, b"),
        (
            "\"b\"",
            "f.toml:12:13: models[0].fallbacks: must be a list of tables ([[fallbacks]]), not a string",
        ),
    ] {
        complains(&format!("{two}fallbacks = {fallbacks}\n"), &[problem]);
    }
}
