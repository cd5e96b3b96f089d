//! What is asked of an engine and its peer, and the bars.
//!
//! Phases are in the words of the load client (`load-client phases --help`): a letter of a prompt is a token.

use super::super::judge::{Arm, Fold, Judge, Peer};
use super::super::table::{Bar, Load, Scenario};

/// One way of asking a model server.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Engine {
    /// Arguments of the maker of models.
    pub(super) model: &'static [&'static str],
    /// The same for a draft that ours has; nothing: none.
    pub(super) draft: &'static [&'static str],
    /// Keys of `[[engines]]` for ours; nothing: as it comes.
    pub(super) keys: &'static str,
    /// Who takes turns.
    pub(super) arms: &'static [Arm],
    /// What fills the cache of ours, which then lives through all rounds; nothing: it is fresh each time.
    pub(super) fill: &'static [&'static str],
    /// What is asked in each turn.
    pub(super) phases: &'static [&'static str],
}

impl Engine {
    /// Whose equal takes the turn of [`Arm::Again`].
    pub(super) fn again(&self) -> Arm {
        if self.arms.contains(&Arm::Llama) { Arm::Llama } else { Arm::Clean }
    }
}

/// 125 million weights whose answers depend on every token: nothing repeats, so nothing can be guessed.
pub(super) const MEDIUM: &[&str] = &["--size", "medium"];
/// The same size, saying the same 64 tokens over and over.
const COPYING: &[&str] = &["--size", "medium", "--peaked", "--ring", "64"];

/// The same size, never repeating itself within an answer.
const RECITING: &[&str] = &["--size", "medium", "--peaked"];
/// Seven times smaller, and of the same opinion nearly always.
const AGREEING: &[&str] = &["--size", "draft", "--peaked", "--astray", "0.01", "--seed", "2"];
/// Of no opinion that helps.
const USELESS: &[&str] = &["--size", "draft", "--seed", "2"];

/// Ours with a draft, and without, twice.
const DRAFTED: &[Arm] = &[Arm::Ours, Arm::Clean, Arm::Again];
/// The peer as it comes, twice.
const STOCK: &[Arm] = &[Arm::Ours, Arm::Llama, Arm::Again];
/// The same, and tuned by hand.
pub(super) const STOCK_AND_TUNED: &[Arm] = &[Arm::Ours, Arm::Llama, Arm::Tuned, Arm::Again];

/// Every scenario of the engine, in the order in which they are run.
pub(in super::super) const SCENARIOS: &[Scenario] = &[
    engine("engine-decode-1", MEDIUM, STOCK, &["decode:together,own=32,out=128"]),
    engine("engine-decode-8", MEDIUM, STOCK, &["decode:together,count=8,own=32,out=64"]),
    engine("engine-prefill", MEDIUM, STOCK_AND_TUNED, &["prompt:together,own=2048"]),
    shared("engine-shared-cold", &["clients:together,count=8,shared=2048,own=64,out=32"]),
    shared(
        "engine-shared-warm",
        &["first:together,shared=2048,own=64", "clients:together,count=8,shared=2048,own=64,out=32"],
    ),
    engine(
        "engine-serial",
        MEDIUM,
        STOCK,
        &["first:together,shared=2048,own=64,out=8", "later:in-turn,count=31,shared=2048,own=64,out=8"],
    ),
    engine(
        "engine-prefixes",
        MEDIUM,
        STOCK,
        &["first:in-turn,count=64,each=512,own=16", "later:in-turn,count=64,each=512,own=16"],
    ),
    mixed("engine-mixed-4k", &["streams:beside,count=4,own=32,out=4000", "prompt:together,own=4096"]),
    mixed("engine-mixed-8k", &["streams:beside,count=4,own=32,out=4000", "prompt:together,own=8192"]),
    engine(
        "engine-exhausted",
        MEDIUM,
        &[Arm::Ours, Arm::Llama],
        &["streams:together,count=8,own=3500,out=1000"],
    ),
    engine("engine-lookup", COPYING, STOCK, &["copy:together,own=32,out=512,greedy"]),
    drafted("engine-draft", RECITING, AGREEING, &["copy:together,own=32,out=256,greedy"]),
    drafted("engine-draft-useless", MEDIUM, USELESS, &["decode:together,own=32,out=512,greedy"]),
    Scenario {
        name: "engine-idle-100k",
        load: Load::Engine(Engine {
            model: MEDIUM,
            draft: &[],
            keys: "",
            arms: &[Arm::Ours, Arm::Clean, Arm::Again],
            fill: &["fill:in-turn,count=50,own=2048"],
            phases: &["prompt:together,own=2048", "decode:together,own=32,out=64"],
        }),
    },
    Scenario { name: "engine-disk", load: Load::Disk },
    Scenario { name: "engine-overload", load: Load::Overload },
    Scenario { name: "engine-relayed", load: Load::Relayed },
    Scenario { name: "engine-pace", load: Load::Pace },
    Scenario { name: "engine-leave", load: Load::Leave },
    Scenario { name: "engine-step", load: Load::Program(STEP) },
];

/// The scheduler alone, with 256 requests in 100,000 blocks.
const STEP: &[&str] =
    &["run", "--quiet", "--release", "--package", "firsttoken-logic", "--example", "scheduler_step"];

const fn engine(
    name: &'static str,
    model: &'static [&'static str],
    arms: &'static [Arm],
    phases: &'static [&'static str],
) -> Scenario {
    Scenario { name, load: Load::Engine(Engine { model, draft: &[], keys: "", arms, fill: &[], phases }) }
}

/// The peer knows no pace, so ours keeps none: with the usual one the first who are answered hold up the others.
const fn shared(name: &'static str, phases: &'static [&'static str]) -> Scenario {
    let keys = "itl_target_ms = \"off\"\n";
    Scenario {
        name,
        load: Load::Engine(Engine { model: MEDIUM, draft: &[], keys, arms: STOCK, fill: &[], phases }),
    }
}

/// Beside a peer tuned for the case ours is told what gap its readers will bear: with the usual one a prompt takes
/// longer than the peer's, as 100 ms leave room for few of its rows.
const fn mixed(name: &'static str, phases: &'static [&'static str]) -> Scenario {
    let (arms, keys) = (STOCK_AND_TUNED, "itl_target_ms = 360\n");
    Scenario { name, load: Load::Engine(Engine { model: MEDIUM, draft: &[], keys, arms, fill: &[], phases }) }
}

const fn drafted(
    name: &'static str,
    model: &'static [&'static str],
    draft: &'static [&'static str],
    phases: &'static [&'static str],
) -> Scenario {
    Scenario { name, load: Load::Engine(Engine { model, draft, keys: "", arms: DRAFTED, fill: &[], phases }) }
}

const DECODE: &str = "/phases/decode/tpot_us/p50";
const PROMPT: &str = "/phases/prompt/ttft_us/p50";
const STREAMS: &str = "/phases/streams/itl_us/p99";
const CLIENTS_P50: &str = "/phases/clients/ttft_us/p50";
const CLIENTS_MAX: &str = "/phases/clients/ttft_us/max";
const LATER_P50: &str = "/phases/later/ttft_us/p50";

const CAPACITY_OF_GOOD: &str = "/capacity_of_good";

/// Equal to the peer as far as can be seen, and at most 5 % slower: these are costs, so 1 ÷ 0.95.
const PARITY: Judge = Judge::Parity { max: 1.053 };

const fn ratio(max: f64) -> Judge {
    Judge::Ratio { max: Some(max) }
}

const fn plain(fold: Fold, max: f64) -> Judge {
    Judge::Plain { fold, max }
}

/// Name, what, scenario, figure, unit, how it is judged, beside whom.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, Judge, Peer);

use Peer::{Clean, Llama, NoDraft, Tuned};

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("engine-decode-1", "engine: time per token, 1 stream", "engine-decode-1", DECODE, "µs", PARITY, Llama),
    ("engine-decode-8", "engine: time per token, 8 streams", "engine-decode-8", DECODE, "µs", PARITY, Llama),
    ("engine-prefill", "engine: TTFT of 2,048 tokens, nothing cached", "engine-prefill", PROMPT, "µs", PARITY, Llama),
    ("engine-shared-cold-p50", "engine: 8 clients with 2,048 shared and 64 own tokens at once, `itl_target_ms = \"off\"`, TTFT p50", "engine-shared-cold", CLIENTS_P50, "µs", ratio(0.22), Llama),
    ("engine-shared-cold-max", "engine: the same, TTFT of the last", "engine-shared-cold", CLIENTS_MAX, "µs", ratio(0.12), Llama),
    ("engine-shared-warm-p50", "engine: the same with the prefix cached, TTFT p50", "engine-shared-warm", CLIENTS_P50, "µs", ratio(0.04), Llama),
    ("engine-shared-warm-max", "engine: the same, TTFT of the last", "engine-shared-warm", CLIENTS_MAX, "µs", ratio(0.03), Llama),
    ("engine-serial-p50", "engine: 32 clients one after another on that prefix, TTFT p50", "engine-serial", LATER_P50, "µs", ratio(1.05), Llama),
    ("engine-serial-of-cold", "engine: the same, as a part of the first", "engine-serial", "/later_of_first", "", plain(Fold::Median, 0.04), Llama),
    ("engine-prefixes-p50", "engine: 64 prefixes of 512 in turn, TTFT p50", "engine-prefixes", LATER_P50, "µs", ratio(1.0), Llama),
    ("engine-prefixes-p99", "engine: the same, p99", "engine-prefixes", "/phases/later/ttft_us/p99", "µs", ratio(0.5), Llama),
    ("engine-mixed-4k-itl", "engine: ITL p99 of 4 streams when a prompt of 4,096 arrives", "engine-mixed-4k", STREAMS, "µs", ratio(0.08), Llama),
    ("engine-mixed-4k-ttft", "engine: TTFT of that prompt", "engine-mixed-4k", PROMPT, "µs", ratio(1.1), Llama),
    ("engine-mixed-4k-tuned-itl", "engine: ITL p99 of these streams, peer tuned for it", "engine-mixed-4k", STREAMS, "µs", ratio(0.9), Tuned),
    ("engine-mixed-4k-tuned-ttft", "engine: TTFT of that prompt, peer tuned for it", "engine-mixed-4k", PROMPT, "µs", ratio(1.0), Tuned),
    ("engine-mixed-8k-itl", "engine: ITL p99 of 4 streams when a prompt of 8,192 arrives", "engine-mixed-8k", STREAMS, "µs", ratio(0.08), Llama),
    ("engine-mixed-8k-ttft", "engine: TTFT of that prompt", "engine-mixed-8k", PROMPT, "µs", ratio(1.1), Llama),
    ("engine-mixed-8k-tuned-itl", "engine: ITL p99 of these streams, peer tuned for it", "engine-mixed-8k", STREAMS, "µs", ratio(0.9), Tuned),
    ("engine-mixed-8k-tuned-ttft", "engine: TTFT of that prompt, peer tuned for it", "engine-mixed-8k", PROMPT, "µs", ratio(1.0), Tuned),
    ("engine-exhausted", "engine: streams that failed when running streams exhausted the KV memory", "engine-exhausted", "/failed", "", plain(Fold::Sum, 0.0), Llama),
    ("engine-lookup", "engine: time per token of copied text by prompt lookup", "engine-lookup", "/phases/copy/tpot_us/p50", "µs", ratio(0.5), Llama),
    ("engine-draft", "engine: time per token with a draft that is mostly right", "engine-draft", "/phases/copy/tpot_us/p50", "µs", ratio(0.714), NoDraft),
    ("engine-draft-rejected", "engine: guesses of that draft that were wrong", "engine-draft", "/draft/wrong_of_guesses", "", plain(Fold::Median, 0.1), NoDraft),
    ("engine-draft-useless", "engine: time per token with a draft that cannot help", "engine-draft-useless", DECODE, "µs", ratio(1.03), NoDraft),
    ("engine-draft-useless-rows", "engine: rows of a stream of 512 tokens that were its wrong guesses", "engine-draft-useless", "/draft/wrong_of_rows", "", plain(Fold::Median, 0.03), NoDraft),
    ("engine-idle-100k-prefill", "engine: TTFT of 2,048 tokens beside 100k cached tokens of others", "engine-idle-100k", PROMPT, "µs", ratio(1.03), Clean),
    ("engine-idle-100k-decode", "engine: time per token beside 100k cached tokens of others", "engine-idle-100k", DECODE, "µs", ratio(1.05), Clean),
    ("engine-disk", "engine: TTFT behind a system prompt of 2,048 tokens that is on disk and not in the page cache", "engine-disk", PROMPT, "µs", ratio(0.1), Clean),
    ("engine-overload-good", "engine: capacity ÷ good answers, twice the capacity offered", "engine-overload", CAPACITY_OF_GOOD, "", ratio(0.333), Llama),
    ("engine-overload-tuned-good", "engine: the same, peer tuned", "engine-overload", CAPACITY_OF_GOOD, "", ratio(0.333), Tuned),
    ("engine-overload-capacity", "engine: the same, alone", "engine-overload", CAPACITY_OF_GOOD, "", plain(Fold::Median, 1.667), Llama),
    ("engine-overload-failed", "engine: errors other than 429 meanwhile", "engine-overload", "/failed", "", plain(Fold::Sum, 0.0), Llama),
    ("engine-overload-again", "engine: part of those refused with 429 who are refused again after `Retry-After`", "engine-overload", "/refused_again_of_refused", "", plain(Fold::Median, 0.1), Llama),
    ("engine-relayed-itl", "ITL p99 of 64 relayed streams beside an engine with all it can do, against without", "engine-relayed", "/itl_p99_ratio", "×", plain(Fold::Median, 3.0), Llama),
    ("engine-pace", "engine: ITL p99 as a part of its target, the worst of 27 cases of those that can be kept", "engine-pace", "/worst", "", plain(Fold::Median, 1.1), Llama),
    ("engine-leave", "engine: cells still in use when half of 2,000 streams have left and the others are answered", "engine-leave", "/left_behind", "", plain(Fold::Sum, 0.0), Llama),
    ("engine-leave-failed", "engine: streams of the others that failed", "engine-leave", "/failed", "", plain(Fold::Sum, 0.0), Llama),
    ("engine-leave-others", "engine: time per token of 8 streams while 50 others a second come and leave, against without", "engine-leave", "/others_ratio", "×", plain(Fold::Median, 1.1), Llama),
    ("engine-step", "engine: a decision of the scheduler, 256 sequences, 100,000 blocks", "engine-step", "/decision_us/p50", "µs", plain(Fold::Median, 50.0), Llama),
];

/// Every bar of the engine.
pub(in super::super) fn bars() -> impl Iterator<Item = Bar> {
    ROWS.iter().map(|&(name, what, scenario, figure, unit, judge, peer)| Bar {
        name: name.to_owned(),
        what: what.to_owned(),
        scenario,
        figure,
        unit,
        judge,
        peer,
    })
}
