//! Random streams: events of every dialect in every spelling that server-sent events allow, and random
//! ends.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use firsttoken_world::Caller;
use firsttoken_world::scripted::{Finish, Framing, Script};
use serde_json::{Value, json};

/// Most events of content in a stream.
const EVENTS_MAX: usize = 120;
/// All pauses of the upstream together: with those of a slow reader below every clock, and long enough
/// for keepalives.
const PAUSES_MS_MAX: u64 = 38_000;

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With its terminal event.
    Complete,
    /// With its terminal event, and more behind it.
    More,
    /// With a finish reason alone.
    FinishOnly,
    /// In order, but with neither.
    Bare,
    /// In order, in the middle of an event.
    Half,
    /// The connection is closed between events, or in the middle of one.
    Cut,
    CutHalf,
    /// With an error event.
    Error,
    /// With a frame that cannot be read, and more behind it.
    Malformed,
    /// Not at all.
    Silence,
}

const ENDINGS: [Ending; 14] = [
    // Most streams are good.
    Ending::Complete,
    Ending::Complete,
    Ending::Complete,
    Ending::Complete,
    Ending::Complete,
    Ending::More,
    Ending::FinishOnly,
    Ending::Bare,
    Ending::Half,
    Ending::Cut,
    Ending::CutHalf,
    Ending::Error,
    Ending::Malformed,
    Ending::Silence,
];

/// A stream, and what of it the client must get.
pub(crate) struct Stream {
    pub(crate) caller: Caller,
    pub(crate) ending: Ending,
    /// The events that the client must get, each whole and in this order.
    pub(crate) events: Vec<Bytes>,
    /// The text in them.
    pub(crate) text: String,
    /// An event that was cut where nothing says so but the end, with the blank line that it may be given.
    pub(crate) tail: Option<Bytes>,
    /// Before which event the LF of a removed event's last CRLF may stand: where it comes late, it is a
    /// blank line of its own.
    pub(crate) stray: Option<usize>,
    /// Whether the client must be told that it failed by an event of ours.
    pub(crate) fails: bool,
    pub(crate) script: Script,
}

impl Stream {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let caller = Caller::ALL[rng.usize(..Caller::ALL.len())];
        let ending = ENDINGS[rng.usize(..ENDINGS.len())];
        let voice = Voice { dialect: if caller == Caller::Typed { Caller::Chat } else { caller } };
        let mut stream = Self {
            caller,
            ending,
            events: Vec::new(),
            text: String::new(),
            tail: None,
            stray: None,
            fails: false,
            script: Script { framing: Framing::Chunked, pieces: Vec::new(), finish: Finish::Proper },
        };
        let mut wire = Vec::new();
        stream.fill(&voice, rng, &mut wire);
        stream.end(&voice, rng, &mut wire);
        stream.script.framing = if rng.bool() { Framing::Chunked } else { Framing::Close };
        if stream.script.framing == Framing::Close && stream.script.finish == Finish::Cut {
            // Nobody can tell such a cut from an end.
            stream.script.framing = Framing::Chunked;
        }
        stream.script.pieces = pieces(&wire, rng);
        stream
    }

    fn put(&mut self, event: Vec<u8>, wire: &mut Vec<u8>) {
        wire.extend_from_slice(&event);
        self.events.push(event.into());
    }

    fn fill(&mut self, voice: &Voice, rng: &mut Rng, wire: &mut Vec<u8>) {
        for data in voice.opening() {
            self.put(event(&data, rng), wire);
        }
        for _ in 0..rng.usize(..EVENTS_MAX) {
            match rng.u8(..20) {
                0 => self.put(comment(rng), wire),
                1 => self.put(event(&voice.ping(), rng), wire),
                2 => self.put(event(&voice.unknown(), rng), wire),
                _ => {
                    let text = text(rng);
                    self.put(event(&voice.content(&text), rng), wire);
                    self.text.push_str(&text);
                }
            }
        }
    }

    fn end(&mut self, voice: &Voice, rng: &mut Rng, wire: &mut Vec<u8>) {
        let next = event(&voice.content("never seen"), rng);
        let half = next[..1 + rng.usize(..next.len() - 1)].to_vec();
        match self.ending {
            Ending::Complete | Ending::More => {
                for data in voice.finish() {
                    self.put(event(&data, rng), wire);
                }
                if voice.dialect == Caller::Chat && rng.bool() {
                    // Asked for by the gateway alone: the client does not get it.
                    let usage = event(&voice.usage(), rng);
                    self.stray = usage.ends_with(b"\r\n").then_some(self.events.len());
                    wire.extend_from_slice(&usage);
                }
                self.put(event(&voice.terminal(), rng), wire);
                if self.ending == Ending::More {
                    wire.extend_from_slice(&next);
                }
            }
            Ending::FinishOnly => {
                for data in voice.finish() {
                    self.put(event(&data, rng), wire);
                }
                self.fails = matches!(voice.dialect, Caller::Messages | Caller::Responses);
            }
            Ending::Bare => self.fails = true,
            Ending::Half => {
                wire.extend_from_slice(&half);
                let ended = is_ended(&half);
                self.tail = Some([&half[..], if ended { b"" } else { b"\n\n" }].concat().into());
                self.fails = true;
            }
            Ending::Cut => (self.fails, self.script.finish) = (true, Finish::Cut),
            Ending::CutHalf => {
                wire.extend_from_slice(&half);
                self.tail = Some(half.into()).filter(|half: &Bytes| is_ended(half));
                (self.fails, self.script.finish) = (true, Finish::Cut);
            }
            // The upstream's own event tells the client.
            Ending::Error => self.put(event(&voice.error(), rng), wire),
            Ending::Malformed => {
                wire.extend_from_slice(&event(&Data { name: "", json: "{\"id\":1,\"cho".to_owned() }, rng));
                wire.extend_from_slice(&next);
                self.fails = true;
            }
            Ending::Silence => (self.fails, self.script.finish) = (true, Finish::Silence),
        }
    }
}

/// Whether only the LF of a last CRLF was cut off: the blank line is there already.
fn is_ended(half: &[u8]) -> bool {
    half.ends_with(b"\r\r") || half.ends_with(b"\n\r")
}

/// What stands in an event.
struct Data {
    name: &'static str,
    json: String,
}

fn named(json: &Value) -> Data {
    let name = match json["type"].as_str() {
        Some("message_start") => "message_start",
        Some("content_block_start") => "content_block_start",
        Some("content_block_delta") => "content_block_delta",
        Some("content_block_stop") => "content_block_stop",
        Some("message_delta") => "message_delta",
        Some("message_stop") => "message_stop",
        Some("ping") => "ping",
        Some("error") => "error",
        Some("response.created") => "response.created",
        Some("response.output_text.delta") => "response.output_text.delta",
        Some("response.output_text.done") => "response.output_text.done",
        Some("response.completed") => "response.completed",
        _ => "something.new",
    };
    Data { name, json: json.to_string() }
}

fn plain(json: &Value) -> Data {
    Data { name: "", json: json.to_string() }
}

/// How a dialect says what.
struct Voice {
    dialect: Caller,
}

impl Voice {
    fn choice(&self, choice: Value) -> Data {
        let object =
            if self.dialect == Caller::Completions { "text_completion" } else { "chat.completion.chunk" };
        plain(&json!({"id": "x", "object": object, "model": "m", "choices": [choice]}))
    }

    fn opening(&self) -> Vec<Data> {
        match self.dialect {
            Caller::Messages => vec![
                named(
                    &json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant",
                    "content": [], "model": "m", "stop_reason": null, "usage": {"input_tokens": 3, "output_tokens": 1}}}),
                ),
                named(
                    &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                ),
            ],
            Caller::Responses => vec![named(&json!({"type": "response.created", "response": {"id": "r"}}))],
            Caller::Chat | Caller::Completions | Caller::Typed => {
                vec![
                    self.choice(
                        json!({"index": 0, "delta": {"role": "assistant", "content": ""}, "text": ""}),
                    ),
                ]
            }
        }
    }

    fn content(&self, text: &str) -> Data {
        match self.dialect {
            Caller::Messages => named(&json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": text}})),
            Caller::Responses => {
                named(&json!({"type": "response.output_text.delta", "item_id": "i", "delta": text}))
            }
            Caller::Completions => self.choice(json!({"index": 0, "text": text, "finish_reason": null})),
            Caller::Chat | Caller::Typed => {
                self.choice(json!({"index": 0, "delta": {"content": text}, "finish_reason": null}))
            }
        }
    }

    fn ping(&self) -> Data {
        match self.dialect {
            Caller::Messages => named(&json!({"type": "ping"})),
            Caller::Responses => named(&json!({"type": "response.output_text.done", "text": ""})),
            Caller::Chat | Caller::Completions | Caller::Typed => {
                self.choice(json!({"index": 0, "delta": {"content": ""}, "text": ""}))
            }
        }
    }

    fn unknown(&self) -> Data {
        match self.dialect {
            Caller::Messages | Caller::Responses => named(&json!({"type": "something.new", "x": [1, 2]})),
            Caller::Chat | Caller::Completions | Caller::Typed => plain(&json!({"object": "something.new"})),
        }
    }

    fn finish(&self) -> Vec<Data> {
        match self.dialect {
            Caller::Messages => vec![
                named(&json!({"type": "content_block_stop", "index": 0})),
                named(&json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                    "usage": {"output_tokens": 9}})),
            ],
            Caller::Responses => vec![named(&json!({"type": "response.output_text.done", "text": "all"}))],
            Caller::Chat | Caller::Completions | Caller::Typed => {
                vec![self.choice(json!({"index": 0, "delta": {}, "text": "", "finish_reason": "stop"}))]
            }
        }
    }

    fn usage(&self) -> Data {
        let usage = json!({"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12});
        plain(&json!({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": usage}))
    }

    fn terminal(&self) -> Data {
        match self.dialect {
            Caller::Messages => named(&json!({"type": "message_stop"})),
            Caller::Responses => named(&json!({"type": "response.completed",
                "response": {"id": "r", "status": "completed", "usage": {"input_tokens": 3, "output_tokens": 9}}})),
            Caller::Chat | Caller::Completions | Caller::Typed => {
                Data { name: "", json: "[DONE]".to_owned() }
            }
        }
    }

    fn error(&self) -> Data {
        let error = json!({"message": "it broke", "type": "server_error", "code": null});
        match self.dialect {
            Caller::Messages => {
                named(&json!({"type": "error", "error": {"type": "api_error", "message": "it broke"}}))
            }
            Caller::Responses => {
                named(&json!({"type": "error", "code": "server_error", "message": "it broke", "param": null}))
            }
            Caller::Chat | Caller::Completions | Caller::Typed => plain(&json!({"error": error})),
        }
    }
}

fn text(rng: &mut Rng) -> String {
    const WORDS: [&str; 12] =
        [" the", " sky", "né", " 🚀", "\n\n", "\"", "\\", "data: ", " – ", "\u{2028}", "\r", " blue"];
    let words = if rng.u8(..200) == 0 { 1500 } else { rng.usize(1..6) };
    (0..words).map(|_| WORDS[rng.usize(..WORDS.len())]).collect()
}

/// A line end, and never one that would melt into the one before.
fn line_end(style: u8, rng: &mut Rng, after: &[u8]) -> &'static [u8] {
    match if style == 3 { rng.u8(..3) } else { style } {
        0 if !after.ends_with(b"\r") => b"\n",
        2 => b"\r",
        _ => b"\r\n",
    }
}

/// The event in one of the spellings that all mean the same.
fn event(data: &Data, rng: &mut Rng) -> Vec<u8> {
    let style = if rng.bool() { 0 } else { rng.u8(..4) };
    let mut out = Vec::new();
    let mut line = |text: &str, rng: &mut Rng| {
        out.extend_from_slice(text.as_bytes());
        let end = line_end(style, rng, &out);
        out.extend_from_slice(end);
    };
    let space = if rng.u8(..4) == 0 { "" } else { " " };
    if rng.u8(..16) == 0 {
        line(": a comment", rng);
    }
    if !data.name.is_empty() {
        line(&format!("event:{space}{}", data.name), rng);
    }
    if rng.u8(..16) == 0 {
        line(&format!("id:{space}{}", rng.u16(..)), rng);
    }
    match data.json.split_once(',').filter(|_| rng.u8(..16) == 0) {
        // White space may stand behind a comma, so a line may end there.
        Some((before, after)) if data.json.starts_with('{') => {
            line(&format!("data:{space}{before},"), rng);
            line(&format!("data: {after}"), rng);
        }
        _ => line(&format!("data:{space}{}", data.json), rng),
    }
    line("", rng);
    out
}

fn comment(rng: &mut Rng) -> Vec<u8> {
    let style = rng.u8(..4);
    let mut out = b": still here".to_vec();
    for _ in 0..2 {
        let end = line_end(style, rng, &out);
        out.extend_from_slice(end);
    }
    out
}

/// Cuts the stream: into bytes, into small or large pieces, or not at all; with pauses here and there.
fn pieces(wire: &[u8], rng: &mut Rng) -> Vec<(Duration, Bytes)> {
    let size_max = match rng.u8(..10) {
        0 => 1,
        1..=3 => 64,
        4..=7 => 600,
        8 => 8_000,
        _ => usize::MAX,
    };
    let mut pieces = Vec::new();
    let mut rest = wire;
    let mut pauses_ms = PAUSES_MS_MAX;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rest.len().min(rng.usize(1..=size_max)));
        let mut pause = Duration::ZERO;
        if rng.u8(..40) == 0 {
            let pause_ms = rng.u64(..=pauses_ms.min(20_000));
            pauses_ms -= pause_ms;
            pause = Duration::from_millis(pause_ms);
        }
        pieces.push((pause, Bytes::copy_from_slice(piece)));
        rest = behind;
    }
    pieces
}
