//! How the simulated provider behaves, and the one place where its knobs are read.
//!
//! A [`Script`] comes from the model name (`sim` is the default script, `sim-ttft200-itl20-n50` turns
//! knobs, any other name is the default script too) and then from the header `x-sim`
//! (`ttft=200 itl=20 n=50 fault=cut@10`), which wins. An unknown knob or a bad value is an error that
//! names it: a test with a misspelt knob must not pass by luck.
//!
//! | knob | value | what it does | default |
//! |---|---|---|---|
//! | `ttft` | latency | request read and slot taken → first content | 150 |
//! | `itl` | latency | one chunk → the next | 15 |
//! | `head` | ms | request read → response head and opening frame | with the first content |
//! | `prefill` | ms | added to `ttft` for every 1,000 prompt tokens | 0 |
//! | `n` | tokens | length of the text (`max_tokens` of the request cuts it) | the canned text |
//! | `chunk` | tokens | tokens in one chunk (event) | 1 |
//! | `bytes` | bytes | size of every text token | words |
//! | `write` | chunks | chunks that leave in one write, when the last of them is due | 1 |
//! | `slots` | requests | answered at the same time; more of them wait | no bound |
//! | `queue` | requests | that may wait for a slot; more get 503 | 1,024 |
//! | `rate` | requests/s | more of them get 429 with `Retry-After` | no bound |
//! | `retryafter` | s | `Retry-After` of a scripted 429 or 503 | 1 for 429 |
//! | `tool`, `tools` | calls | calls that many of the request's tools, until a tool result comes back | 0, or 1 that it must call |
//! | `reasoning` | tokens | thinks aloud first | 0 |
//! | `cached` | tokens | prompt tokens reported as read from the cache | 0 |
//! | `usage` | 0 or 1 | whether token counts are reported | 1 |
//! | `fault` | [`FaultSpec`] | what goes wrong | nothing |
//! | `times` | requests | the fault strikes so many of this model's requests, then no more | all |
//!
//! A latency is `MS`, `MS~SIGMA` (lognormal with that median), `MSxFACTORpPROBABILITY` (bimodal),
//! or `MS~SIGMAxFACTORpPROBABILITY`. A token is about four bytes of a prompt, and a word of an answer.
//!
//! Invariant: every knob has an upper bound, so that no request can ask for unbounded memory.

use std::time::Duration;

use crate::fault::FaultSpec;
use crate::latency::{self, Latency};

/// Most tokens a text can be asked to have.
pub const TEXT_TOKENS_MAX: u32 = 10_000_000;
/// Most tokens a chunk can have, and most chunks a write.
pub const GROUP_MAX: u32 = 10_000;
/// Most bytes a token can have.
pub const TOKEN_BYTES_MAX: u32 = 65_536;
/// Most bytes one write can have: `bytes` × `chunk` × `write`.
pub const WRITE_BYTES_MAX: u64 = 16 << 20;
/// Most requests that `slots`, `queue`, `rate` and `times` can speak of.
pub const REQUESTS_MAX: u32 = 1_000_000;
/// Most tool calls in one answer.
pub const TOOLS_MAX: u32 = 64;
/// Longest `Retry-After`, in seconds.
pub const RETRY_AFTER_S_MAX: u32 = 86_400;

/// Every knob, as it is spelt.
const KNOBS: [&str; 19] = [
    "ttft",
    "itl",
    "head",
    "prefill",
    "n",
    "chunk",
    "bytes",
    "write",
    "slots",
    "queue",
    "rate",
    "retryafter",
    "tool",
    "tools",
    "reasoning",
    "cached",
    "usage",
    "fault",
    "times",
];

/// What the provider does with a request. The table of the module says what each part means.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// Request read and slot taken → first content.
    pub ttft: Latency,
    /// One chunk → the next.
    pub itl: Latency,
    /// Request read → head and opening frame, where that is not the first content's time.
    pub head: Option<Duration>,
    /// Added to the TTFT for every 1,000 prompt tokens, in milliseconds.
    pub prefill_ms: f64,
    /// Length of the text in tokens; the canned text's own length without it.
    pub text_tokens: Option<u32>,
    /// Tokens in one chunk.
    pub chunk_tokens: u32,
    /// Bytes of every text token; words without it.
    pub token_bytes: Option<u32>,
    /// Chunks in one write.
    pub write_chunks: u32,
    /// Requests answered at the same time.
    pub slots: Option<u32>,
    /// Requests that may wait for a slot.
    pub queue_max: u32,
    /// Requests taken per second.
    pub rate_per_s: Option<u32>,
    /// `Retry-After` of a scripted refusal, in seconds.
    pub retry_after_s: Option<u32>,
    /// Tool calls in the answer.
    pub tool_calls: u32,
    /// Tokens of thinking before the text.
    pub reasoning_tokens: u32,
    /// Prompt tokens reported as read from the cache.
    pub cached_tokens: u32,
    /// Whether token counts are reported.
    pub usage: bool,
    /// What goes wrong.
    pub fault: Option<FaultSpec>,
    /// How many requests the fault strikes before it is gone.
    pub fault_times: Option<u32>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            ttft: Latency::constant(150.0),
            itl: Latency::constant(15.0),
            head: None,
            prefill_ms: 0.0,
            text_tokens: None,
            chunk_tokens: 1,
            token_bytes: None,
            write_chunks: 1,
            slots: None,
            queue_max: 1024,
            rate_per_s: None,
            retry_after_s: None,
            tool_calls: 0,
            reasoning_tokens: 0,
            cached_tokens: 0,
            usage: true,
            fault: None,
            fault_times: None,
        }
    }
}

/// A knob that cannot be turned so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// There is no such knob.
    #[error("{place}: unknown knob `{text}`; the knobs are {}", KNOBS.join(", "))]
    Unknown {
        /// Where it stood: `model` or `x-sim`.
        place: &'static str,
        /// What stood there.
        text: String,
    },
    /// The knob exists, the value does not fit it.
    #[error("{place}: knob `{knob}` cannot be `{value}`; it takes {expected}")]
    Value {
        /// Where it stood: `model` or `x-sim`.
        place: &'static str,
        /// The knob.
        knob: &'static str,
        /// The value it was given.
        value: String,
        /// What it takes.
        expected: String,
    },
}

impl Script {
    /// This script with the knobs of the model name and then those of the `x-sim` header turned.
    ///
    /// # Errors
    /// The first knob that does not exist or does not fit.
    pub fn turned(&self, model: &str, header: Option<&str>) -> Result<Self, ScriptError> {
        let mut script = self.clone();
        if let Some(knobs) = model.strip_prefix("sim-") {
            for segment in knobs.split('-') {
                // `tools2` is the knob `tools`, not `tool` at `s2`: the longest name wins.
                let knob = KNOBS.iter().filter(|k| segment.starts_with(**k)).max_by_key(|k| k.len());
                let Some(knob) = knob else {
                    return Err(ScriptError::Unknown { place: "model", text: segment.to_owned() });
                };
                let value = &segment[knob.len()..];
                script.turn("model", knob, value.strip_prefix('=').unwrap_or(value))?;
            }
        }
        for word in header.unwrap_or_default().split([' ', ',', '\t']).filter(|w| !w.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let Some(knob) = KNOBS.iter().find(|k| **k == name) else {
                return Err(ScriptError::Unknown { place: "x-sim", text: word.to_owned() });
            };
            script.turn("x-sim", knob, value)?;
        }
        script.check_write_bytes(if header.is_some() { "x-sim" } else { "model" })?;
        Ok(script)
    }

    fn turn(&mut self, place: &'static str, knob: &'static str, value: &str) -> Result<(), ScriptError> {
        let fit = match knob {
            "ttft" => read_latency(value).map(|l| self.ttft = l),
            "itl" => read_latency(value).map(|l| self.itl = l),
            "head" => read_ms(value).map(|ms| self.head = Some(latency::millis(ms))),
            "prefill" => read_ms(value).map(|ms| self.prefill_ms = ms),
            "n" => read_count(value, 0, TEXT_TOKENS_MAX).map(|n| self.text_tokens = Some(n)),
            "chunk" => read_count(value, 1, GROUP_MAX).map(|n| self.chunk_tokens = n),
            "bytes" => read_count(value, 1, TOKEN_BYTES_MAX).map(|n| self.token_bytes = Some(n)),
            "write" => read_count(value, 1, GROUP_MAX).map(|n| self.write_chunks = n),
            "slots" => read_count(value, 1, REQUESTS_MAX).map(|n| self.slots = Some(n)),
            "queue" => read_count(value, 0, REQUESTS_MAX).map(|n| self.queue_max = n),
            "rate" => read_count(value, 1, REQUESTS_MAX).map(|n| self.rate_per_s = Some(n)),
            "retryafter" => read_count(value, 0, RETRY_AFTER_S_MAX).map(|n| self.retry_after_s = Some(n)),
            "tool" | "tools" => read_count(value, 0, TOOLS_MAX).map(|n| self.tool_calls = n),
            "reasoning" => read_count(value, 0, TEXT_TOKENS_MAX).map(|n| self.reasoning_tokens = n),
            "cached" => read_count(value, 0, TEXT_TOKENS_MAX).map(|n| self.cached_tokens = n),
            "usage" => read_count(value, 0, 1).map(|n| self.usage = n == 1),
            "times" => read_count(value, 0, REQUESTS_MAX).map(|n| self.fault_times = Some(n)),
            "fault" => FaultSpec::parse(value).map(|fault| self.fault = Some(fault)),
            _ => return Err(ScriptError::Unknown { place, text: knob.to_owned() }),
        };
        fit.map_err(|expected| ScriptError::Value { place, knob, value: value.to_owned(), expected })
    }

    fn check_write_bytes(&self, place: &'static str) -> Result<(), ScriptError> {
        let bytes = u64::from(self.token_bytes.unwrap_or(1));
        let write = bytes * u64::from(self.chunk_tokens) * u64::from(self.write_chunks);
        if write <= WRITE_BYTES_MAX {
            return Ok(());
        }
        let expected = format!("chunks such that bytes × chunk × write is at most {WRITE_BYTES_MAX}");
        Err(ScriptError::Value { place, knob: "write", value: self.write_chunks.to_string(), expected })
    }
}

fn read_latency(value: &str) -> Result<Latency, String> {
    Latency::parse(value).ok_or_else(|| {
        "milliseconds: `200`, `200~0.5` (lognormal), `200x10p0.01` (ten times with probability 0.01)"
            .to_owned()
    })
}

fn read_ms(value: &str) -> Result<f64, String> {
    latency::number(value, latency::KNOB_MS_MAX)
        .ok_or_else(|| format!("milliseconds, up to {}", latency::KNOB_MS_MAX))
}

fn read_count(value: &str, min: u32, max: u32) -> Result<u32, String> {
    value
        .parse()
        .ok()
        .filter(|n| (min..=max).contains(n))
        .ok_or_else(|| format!("a whole number from {min} to {max}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    #[test]
    fn a_model_name_turns_knobs_and_the_header_wins() {
        let base = Script::default();
        let script = base.turned("sim-ttft200-itl20~0.3-n50-tools2-faultcut@10", Some("itl=5 n=7,slots=2"));
        let expected = Script {
            ttft: Latency::constant(200.0),
            itl: Latency::constant(5.0),
            text_tokens: Some(7),
            tool_calls: 2,
            slots: Some(2),
            fault: Some(FaultSpec { after_tokens: 10, ..FaultSpec::new(Fault::Cut) }),
            ..base
        };
        assert_eq!(script, Ok(expected));
    }

    #[test]
    fn other_names_are_the_default_script() {
        let base = Script::default();
        for model in ["sim", "gpt-5.6", "claude-opus-4-7", "simple-model", ""] {
            assert_eq!(base.turned(model, None), Ok(base.clone()), "{model}");
        }
    }

    #[test]
    fn every_knob_is_known_to_the_parser() {
        for knob in KNOBS {
            let wrong = Script::default().turned("sim", Some(&format!("{knob}=?")));
            assert!(matches!(wrong, Err(ScriptError::Value { .. })), "{knob}: {wrong:?}");
        }
    }

    #[test]
    fn a_wrong_knob_is_named() {
        let says = |model: &str, header| match Script::default().turned(model, header) {
            Ok(script) => format!("{script:?}"),
            Err(error) => error.to_string(),
        };
        assert!(says("sim-large", None).starts_with("model: unknown knob `large`; the knobs are ttft, itl,"));
        assert!(says("sim", Some("tfft=3")).starts_with("x-sim: unknown knob `tfft=3`"));
        assert_eq!(
            says("sim", Some("n=lots")),
            "x-sim: knob `n` cannot be `lots`; it takes a whole number from 0 to 10000000"
        );
        assert!(
            says("sim-faultcutt", None).contains("knob `fault` cannot be `cutt`; it takes one of reset,")
        );
        assert!(says("sim-bytes65536-chunk10000", None).contains("bytes × chunk × write"));
    }
}
