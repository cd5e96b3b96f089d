//! The bytes of an answer in each dialect, as providers send them: the same fields, the same sizes.

use serde::Deserialize;

use crate::clock::now_ns;
use crate::spec::Spec;
use crate::stamp::Stamp;

/// What `/v1/models` says.
pub(super) const MODELS: &str =
    r#"{"object":"list","data":[{"id":"mock","object":"model","created":0,"owned_by":"mock"}]}"#;

/// The dialect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    /// Chat Completions.
    OpenAi,
    /// Messages.
    Anthropic,
}

/// The fields of a request that the mock heeds.
#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    pub(super) model: String,
    #[serde(default)]
    pub(super) stream: bool,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// The parts of a stream's bytes that do not change from token to token.
#[derive(Debug)]
pub(super) struct Frames {
    wire: Wire,
    /// Everything before the first token.
    pub(super) opening: Vec<u8>,
    before: String,
    after: String,
    /// The head of a Chat Completions chunk up to its delta.
    chunk: String,
    usage: bool,
    prompt_tokens: usize,
}

impl Frames {
    /// Prepares the frames of one stream. `body_bytes` is the length of the request.
    pub(super) fn new(wire: Wire, asked: &Asked, spec: &Spec, body_bytes: usize) -> Self {
        let model = &asked.model;
        let padding = padding(spec.content_bytes);
        let prompt_tokens = body_bytes / 4;
        let usage = asked.stream_options.as_ref().is_some_and(|o| o.include_usage);
        let chunk = format!(
            r#"data: {{"id":"chatcmpl-mock0000000000000000","object":"chat.completion.chunk","created":1700000000,"model":"{model}","system_fingerprint":"fp_mock","choices":"#
        );
        let (opening, before, after) = match wire {
            Wire::OpenAi => (
                format!(
                    "{chunk}[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n"
                ),
                format!("{chunk}[{{\"index\":0,\"delta\":{{\"content\":\""),
                format!("{padding}\"}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n"),
            ),
            Wire::Anthropic => (
                format!(
                    concat!(
                        "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"id\":\"msg_mock\",\"type\":\"message\",",
                        "\"role\":\"assistant\",\"model\":\"{}\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,",
                        "\"usage\":{{\"input_tokens\":{},\"output_tokens\":1}}}}}}\n\n",
                        "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":0,",
                        "\"content_block\":{{\"type\":\"text\",\"text\":\"\"}}}}\n\nevent: ping\ndata: {{\"type\":\"ping\"}}\n\n"
                    ),
                    model, prompt_tokens
                ),
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"".to_owned(),
                format!("{padding}\"}}}}\n\n"),
            ),
        };
        Self { wire, opening: opening.into_bytes(), before, after, chunk, usage, prompt_tokens }
    }

    /// Bytes that one token needs at most, its stamps included.
    pub(super) fn token_bytes_max(&self) -> usize {
        self.before.len() + self.after.len() + 46
    }

    /// Appends one token, stamped now; the first one carries the request's arrival as well.
    pub(super) fn token(&self, out: &mut Vec<u8>, arrived_ns: Option<u64>) {
        out.extend_from_slice(self.before.as_bytes());
        if let Some(ns) = arrived_ns {
            Stamp::Arrived(ns).write(out);
        }
        Stamp::Token(now_ns()).write(out);
        out.extend_from_slice(self.after.as_bytes());
    }

    /// The end of a stream of so many tokens.
    pub(super) fn closing(&self, tokens: u64) -> String {
        let Self { chunk, prompt_tokens, .. } = self;
        match self.wire {
            Wire::OpenAi => {
                let finish = format!(
                    "{chunk}[{{\"index\":0,\"delta\":{{}},\"logprobs\":null,\"finish_reason\":\"stop\"}}]}}\n\n"
                );
                let usage = if self.usage {
                    format!(
                        "{chunk}[],\"usage\":{{\"prompt_tokens\":{prompt_tokens},\"completion_tokens\":{tokens},\"total_tokens\":{}}}}}\n\n",
                        tokens + *prompt_tokens as u64
                    )
                } else {
                    String::new()
                };
                format!("{finish}{usage}data: [DONE]\n\n")
            }
            Wire::Anthropic => format!(
                concat!(
                    "event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":0}}\n\n",
                    "event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\",\"stop_sequence\":null}},",
                    "\"usage\":{{\"output_tokens\":{}}}}}\n\nevent: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n"
                ),
                tokens
            ),
        }
    }
}

impl Wire {
    /// A whole answer for a caller that does not stream, stamped now.
    pub(super) fn whole(self, asked: &Asked, spec: &Spec, arrived_ns: u64, body_bytes: usize) -> String {
        let (model, prompt) = (&asked.model, body_bytes / 4);
        let tokens = spec.tokens.unwrap_or(0);
        let mut text = Vec::new();
        Stamp::Arrived(arrived_ns).write(&mut text);
        Stamp::Token(now_ns()).write(&mut text);
        let text = String::from_utf8_lossy(&text);
        let padding = padding(spec.content_bytes).repeat(usize::try_from(tokens).unwrap_or(0));
        match self {
            Self::OpenAi => format!(
                r#"{{"id":"chatcmpl-mock0000000000000000","object":"chat.completion","created":1700000000,"model":"{model}","system_fingerprint":"fp_mock","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}{padding}","refusal":null}},"logprobs":null,"finish_reason":"stop"}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{tokens},"total_tokens":{}}}}}"#,
                tokens + prompt as u64
            ),
            Self::Anthropic => format!(
                r#"{{"id":"msg_mock","type":"message","role":"assistant","model":"{model}","content":[{{"type":"text","text":"{text}{padding}"}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{{"input_tokens":{prompt},"output_tokens":{tokens}}}}}"#
            ),
        }
    }
}

fn padding(bytes: usize) -> String {
    " lorem ipsum dolor sit amet".chars().cycle().take(bytes).collect()
}
