//! Renders events as items of a response.
//!
//! A message or a reasoning item ends where another kind begins. Calls stay open until the end, because
//! their arguments may come in turns; then they end in order. Each closing event repeats what its item
//! said, and the last one everything, so the text is kept, within a bound. Past it the deltas go on, but
//! what is over is forgotten, and the answer ends as incomplete with the reason `answer_too_long`: what a
//! client finds in it is never a shorter answer that looks whole.
//!
//! Invariant: sequence numbers count up from 0 without a gap; every item that was added is done before the
//! terminal event, and nothing is said in it before it is added or after it is done.

use serde_json::{Value, json};

use super::item::{Head, Item, Kind, annotation, status, usage};
use super::{sealed, write_error};
use crate::chat::{Citation, Event, StopReason, Usage};
use crate::json::{number, string, value};
use crate::{ApiError, Dialect};

/// Most bytes of an answer that its closing events repeat. No model's longest answer comes near it.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// What an item is counted for, beside what it says.
const ITEM_BYTES: usize = 512;

/// Renders one stream. After `End` or `Error` it renders nothing more.
#[derive(Clone, Debug)]
pub struct Renderer {
    head: Head,
    sequence: u64,
    started: bool,
    closed: bool,
    /// Index of the next item.
    next: u64,
    items: Vec<Running>,
    /// Where the open message or reasoning item stands in `items`.
    open: Option<usize>,
    kept_bytes: usize,
    overlong: bool,
    usage: Usage,
    stop: Option<StopReason>,
}

#[derive(Clone, Debug)]
struct Running {
    item: Item,
    index: u64,
    /// Number of the call.
    call: Option<u32>,
    /// `in_progress` while it is open.
    status: &'static str,
    /// What names it in a delta, up to the text: written once, because it is sent with every token.
    place: Vec<u8>,
}

impl Renderer {
    /// A renderer whose response has this id, this model and this time (Unix seconds).
    #[must_use]
    pub fn new(id: &str, model: &str, created: u64) -> Self {
        Self {
            head: Head { id: id.to_owned(), model: model.to_owned(), created },
            sequence: 0,
            started: false,
            closed: false,
            next: 0,
            items: Vec::new(),
            open: None,
            kept_bytes: 0,
            overlong: false,
            usage: Usage::default(),
            stop: None,
        }
    }

    /// Appends what `event` is in this dialect; nothing where the dialect has no word for it.
    pub fn render(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.closed {
            return;
        }
        match event {
            Event::Start { .. } => self.start(out),
            Event::Text(text) if !text.is_empty() => self.text(text, out),
            Event::Reasoning(text) if !text.is_empty() => self.reasoning(text, out),
            Event::Signature(signature) if !signature.is_empty() => self.signature(signature, out),
            Event::Redacted(redacted) if !redacted.is_empty() => self.seal(redacted.to_string(), out),
            Event::ToolStart { index, id, name } => self.tool_start(*index, id, name, out),
            Event::ToolArguments { index, json } if !json.is_empty() => {
                // Arguments of a call that never began have no item to be in.
                let call = |running: &Running| running.call == Some(*index);
                if let Some(at) = self.items.iter().rposition(call) {
                    self.delta(at, json, out);
                }
            }
            Event::Citation(citation) => self.citation(citation, out),
            Event::Usage(usage) => self.usage.update(*usage),
            Event::Stop(reason) => self.stop = Some(reason.clone()),
            Event::Error(error) => self.error(error, out),
            Event::Ping => out.extend_from_slice(Dialect::OpenAiResponses.keepalive()),
            Event::End => self.end(out),
            Event::Text(_)
            | Event::Reasoning(_)
            | Event::Signature(_)
            | Event::Redacted(_)
            | Event::ToolArguments { .. }
            | Event::Status(_)
            | Event::Meta(_)
            | Event::Other
            | Event::Malformed => {}
        }
    }

    fn start(&mut self, out: &mut Vec<u8>) {
        if self.started {
            return;
        }
        self.started = true;
        for kind in ["response.created", "response.in_progress"] {
            let response = self.head.json("in_progress", None, Vec::new(), Value::Null);
            self.event(kind, json!({ "response": response }), out);
        }
    }

    fn text(&mut self, text: &str, out: &mut Vec<u8>) {
        let at = match self.open_item() {
            Some((at, Kind::Message)) => at,
            _ => {
                let at = self.add(Kind::Message, None, out);
                self.open = Some(at);
                at
            }
        };
        self.delta(at, text, out);
    }

    fn reasoning(&mut self, text: &str, out: &mut Vec<u8>) {
        let at = match self.open_item() {
            Some((at, Kind::Reasoning { .. })) => at,
            _ => {
                let at = self.add(Kind::Reasoning { shown: true, sealed: None }, None, out);
                self.open = Some(at);
                at
            }
        };
        self.delta(at, text, out);
    }

    /// The signature of the thinking that is open, or of one that was not shown. It ends its item.
    fn signature(&mut self, signature: &str, out: &mut Vec<u8>) {
        if !matches!(self.open_item(), Some((_, Kind::Reasoning { .. }))) {
            return self.seal(sealed::alone(signature), out);
        }
        let fits = self.keep(signature.len());
        if let Some(at) = self.open
            && let Kind::Reasoning { sealed, .. } = &mut self.items[at].item.kind
        {
            *sealed = fits.then(|| signature.to_owned());
        }
        self.finish_open(out);
    }

    /// Of the message that is open: without one there is no text to be cited for.
    fn citation(&mut self, citation: &Citation<'_>, out: &mut Vec<u8>) {
        let Some((at, Kind::Message)) = self.open_item() else { return };
        if !self.keep(ITEM_BYTES + citation.url.len() + citation.title.len() + citation.passage.len()) {
            return;
        }
        let annotations = &mut self.items[at].item.annotations;
        let number = annotations.len();
        annotations.push(annotation(citation));
        let fields = json!({ "annotation_index": number, "annotation": annotations[number] });
        self.item_event(at, "response.output_text.annotation.added", fields, out);
    }

    /// A reasoning item without a text.
    fn seal(&mut self, sealed: String, out: &mut Vec<u8>) {
        let kind = Kind::Reasoning { shown: false, sealed: Some(sealed) };
        let at = self.add(kind, None, out);
        self.finish(at, "completed", out);
    }

    fn tool_start(&mut self, call: u32, id: &str, name: &str, out: &mut Vec<u8>) {
        self.add(Kind::Call { id: id.to_owned(), name: name.to_owned() }, Some(call), out);
    }

    /// The message or reasoning item that is open.
    fn open_item(&self) -> Option<(usize, &Kind)> {
        self.open.map(|at| (at, &self.items[at].item.kind))
    }

    /// Adds an item; a message or reasoning item that is open ends first. Says where it stands.
    fn add(&mut self, kind: Kind, call: Option<u32>, out: &mut Vec<u8>) -> usize {
        self.start(out);
        self.finish_open(out);
        if self.overlong {
            // Nothing more is kept, the items neither.
            self.finish_all("incomplete", out);
            self.items.clear();
        }
        let said = match &kind {
            Kind::Message => 0,
            Kind::Reasoning { sealed, .. } => sealed.as_ref().map_or(0, String::len),
            Kind::Call { id, name } => id.len() + name.len(),
        };
        self.keep(ITEM_BYTES + said);
        let index = self.next;
        self.next += 1;
        let item = Item::new(kind, &self.head.id, index);
        let place = place(&item, index);
        let added = json!({ "output_index": index, "item": begun(&item) });
        self.event("response.output_item.added", added, out);
        let (part_event, part) = match item.kind {
            Kind::Message => ("response.content_part.added", item.part()),
            Kind::Reasoning { shown: true, .. } => ("response.reasoning_summary_part.added", item.part()),
            Kind::Reasoning { .. } | Kind::Call { .. } => ("", Value::Null),
        };
        self.items.push(Running { item, index, call, status: "in_progress", place });
        let at = self.items.len() - 1;
        if !part.is_null() {
            self.item_event(at, part_event, json!({ "part": part }), out);
        }
        at
    }

    /// Once per token, so without a tree of values.
    fn delta(&mut self, at: usize, text: &str, out: &mut Vec<u8>) {
        let fits = self.keep(text.len());
        let running = &mut self.items[at];
        if fits {
            running.item.text.push_str(text);
        }
        let (kind, end): (_, &[u8]) = match running.item.kind {
            Kind::Message => ("response.output_text.delta", b",\"logprobs\":[]}\n\n"),
            Kind::Reasoning { .. } => ("response.reasoning_summary_text.delta", b"}\n\n"),
            Kind::Call { .. } => ("response.function_call_arguments.delta", b"}\n\n"),
        };
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\ndata: {\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"sequence_number\":");
        number(out, self.sequence);
        self.sequence += 1;
        out.extend_from_slice(&running.place);
        string(out, text);
        out.extend_from_slice(end);
    }

    /// Whether so much more may be kept. What is kept is a prefix: after the first no, nothing is.
    fn keep(&mut self, bytes: usize) -> bool {
        let kept_bytes = self.kept_bytes.saturating_add(bytes);
        self.overlong |= kept_bytes > KEPT_BYTES_MAX;
        if !self.overlong {
            self.kept_bytes = kept_bytes;
        }
        !self.overlong
    }

    fn finish_open(&mut self, out: &mut Vec<u8>) {
        if let Some(at) = self.open {
            self.finish(at, if self.overlong { "incomplete" } else { "completed" }, out);
        }
    }

    /// Ends all items that are open, in order, in an answer that ends with `status`.
    fn finish_all(&mut self, status: &'static str, out: &mut Vec<u8>) {
        for at in 0..self.items.len() {
            let running = &self.items[at];
            if running.status == "in_progress" {
                let status = running.item.status(status);
                self.finish(at, status, out);
            }
        }
    }

    fn finish(&mut self, at: usize, status: &'static str, out: &mut Vec<u8>) {
        self.open = self.open.filter(|open| *open != at);
        let running = &mut self.items[at];
        running.status = status;
        let (item, index) = (&running.item, running.index);
        let (done, text, part) = match item.kind {
            Kind::Message => (
                "response.output_text.done",
                json!({ "text": item.text, "logprobs": [] }),
                Some(("response.content_part.done", json!({ "part": item.part() }))),
            ),
            Kind::Reasoning { .. } => (
                "response.reasoning_summary_text.done",
                json!({ "text": item.text }),
                Some(("response.reasoning_summary_part.done", json!({ "part": item.part() }))),
            ),
            Kind::Call { .. } => {
                ("response.function_call_arguments.done", json!({ "arguments": item.text }), None)
            }
        };
        let whole = json!({ "output_index": index, "item": item.json(status) });
        if !matches!(item.kind, Kind::Reasoning { shown: false, .. }) {
            self.item_event(at, done, text, out);
            if let Some((kind, part)) = part {
                self.item_event(at, kind, part, out);
            }
        }
        self.event("response.output_item.done", whole, out);
    }

    fn error(&mut self, error: &ApiError, out: &mut Vec<u8>) {
        self.closed = true;
        out.extend_from_slice(b"event: error\ndata: ");
        write_error(out, error, self.sequence);
        out.extend_from_slice(b"\n\n");
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.start(out);
        self.closed = true;
        let stop = self.stop.take();
        let (status, reason) = match status(stop.as_ref()) {
            _ if self.overlong => ("incomplete", Some("answer_too_long")),
            said => said,
        };
        self.finish_all(status, out);
        let output = self.items.iter().map(|running| running.item.json(running.status)).collect();
        let response = self.head.json(status, reason, output, usage(&self.usage));
        let kind = if status == "completed" { "response.completed" } else { "response.incomplete" };
        self.event(kind, json!({ "response": response }), out);
    }

    /// An event that names its item.
    fn item_event(&mut self, at: usize, kind: &str, fields: Value, out: &mut Vec<u8>) {
        let running = &self.items[at];
        let mut place = json!({ "item_id": running.item.id, "output_index": running.index });
        match running.item.kind {
            Kind::Message => place["content_index"] = json!(0),
            Kind::Reasoning { .. } => place["summary_index"] = json!(0),
            Kind::Call { .. } => {}
        }
        extend(&mut place, fields);
        self.event(kind, place, out);
    }

    /// An event with its number.
    fn event(&mut self, kind: &str, fields: Value, out: &mut Vec<u8>) {
        let mut event = json!({ "type": kind, "sequence_number": self.sequence });
        self.sequence += 1;
        extend(&mut event, fields);
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\ndata: ");
        value(out, &event);
        out.extend_from_slice(b"\n\n");
    }
}

/// An item as it is announced: it says nothing yet.
fn begun(item: &Item) -> Value {
    let mut begun = item.json("in_progress");
    if matches!(item.kind, Kind::Reasoning { .. }) {
        begun["summary"] = json!([]);
        begun["encrypted_content"] = Value::Null;
    }
    begun
}

/// `,"item_id":…,"output_index":…,…,"delta":`
fn place(item: &Item, index: u64) -> Vec<u8> {
    let mut place = b",\"item_id\":".to_vec();
    string(&mut place, &item.id);
    place.extend_from_slice(b",\"output_index\":");
    number(&mut place, index);
    place.extend_from_slice(match item.kind {
        Kind::Message => b",\"content_index\":0,\"delta\":",
        Kind::Reasoning { .. } => b",\"summary_index\":0,\"delta\":",
        Kind::Call { .. } => b",\"delta\":",
    });
    place
}

fn extend(object: &mut Value, fields: Value) {
    if let (Some(object), Value::Object(fields)) = (object.as_object_mut(), fields) {
        object.extend(fields);
    }
}
