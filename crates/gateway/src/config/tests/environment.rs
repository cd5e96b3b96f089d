//! What the environment says: variables in strings, providers without a file, proxies.

use super::{UPSTREAM, complains, complains_after_upstream, good, read};
use crate::config::{Auth, Config};

#[test]
fn variables_in_strings() {
    complains_after_upstream(
        "[[models]]\nname = \"${A}-${B}\"\n[[models]]\nname = \"${A\"\n[[models]]\nname = \"${1 x}\"\n",
        &[
            "f.toml:2:8: models[0].name: environment variable `A` is not set; hint: export A=… before starting, or write `$${` for a literal `${`",
            "f.toml:2:8: models[0].name: environment variable `B` is not set; hint: export B=… before starting, or write `$${` for a literal `${`",
            "f.toml:4:8: models[1].name: `${` has no closing `}`; hint: write `$${` for a literal `${`",
            "f.toml:6:8: models[2].name: `${1 x}` does not name an environment variable; hint: write `$${` for a literal `${`",
        ],
    );
    let name =
        |given: &str| good(&format!("{UPSTREAM}[[models]]\nname = \"{given}\"\n")).models.remove(0).pattern;
    assert_eq!(name("a-${KEY}-b${HOST}"), "a-sk-1-bexample.com");
    assert_eq!(name("$${KEY}"), "${KEY}");
    assert_eq!(name("$$KEY$}"), "$$KEY$}");
}

#[test]
fn a_filled_in_value_is_not_repeated() {
    complains(
        "listen = \"${SECRET}\"\n[[upstreams]]\nname = \"u\"\nprovider = \"${SECRET}\"\nbase_url = \"${SECRET}\"\nauth = \"none\"\n",
        &[
            "f.toml:1:10: listen: `${SECRET}` is not an IP address with a port; hint: write 127.0.0.1:8080 for this machine only, 0.0.0.0:8080 for every interface",
            "f.toml:4:12: upstreams[0].provider: `${SECRET}` is not a provider; hint: `openai` (also for every compatible server) or `anthropic`",
            "f.toml:5:12: upstreams[0].base_url: `${SECRET}` is not a URL: it has no scheme; hint: write https://api.openai.com",
        ],
    );
}

fn from_env(env: &[(&str, &str)]) -> Result<Option<Config>, String> {
    let lookup = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    Config::from_env(&lookup).map_err(|problems| problems.to_string())
}

#[test]
fn without_a_file_the_environment_says_who_answers() {
    assert!(from_env(&[("OPENAI_API_KEY", " "), ("OPENAI_BASE_URL", "http://h")]).unwrap().is_none());
    let config = from_env(&[("OPENAI_API_KEY", "sk-o\n"), ("ANTHROPIC_API_KEY", "sk-a")]).unwrap().unwrap();
    let serves = |model| {
        let upstream = config.upstreams.get(config.resolve(model, None)?.upstream)?;
        Some((upstream.name.as_str(), upstream.base_url.host()?))
    };
    for model in ["gpt-5", "o1", "o3-mini", "o4-mini", "text-embedding-3-small", "chatgpt-4o", "ft:gpt-4o:x"]
    {
        assert_eq!(serves(model), Some(("openai", "api.openai.com")), "{model}");
    }
    assert_eq!(serves("claude-opus-5"), Some(("anthropic", "api.anthropic.com")));
    assert_eq!(serves("llama"), None);
    assert!(config.listen.ip().is_loopback());
    assert!(matches!(&config.upstreams.last().unwrap().auth, Auth::Key(key) if key == "sk-o"));

    let config = from_env(&[("OPENAI_API_KEY", "x"), ("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1/")])
        .unwrap()
        .unwrap();
    let upstream = config.resolve("llama", None).unwrap().upstream;
    assert_eq!(config.upstreams.get(upstream).unwrap().base_url, "http://127.0.0.1:8000/");
}

#[test]
fn what_is_wrong_with_the_environment() {
    let problems = from_env(&[
        ("ANTHROPIC_API_KEY", "a b"),
        ("ANTHROPIC_BASE_URL", "https://u:secret@h"),
        ("OPENAI_API_KEY", "x"),
        ("HTTPS_PROXY", "socks5://p"),
    ]);
    let problems = problems.unwrap_err();
    let expected = [
        "environment: ANTHROPIC_API_KEY: has characters that no API key has (spaces, line ends or accents); hint: copy it again",
        "environment: ANTHROPIC_BASE_URL: `$ANTHROPIC_BASE_URL` has a user name in it; hint: take it out and use `api_key`",
        "environment: HTTPS_PROXY: `$HTTPS_PROXY` is neither http nor https; hint: write http://proxy.example:3128",
    ];
    assert_eq!(problems.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn the_proxy_of_the_environment() {
    let proxy = |base_url: &str, more: &str, env: &[(&str, &str)]| {
        let text = format!("{UPSTREAM}base_url = \"{base_url}\"\n{more}\n");
        read(&text, env).unwrap().upstreams.remove(0).proxy.map(|proxy| proxy.to_string())
    };
    let http = Some("http://p:3128/".to_owned());
    let set = [("HTTPS_PROXY", "p:3128"), ("NO_PROXY", "inner.example, .corp.example,10.0.0.0/8")];
    assert_eq!(proxy("https://api.openai.com", "", &set), http);
    assert_eq!(proxy("https://notinner.example", "", &set), http);
    for direct in [
        "http://api.openai.com",
        "https://localhost:8443",
        "https://127.0.0.1",
        "https://[::1]:8443",
        "https://inner.example",
        "https://a.INNER.example",
        "https://b.corp.example",
        "https://10.1.2.3:8443",
    ] {
        assert_eq!(proxy(direct, "", &set), None, "{direct}");
    }
    assert_eq!(proxy("https://api.openai.com", "proxy = \"none\"", &set), None);
    assert_eq!(proxy("http://h", "proxy = \"http://p:3128\"", &[]), http);
    assert_eq!(proxy("https://10.1.2.3", "", &[("https_proxy", "p:3128"), ("no_proxy", "*")]), None);
    // The small letters win, and a proxy that nobody needs may be anything.
    let both = [("HTTPS_PROXY", "socks5://p"), ("https_proxy", "http://p:3128/")];
    assert_eq!(proxy("https://h", "", &both), http);
    assert_eq!(proxy("http://h", "", &[("HTTPS_PROXY", "socks5://p")]), None);
    let wrong = read(&format!("{UPSTREAM}base_url = \"https://h\""), &[("HTTPS_PROXY", "socks5://p")]);
    assert_eq!(
        wrong.unwrap_err(),
        "environment: HTTPS_PROXY: `$HTTPS_PROXY` is neither http nor https; hint: write http://proxy.example:3128"
    );
}
