//! All bars: what is measured, where the figure stands in the report of its scenario, and how it is
//! judged. A bar more is a row more.

use super::engine::table::{self as engine, Engine};
use super::judge::{Fold, Judge, Peer};

/// One thing that is promised.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    /// How it is asked for and recorded.
    pub(super) name: String,
    /// What it is, for a reader of the README.
    pub(super) what: String,
    /// Which scenario measures it.
    pub(super) scenario: &'static str,
    /// JSON pointer to the figure in a report of that scenario.
    pub(super) figure: &'static str,
    /// Unit of the figure.
    pub(super) unit: &'static str,
    /// How the figures of all rounds become a verdict.
    pub(super) judge: Judge,
    /// Beside whom a ratio is formed.
    pub(super) peer: Peer,
}

/// One way of loading a gateway or an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    /// How bars refer to it, and how its raw figures are filed.
    pub(super) name: &'static str,
    /// What is done.
    pub(super) load: Load,
}

/// What a scenario does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// The load client's closed loop.
    Closed(Closed),
    /// Clients leave; the mock says when it noticed.
    Cancel { state: &'static str, http2: bool },
    /// Memory idle and under open streams.
    Memory,
    /// Healthy streams beside thousands that are never read.
    Stalled,
    /// Clients leave while the gateway dials.
    Connecting,
    /// A test of our own, by cargo's arguments: the figure `/broken` is 0 if it passes, 1 if it fails.
    Command(&'static [&'static str]),
    /// A program of our own, by cargo's arguments: it measures, and prints one report.
    Program(&'static [&'static str]),
    /// The questions of the sample documents, to the demo model.
    Demo,
    /// Phases of requests at an engine.
    Engine(Engine),
    /// A system prompt on disk.
    Disk,
    /// More requests than an engine can answer.
    Overload,
    /// Relayed streams beside an engine that has all it can do.
    Relayed,
    /// Readers of an engine, and prompts that arrive.
    Pace,
    /// Clients of an engine that leave.
    Leave,
}

/// What has to be there for a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Our gateway and nginx.
    Gateway,
    /// Our engine and llama-server.
    Engine,
    /// Nothing but what the load itself builds.
    Alone,
}

impl Load {
    /// What has to be there.
    pub(super) const fn side(&self) -> Side {
        match self {
            Self::Closed(_) | Self::Cancel { .. } | Self::Memory | Self::Stalled | Self::Connecting => {
                Side::Gateway
            }
            Self::Engine(_) | Self::Disk | Self::Overload | Self::Relayed | Self::Pace | Self::Leave => {
                Side::Engine
            }
            Self::Command(_) | Self::Program(_) | Self::Demo => Side::Alone,
        }
    }
}

/// One closed loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    /// Requests in flight.
    pub(super) streams: u32,
    /// What the mock shall do.
    pub(super) spec: &'static str,
    /// Time over which the first requests are spread, s: one stream's life, so that they do not march in step.
    pub(super) ramp_s: f64,
    /// Time that counts, s.
    pub(super) window_s: f64,
    /// Further arguments of the load client.
    pub(super) more: &'static [&'static str],
}

/// Every scenario, in the order in which they are run.
pub(super) fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    GATEWAY.iter().chain(engine::SCENARIOS)
}

/// Those of the gateway.
const GATEWAY: &[Scenario] = &[
    closed("ttft-1", 1, "ttft2,n1", 0.0, 7.5, &[]),
    closed("paced-64", 64, "ttft20,itl20,n50", 1.0, 5.0, &[]),
    closed("paced-512", 512, "ttft20,itl20,n50", 1.0, 5.0, &[]),
    closed("translated-512", 512, "ttft20,itl20,n50", 1.0, 5.0, &["--model", "claude"]),
    closed("unpaced", 32, "n1000", 0.2, 3.0, &[]),
    closed("nonstream", 32, "n50", 0.1, 2.0, &["--no-stream"]),
    closed("ttft-200kb", 4, "ttft10,n2", 0.0, 3.0, &["--prompt-bytes", "200000"]),
    cancel("cancel-mid-stream", "mid-stream", false),
    cancel("cancel-silent", "silent", false),
    cancel("cancel-before-first-byte", "before-first-byte", false),
    cancel("cancel-non-stream", "non-stream", false),
    cancel("cancel-mid-stream-h2", "mid-stream", true),
    cancel("cancel-silent-h2", "silent", true),
    cancel("cancel-before-first-byte-h2", "before-first-byte", true),
    cancel("cancel-non-stream-h2", "non-stream", true),
    Scenario { name: "cancel-connecting", load: Load::Connecting },
    Scenario { name: "stalled-readers", load: Load::Stalled },
    Scenario { name: "memory", load: Load::Memory },
    Scenario { name: "demo", load: Load::Demo },
    Scenario { name: "hedge", load: Load::Program(HEDGE) },
    Scenario { name: "limit", load: Load::Program(LIMIT) },
    Scenario { name: "forecast", load: Load::Program(FORECAST) },
    Scenario { name: "relay-invariant", load: Load::Command(RELAY_INVARIANT) },
];

/// Hedging in virtual time, beside the best that could be done.
const HEDGE: &[&str] =
    &["run", "--quiet", "--release", "--package", "firsttoken-logic", "--example", "hedging"];

/// A line before an upstream under three times its capacity, in virtual time.
const LIMIT: &[&str] =
    &["run", "--quiet", "--release", "--package", "firsttoken-logic", "--example", "overload"];

/// Forecasts and routing by them in virtual time, beside who knows the truth.
const FORECAST: &[&str] =
    &["run", "--quiet", "--release", "--package", "firsttoken-logic", "--example", "forecast"];

/// Whole events through random splits, resets and disconnects, a million of them.
const RELAY_INVARIANT: &[&str] = &[
    "--config",
    "env.EVENTS='1000000'",
    "test",
    "--release",
    "--package",
    "firsttoken-world",
    "--test",
    "invariant",
    "--",
    "--nocapture",
];

const fn closed(
    name: &'static str,
    streams: u32,
    spec: &'static str,
    ramp_s: f64,
    window_s: f64,
    more: &'static [&'static str],
) -> Scenario {
    Scenario { name, load: Load::Closed(Closed { streams, spec, ramp_s, window_s, more }) }
}

const fn cancel(name: &'static str, state: &'static str, http2: bool) -> Scenario {
    Scenario { name, load: Load::Cancel { state, http2 } }
}

/// Streams that are open in the larger memory bar, and readers that stall.
pub(super) const MANY: u32 = 5_000;
/// Bytes that the gateway may hold for one stream, as we configure it (its own default).
pub(super) const STREAM_BYTES_MAX: u32 = 256 * 1024;
const BOUND_KIB: f64 = STREAM_BYTES_MAX as f64 / 1024.0;

const TTFT_P50: &str = "/added_ttft_us/p50";
const TTFT_P99: &str = "/added_ttft_us/p99";
const TOKEN_P50: &str = "/token_delay_us/p50";
const TOKEN_P99: &str = "/token_delay_us/p99";
const CPU_TOKEN: &str = "/cpu_us_per_token";

/// Name, what, scenario, figure, unit, how it is judged.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, Judge);

const fn ratio(max: f64) -> Judge {
    Judge::Ratio { max: Some(max) }
}

const fn plain(fold: Fold, max: f64) -> Judge {
    Judge::Plain { fold, max }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("ttft-1-p50", "added TTFT, 1 stream, p50", "ttft-1", TTFT_P50, "µs", ratio(1.4)),
    ("ttft-1-p99", "added TTFT, 1 stream, p99", "ttft-1", TTFT_P99, "µs", ratio(1.4)),
    ("ttft-64-p50", "added TTFT, 64 streams, p50", "paced-64", TTFT_P50, "µs", ratio(1.4)),
    ("ttft-64-p99", "added TTFT, 64 streams, p99", "paced-64", TTFT_P99, "µs", ratio(1.4)),
    ("ttft-512-p50", "added TTFT, 512 streams, p50", "paced-512", TTFT_P50, "µs", ratio(1.1)),
    ("ttft-512-p99", "added TTFT, 512 streams, p99", "paced-512", TTFT_P99, "µs", ratio(1.1)),
    ("token-64-p50", "added delay per token, 64 streams, p50", "paced-64", TOKEN_P50, "µs", ratio(1.1)),
    ("token-64-p99", "added delay per token, 64 streams, p99", "paced-64", TOKEN_P99, "µs", ratio(1.1)),
    ("token-512-p50", "added delay per token, 512 streams, p50", "paced-512", TOKEN_P50, "µs", ratio(1.1)),
    ("token-512-p99", "added delay per token, 512 streams, p99", "paced-512", TOKEN_P99, "µs", ratio(1.1)),
    ("cpu-512", "CPU per relayed token, 512 streams", "paced-512", CPU_TOKEN, "µs", ratio(1.15)),
    ("cpu-64", "CPU per relayed token, 64 streams", "paced-64", CPU_TOKEN, "µs", Judge::Ratio { max: None }),
    ("translated-cpu-512", "CPU per translated token (Chat Completions before Messages), 512 streams", "translated-512", CPU_TOKEN, "µs", ratio(2.5)),
    ("translated-token-512-p50", "added delay per translated token, 512 streams, p50", "translated-512", TOKEN_P50, "µs", ratio(2.0)),
    ("cpu-unpaced", "CPU per token, unpaced", "unpaced", CPU_TOKEN, "µs", ratio(1.2)),
    ("cpu-nonstream", "CPU per non-streaming request", "nonstream", "/cpu_us_per_request", "µs", ratio(2.6)),
    ("ttft-200kb", "added TTFT of a 200 kB prompt, p50", "ttft-200kb", TTFT_P50, "µs", ratio(1.8)),
    ("memory-idle", "memory (PSS), idle", "memory", "/pss_mib/idle", "MiB", plain(Fold::Worst, 25.0)),
    ("memory-1000", "memory (PSS), 1,000 open streams after 60 s", "memory", "/pss_mib/open_1000", "MiB", plain(Fold::Worst, 60.0)),
    ("memory-5000", "memory (PSS), 5,000 open streams after 60 s", "memory", "/pss_mib/open_5000", "MiB", plain(Fold::Worst, 200.0)),
    ("stalled-readers-memory", "memory per reader that stalls, of 5,000", "stalled-readers", "/pss_kib_per_reader", "KiB", plain(Fold::Worst, BOUND_KIB + 40.0)),
    ("stalled-readers-pulled", "pulled from upstream per reader that stalls, worst", "stalled-readers", "/pulled_kib_max", "KiB", plain(Fold::Worst, BOUND_KIB + 256.0)),
    ("stalled-readers-itl", "ITL p99 of 64 healthy streams beside 5,000 that stall, against without", "stalled-readers", "/itl_p99_ratio", "×", plain(Fold::Median, 1.5)),
    ("stalled-readers-kept", "readers that stall and were lost before their time", "stalled-readers", "/lost", "", plain(Fold::Worst, 0.0)),
    ("cancel-connecting", "requests sent upstream > 5 ms after their client left", "cancel-connecting", "/late_requests", "", plain(Fold::Sum, 0.0)),
    ("demo-page", "demo model: sample questions (billing) not answered from the right page", "demo", "/billing/page_wrong", "%", plain(Fold::Worst, 8.0)),
    ("demo-sentence", "demo model: … or not with the right sentence", "demo", "/billing/sentence_wrong", "%", plain(Fold::Worst, 12.0)),
    ("demo-unseen-page", "demo model: questions about unseen documents not answered from the right page", "demo", "/unseen/page_wrong", "%", plain(Fold::Worst, 15.0)),
    ("demo-unseen-sentence", "demo model: … or not with the right sentence", "demo", "/unseen/sentence_wrong", "%", plain(Fold::Worst, 30.0)),
    ("demo-refused", "demo model: questions without an answer that were answered, both sets", "demo", "/all/answered_falsely", "%", plain(Fold::Worst, 20.0)),
    ("demo-answered", "demo model: questions with an answer that were refused, both sets", "demo", "/all/refused_falsely", "%", plain(Fold::Worst, 6.0)),
    ("demo-broken", "demo model: answers that are no sentence of the page they cite, of 90", "demo", "/all/broken", "", plain(Fold::Worst, 0.0)),
    ("demo-ttft", "demo model: time to the first token of 1,000 that nobody has computed", "demo", "/ttft_ms", "ms", plain(Fold::Median, 150.0)),
    ("demo-token", "demo model: time for each further token of one answer", "demo", "/token_ms", "ms", plain(Fold::Median, 1.0)),
    ("hedge-p99", "hedging, 2 % of calls ten times as slow, 5 % copies, simulated: p99 of TTFT against without", "hedge", "/p99_ratio", "×", plain(Fold::Worst, 0.25)),
    ("hedge-p999", "hedging: the same, p99.9", "hedge", "/p999_ratio", "×", plain(Fold::Worst, 0.22)),
    ("hedge-p99-at-3", "hedging: the same with 3 % copies, p99", "hedge", "/p99_at_3", "×", plain(Fold::Worst, 0.28)),
    ("hedge-shapes", "hedging: p99 against the best fixed delay with hindsight, the worst of 20 shapes and 4 budgets", "hedge", "/shapes", "×", plain(Fold::Worst, 1.05)),
    ("hedge-budget", "hedging: copies against their budget, the worst of these", "hedge", "/of_budget", "×", plain(Fold::Worst, 1.0)),
    ("hedge-fan-p75", "hedging: the slowest of 20 at once against without, p75", "hedge", "/fan_p75", "×", plain(Fold::Worst, 0.28)),
    ("hedge-fan-p90", "hedging: the same, p90", "hedge", "/fan_p90", "×", plain(Fold::Worst, 0.25)),
    ("hedge-fan-p99", "hedging: the same, p99", "hedge", "/fan_p99", "×", plain(Fold::Worst, 0.24)),
    ("hedge-slow-share", "hedging, everybody five times slower: copies of the next minute's calls, of 1", "hedge", "/slow_share", "", plain(Fold::Worst, 0.01)),
    ("hedge-slow-p99", "hedging: the same, p99 against without", "hedge", "/slow_p99", "×", plain(Fold::Worst, 1.0)),
    ("limit-p99", "upstream of 32 places at three times its capacity, a learnt limit, simulated: p99 of who is taken, the line included, against an idle upstream's", "limit", "/p99_ratio", "×", plain(Fold::Worst, 1.5)),
    ("limit-goodput", "limit: the same, the part of its capacity that comes to nothing, of 1", "limit", "/goodput_lost", "", plain(Fold::Worst, 0.1)),
    ("limit-back", "limit: the same, those who come back exactly when told and are not taken, of 1", "limit", "/back_in_vain", "", plain(Fold::Worst, 0.1)),
    ("limit-mix", "limit: an upstream with room gets prompts sixteen times as long: what its limit falls by, of 1", "limit", "/mix_lost", "", plain(Fold::Worst, 0.0)),
    ("hedge-slow-losses", "hedging: the same, races that copies lose after that minute, of 1", "hedge", "/slow_losses", "", plain(Fold::Worst, 0.8)),
    ("forecast-off", "forecast of p99 of TTFT, windows of 1,000 calls, load ×2 or ÷2 every five, simulated: windows more than 25 % off, of 1", "forecast", "/off", "", plain(Fold::Worst, 0.10)),
    ("forecast-unknown", "forecast: the same, windows without one, of 1", "forecast", "/unknown", "", plain(Fold::Worst, 0.05)),
    ("forecast-missed", "routing by forecast, three models, load changes and incidents, simulated: met budgets short of an oracle's, of 1", "forecast", "/missed", "", plain(Fold::Worst, 0.05)),
    ("forecast-quality", "routing: the same, quality of the models chosen short of an oracle's, of 1", "forecast", "/quality_lost", "", plain(Fold::Worst, 0.05)),
    ("relay-invariant", "relay invariant broken, in 1,000,000 events with random splits, resets and disconnects", "relay-invariant", "/broken", "", plain(Fold::Sum, 0.0)),
];

/// Every bar.
pub(super) fn bars() -> Vec<Bar> {
    let rows = ROWS.iter().map(|&(name, what, scenario, figure, unit, judge)| Bar {
        name: name.to_owned(),
        what: what.to_owned(),
        scenario,
        figure,
        unit,
        judge,
        peer: Peer::Nginx,
    });
    rows.chain(GATEWAY.iter().flat_map(cancel_bars)).chain(engine::bars()).collect()
}

/// The three bars of a client that leaves in some state.
fn cancel_bars(scenario: &Scenario) -> Vec<Bar> {
    let Load::Cancel { state, http2 } = scenario.load else { return Vec::new() };
    let how = if http2 { "HTTP/2 reset" } else { "FIN" };
    let bar = |suffix: &str, what: String, figure, unit, judge| Bar {
        name: format!("{}-{suffix}", scenario.name),
        what,
        scenario: scenario.name,
        figure,
        unit,
        judge,
        peer: Peer::Nginx,
    };
    vec![
        bar("p50", format!("{how} to upstream abort, {state}, p50"), "/latency_us/p50", "µs", ratio(1.5)),
        bar(
            "p99",
            format!("{how} to upstream abort, {state}, p99"),
            "/samples_us",
            "µs",
            plain(Fold::Pooled99, 5_000.0),
        ),
        bar("left", format!("{how}, {state}: left running"), "/left_running", "", plain(Fold::Sum, 0.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_a_scenario_and_a_name_of_its_own() {
        let bars = bars();
        for bar in &bars {
            assert!(scenarios().any(|s| s.name == bar.scenario), "{}", bar.name);
            assert_eq!(bars.iter().filter(|b| b.name == bar.name).count(), 1, "{}", bar.name);
        }
        for scenario in scenarios() {
            assert!(bars.iter().any(|b| b.scenario == scenario.name), "{}", scenario.name);
        }
    }
}
