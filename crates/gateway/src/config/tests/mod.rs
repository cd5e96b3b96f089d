//! The whole configuration: each problem with its exact words, and what a good file means.

mod engines;
mod environment;
mod targets;
mod whole;

use std::time::Duration;

use super::{Config, DEFAULT_ROUTE};

/// One upstream, so that a test can add what it is about.
const UPSTREAM: &str = "[[upstreams]]\nname = \"u\"\nprovider = \"openai\"\nauth = \"none\"\n";

fn read(text: &str, env: &[(&str, &str)]) -> Result<Config, String> {
    let lookup = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    Config::from_toml(text, "f.toml", &lookup).map_err(|problems| problems.to_string())
}

/// The problems of `text`, one a line.
#[track_caller]
fn complains(text: &str, expected: &[&str]) {
    let problems = read(text, &[("EMPTY", ""), ("SECRET", "s3cr3t space")]).unwrap_err();
    assert_eq!(problems.lines().collect::<Vec<_>>(), expected, "\n{text}");
}

/// The problems of `text` after [`UPSTREAM`], whose four lines are not counted.
#[track_caller]
fn complains_after_upstream(text: &str, expected: &[&str]) {
    let problems = read(&format!("{UPSTREAM}{text}"), &[]).unwrap_err();
    let moved: Vec<String> = problems
        .lines()
        .map(|line| {
            let mut parts = line.splitn(3, ':');
            let (file, number, rest) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
            format!("{file}:{}:{rest}", number.parse::<i64>().unwrap() - 4)
        })
        .collect();
    assert_eq!(moved, expected, "\n{text}");
}

fn good(text: &str) -> Config {
    read(text, &[("KEY", "sk-1"), ("HOST", "example.com")]).unwrap()
}

#[test]
fn ten_problems_are_ten_lines_in_the_order_of_the_file() {
    complains(
        r#"listen = "8080"
threads = 0
lisen = "x"

[[keys]]
name = "a"
sha256 = "12"

[[upstreams]]
name = "openai"
provider = "opneai"
base_url = "localhost:8000"
api_key = "${NOT_SET}"

[[models]]
name = "gpt-*"
upstream = "opnai"

[clocks]
conect_ms = 1
stall_ms = "5s"

[limits]
body_bytes_max = -1
"#,
        &[
            "f.toml:1:10: listen: `8080` is not an IP address with a port; hint: write 127.0.0.1:8080 for this machine only, 0.0.0.0:8080 for every interface",
            "f.toml:2:11: threads: must be a whole number from 1 to 1024, not 0",
            "f.toml:3:1: lisen: unknown key; hint: did you mean `listen`?",
            "f.toml:7:10: keys[0].sha256: is not 64 hexadecimal digits; hint: `firsttoken key new` prints this line",
            "f.toml:11:12: upstreams[0].provider: `opneai` is not a provider; hint: `openai` (also for every compatible server) or `anthropic`",
            "f.toml:12:12: upstreams[0].base_url: `localhost:8000` is not a URL: it has no scheme; hint: write https://api.openai.com",
            "f.toml:13:11: upstreams[0].api_key: environment variable `NOT_SET` is not set; hint: export NOT_SET=… before starting, or write `$${` for a literal `${`",
            "f.toml:17:12: models[0].upstream: no upstream is called `opnai`; hint: did you mean `openai`?",
            "f.toml:20:1: clocks.conect_ms: unknown key; hint: did you mean `connect_ms`?",
            "f.toml:21:12: clocks.stall_ms: must be milliseconds from 1 to 86400000 or \"off\", not a string",
            "f.toml:24:18: limits.body_bytes_max: must be a whole number from 1 to 1073741824, not -1",
        ],
    );
}

#[test]
fn what_is_not_toml_is_said_alone() {
    let problems = read("listen = \nname = 'x\nthreads = 1 2\n", &[]).unwrap_err();
    let places: Vec<_> = problems.lines().filter_map(|line| line.split_once(": not TOML: ")).collect();
    let places: Vec<_> = places.into_iter().map(|(place, _)| place).collect();
    assert_eq!(places, ["f.toml:1:10", "f.toml:2:10", "f.toml:3:11"]);
    assert_eq!(problems.lines().count(), 3);
    complains("listen = 'a'\nlisten = 'b'\n", &["f.toml:2:1: not TOML: duplicate key"]);
}

#[test]
fn an_empty_file_lacks_an_upstream() {
    let nobody = "f.toml:1:1: no [[upstreams]]: nobody would answer; hint: add [[upstreams]] with `name`, `provider` and `api_key`, or [[engines]] with `name` and `file`";
    complains("", &[nobody]);
    complains("upstreams = []", &[nobody]);
}

#[test]
fn every_type_is_checked() {
    complains_after_upstream(
        "h2c = 1\nproxy = true\n[[models]]\nname = 1979-05-27\naliases = \"x\"\n[[models]]\nname = \"n\"\naliases = [\"a\", 1.5]\n",
        &[
            "f.toml:1:7: upstreams[0].h2c: must be true or false, not an integer",
            "f.toml:2:9: upstreams[0].proxy: must be a string, not a boolean",
            "f.toml:4:8: models[0].name: must be a string, not a date",
            "f.toml:5:11: models[0].aliases: must be a list of strings, not a string",
            "f.toml:8:17: models[1].aliases[1]: must be a string, not a float",
        ],
    );
    complains(
        "clocks = 3\nupstreams = { name = 'u' }\nkeys = [1]\n",
        &[
            "f.toml:1:10: clocks: must be a table ([clocks]), not an integer",
            "f.toml:2:13: upstreams: must be a list of tables ([[upstreams]]), not a table",
            "f.toml:3:9: keys[0]: must be a table, not an integer",
        ],
    );
}

#[test]
fn an_unknown_key_that_resembles_none_shows_the_choice() {
    complains_after_upstream(
        "[stream]\nbuffering = false\n",
        &[
            "f.toml:2:1: stream.buffering: unknown key; hint: one of head_commit_ms, keepalive_ms, stall_threshold_ms, inject_usage, strict",
        ],
    );
}

#[test]
fn listening_to_the_world_needs_keys() {
    complains(
        &format!("listen = \"0.0.0.0:8080\"\n{UPSTREAM}"),
        &[
            "f.toml:1:10: listen: `0.0.0.0:8080` can be reached from other machines, and there are no keys; hint: `firsttoken key new` makes a key and prints its [[keys]] entry; or listen on 127.0.0.1",
        ],
    );
    complains(
        &format!("listen = \"[::]:80\"\nkeys = []\n{UPSTREAM}"),
        &[
            "f.toml:1:10: listen: `[::]:80` can be reached from other machines, and there are no keys; hint: `firsttoken key new` makes a key and prints its [[keys]] entry; or listen on 127.0.0.1",
        ],
    );
    for loopback in ["127.0.0.1:0", "[::1]:8080", "127.8.8.8:80"] {
        good(&format!("listen = \"{loopback}\"\n{UPSTREAM}"));
    }
    let elsewhere = "192.0.2.1:80".parse().unwrap();
    assert_eq!(
        good(UPSTREAM).listen_on(elsewhere).unwrap_err(),
        "`192.0.2.1:80` can be reached from other machines, and there are no keys; hint: `firsttoken key new` makes a key and prints its [[keys]] entry; or listen on 127.0.0.1"
    );
    let key = "[[keys]]\nname = \"k\"\nsha256 = \"".to_owned() + &"Ab".repeat(32) + "\"\n";
    let config = good(&format!("listen = \"0.0.0.0:8080\"\n{key}{UPSTREAM}"));
    assert_eq!(
        config.keys.first().map(|key| (key.sha256, key.tenant.clone())),
        Some(([0xab; 32], "k".into()))
    );
}

#[test]
fn keys_are_told_apart_and_never_repeated() {
    let hash = "00".repeat(31) + "01";
    complains_after_upstream(
        &format!(
            "[[keys]]\nname = \"a\"\nsha256 = \"{hash}\"\n[[keys]]\nname = \"a\"\nsha256 = \"{hash}\"\n\
             [[keys]]\nname = \" b\"\nsha256 = \"ft-0123\"\n[[keys]]\ntenant = \"\"\n"
        ),
        &[
            "f.toml:5:8: keys[1].name: has the same name as keys[0].name; hint: each must be different",
            "f.toml:6:10: keys[1].sha256: is the same key as keys[0].sha256; hint: each must be different",
            "f.toml:8:8: keys[2].name: ` b` must not start or end with a space or have control characters in it",
            "f.toml:9:10: keys[2].sha256: is not 64 hexadecimal digits; hint: this is the key itself; here goes its SHA-256, so that the file gives nothing away",
            "f.toml:10:1: keys[3]: `name` is missing; hint: give it a name of its own, for logs and metrics",
            "f.toml:10:1: keys[3]: `sha256` is missing; hint: `firsttoken key new` makes a key and prints this line",
            "f.toml:11:10: keys[3].tenant: `` must have 1 to 64 characters, not 0",
        ],
    );
}

#[test]
fn networks_and_origins() {
    complains(
        &format!(
            "trusted_proxies = [\"10.1.2.3/8\", \"10.0.0.0/33\", \"proxy\", \"::/0\"]\n\
             cors_origins = [\"*\", \"https://a.example/\", \"app.example\", \"http://a.example:99999\"]\n{UPSTREAM}"
        ),
        &[
            "f.toml:1:20: trusted_proxies[0]: `10.1.2.3/8` is an address with a prefix, not a network; hint: write 10.0.0.0/8, or the address alone",
            "f.toml:1:34: trusted_proxies[1]: `10.0.0.0/33` has a prefix that is not 0 to 32",
            "f.toml:1:49: trusted_proxies[2]: `proxy` is neither an address nor a network; hint: write 10.0.0.0/8, 192.0.2.7 or fd00::/8",
            "f.toml:2:22: cors_origins[1]: `https://a.example/` is more than an origin; hint: browsers send scheme, host and port only, without a `/` at the end",
            "f.toml:2:44: cors_origins[2]: `app.example` is not a URL: it has no scheme; hint: write https://app.example, or *",
            "f.toml:2:59: cors_origins[3]: `http://a.example:99999` has a port that is not 1 to 65535",
        ],
    );
    complains(
        &format!("cors_origins = [\"https://a.example\", \"*\"]\n{UPSTREAM}"),
        &[
            "f.toml:1:38: cors_origins[1]: `*` allows every origin, so the others say nothing; hint: keep `*` alone, or take it out",
        ],
    );
    let config = good(&format!(
        "trusted_proxies = [\"10.0.0.0/8\", \"192.0.2.7\", \"fd00::/8\"]\ncors_origins = [\"*\"]\n{UPSTREAM}"
    ));
    let trusted = |addr: &str| config.trusted_proxies.iter().any(|net| net.contains(addr.parse().unwrap()));
    assert!(["10.255.0.1", "192.0.2.7", "fdff::1", "::ffff:10.0.0.1"].into_iter().all(trusted));
    assert!(!["11.0.0.1", "192.0.2.8", "fe00::1", "::ffff:11.0.0.1", "::"].into_iter().any(trusted));
    assert_eq!(config.cors_origins, ["*"]);
}

#[test]
fn bounds_that_contradict_each_other() {
    complains_after_upstream(
        "[limits]\nevent_bytes_max = 300000\nheader_bytes_max = 100\nconnections_max = 0\nrequest_timeout_ms = 0\n\
         client_stall_ms = \"off\"\n",
        &[
            "f.toml:2:19: limits.event_bytes_max: event_bytes_max = 300000 is more than stream_bytes_max = 262144, which must hold a whole event; hint: lower the first or raise the second",
            "f.toml:3:20: limits.header_bytes_max: must be a whole number from 8192 to 1048576, not 100",
            "f.toml:4:19: limits.connections_max: must be a whole number from 1 to 1000000, not 0",
            "f.toml:5:22: limits.request_timeout_ms: must be milliseconds from 1 to 86400000, not 0",
            "f.toml:6:19: limits.client_stall_ms: must be milliseconds from 1 to 86400000, not a string",
        ],
    );
    complains_after_upstream(
        "[limits]\nstream_bytes_max = 65536\n",
        &[
            "f.toml:2:20: limits.stream_bytes_max: event_bytes_max = 131072 is more than stream_bytes_max = 65536, which must hold a whole event; hint: lower the first or raise the second",
        ],
    );
    complains_after_upstream(
        "[clocks]\nconnect_ms = 0\nheaders_ms = 200000\nidle_ms = 700000\n[stream]\nhead_commit_ms = 120000\nstall_threshold_ms = 60000\n",
        &[
            "f.toml:2:14: clocks.connect_ms: must be milliseconds from 1 to 86400000 or \"off\", not 0",
            "f.toml:3:14: clocks.headers_ms: 200000 ms never run out: first_content_ms = 120000 ends the request first; hint: lower it, or raise first_content_ms",
            "f.toml:4:11: clocks.idle_ms: 700000 ms never run out: total_ms = 600000 ends the request first; hint: lower it, or raise total_ms",
            "f.toml:6:18: stream.head_commit_ms: 120000 ms must be below first_content_ms = 120000, which ends the request first; hint: lower it, or raise first_content_ms",
            "f.toml:7:22: stream.stall_threshold_ms: 60000 ms must be below stall_ms = 60000, which ends the request first; hint: lower it, or raise stall_ms",
        ],
    );
}

#[test]
fn lowering_one_clock_does_not_force_the_others() {
    let config = good(&format!("{UPSTREAM}[clocks]\nfirst_content_ms = 1000\ntotal_ms = 30000\n"));
    assert_eq!(config.defaults.clocks.first_content, Some(Duration::from_secs(1)));
    assert_eq!(config.defaults.clocks.headers, Some(Duration::from_mins(1)));
}

#[test]
fn routes_change_what_they_say() {
    let config = good(&format!(
        "{UPSTREAM}[clocks]\nstall_ms = 7000\n[stream]\ninject_usage = false\n\
         [[routes]]\nname = \"slow\"\nmodels = [\"o3*\"]\npaths = [\"/v1/chat/completions\"]\n\
         [routes.clocks]\nfirst_content_ms = \"off\"\n[routes.stream]\nhead_commit_ms = 0\n\
         [[routes]]\nname = \"other\"\npaths = [\"/v1/emb*\"]\n"
    ));
    let (policy, route) = config.policy(Some("o3-mini"), "/v1/chat/completions");
    assert_eq!((route, policy.clocks.first_content, policy.head_commit), ("slow", None, Duration::ZERO));
    assert_eq!((policy.clocks.stall, policy.inject_usage), (Some(Duration::from_secs(7)), false));
    assert_eq!(config.policy(Some("o3-mini"), "/v1/messages").1, DEFAULT_ROUTE);
    assert_eq!(config.policy(Some("gpt-5"), "/v1/chat/completions").1, DEFAULT_ROUTE);
    assert_eq!(config.policy(None, "/v1/chat/completions").1, DEFAULT_ROUTE);
    assert_eq!(config.policy(None, "/v1/embeddings").1, "other");
}

#[test]
fn routes_that_make_no_sense() {
    complains_after_upstream(
        "[[models]]\nname = \"gpt-5\"\n[[routes]]\nname = \"default\"\nmodels = [\"gtp-5\"]\npaths = [\"v1\", \"/a?b\"]\n\
         [[routes]]\nname = \"b\"\nmodels = [\"gpt-*\"]\n[[routes]]\nname = \"b\"\nmodels = [\"gpt-5\"]\n\
         [[routes]]\nname = \"c\"\n[routes.clocks]\ntotal = 5\n",
        &[
            "f.toml:4:8: routes[0].name: `default` is what the timeline calls no route; hint: choose another name",
            "f.toml:5:11: routes[0].models[0]: no rule of [[models]] serves `gtp-5`; hint: did you mean `gpt-5`?",
            "f.toml:6:10: routes[0].paths[0]: `v1` is not a path; hint: write /v1/messages or /v1/*",
            "f.toml:6:16: routes[0].paths[1]: `/a?b` is not a path; hint: write /v1/messages or /v1/*",
            "f.toml:10:1: routes[2]: is never reached: routes[1] applies to all of it first; hint: put it before that route",
            "f.toml:11:8: routes[2].name: has the same name as routes[1].name; hint: each must be different",
            "f.toml:16:1: routes[3].clocks.total: unknown key; hint: did you mean `total_ms`?",
        ],
    );
}
