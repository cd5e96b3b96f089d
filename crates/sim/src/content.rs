//! What the simulated model says, token by token.
//!
//! An answer is thinking, then either tool calls or text. It is produced lazily, so that an endless
//! one costs no more memory than a short one. The text says that it is simulated, repeats the
//! question, and explains itself in plain words; where a script wants more tokens, it goes round. Where the
//! request gives a schema, the text is JSON of that form, of the length that this has.
//!
//! Invariant: the same request and script give the same bytes; nothing here is random or timed.

use crate::ask::{Ask, Call};
use crate::fault::Fault;
use crate::script::Script;

/// What every text goes on with. Plain ASCII, so that `bytes` can cut it anywhere.
const BODY: &str = " No model was asked: this text comes from the scripted provider of firsttoken, which stands in \
    for a real one while you build and test. Its first token came after the delay that the script asks for, and \
    every following one after its own, so what you see here is how a real answer would arrive.";
/// What the simulated model thinks.
const THOUGHT: &str = "The question is simulated, and so is this thought. I shall say so plainly.";
/// Characters of two, three and four bytes, for the fault that splits them.
const MULTIBYTE: &str = "Déjà vu – ✓ 🚀 ";
/// Bytes of one token of a tool call's arguments.
const ARGUMENT_TOKEN_BYTES: usize = 6;

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    End,
    Length,
    Tool,
}

/// A piece of the answer: the tokens of one chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Reasoning(String),
    ToolStart { index: u32, name: String },
    ToolArguments { index: u32, json: String },
}

/// Everything that was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) reasoning: String,
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
}

/// The rest of an answer.
#[derive(Debug)]
pub(crate) struct Content {
    reasoning: Option<Words>,
    calls: Vec<Call>,
    /// The call being spoken, and how far; `None` before its start.
    call: usize,
    call_at: Option<usize>,
    text: Option<Words>,
    stop: Stop,
}

impl Content {
    pub(crate) fn new(ask: &Ask, script: &Script, fault: Option<Fault>) -> Self {
        let reasoning = Words::new(THOUGHT.to_owned(), 0, Some(script.reasoning_tokens));
        let reasoning = (script.reasoning_tokens > 0).then_some(reasoning);
        let wanted = script.tool_calls.max(u32::from(ask.must_call));
        if wanted > 0 && !ask.after_tool {
            let invented =
                || Call { name: "get_weather".to_owned(), arguments: r#"{"city":"Paris"}"#.to_owned() };
            let offered = |index: usize| ask.tools.get(index % ask.tools.len().max(1)).cloned();
            let calls = (0..wanted as usize).map(|i| offered(i).unwrap_or_else(invented)).collect();
            return Self { reasoning, calls, call: 0, call_at: None, text: None, stop: Stop::Tool };
        }
        let (text, stop) = text(ask, script, fault);
        Self { reasoning, calls: Vec::new(), call: 0, call_at: None, text: Some(text), stop }
    }

    /// Why the answer ends when it ends.
    pub(crate) const fn stop(&self) -> Stop {
        self.stop
    }

    /// The next piece of at most `tokens_max` tokens, and how many it has. `None` at the end.
    pub(crate) fn next(&mut self, tokens_max: u32) -> Option<(Piece, u32)> {
        if let Some(words) = &mut self.reasoning {
            let (thought, tokens) = words.take(tokens_max);
            if tokens > 0 {
                return Some((Piece::Reasoning(thought), tokens));
            }
            self.reasoning = None;
        }
        if let Some(words) = &mut self.text {
            let (text, tokens) = words.take(tokens_max);
            return (tokens > 0).then_some((Piece::Text(text), tokens));
        }
        self.next_of_call(tokens_max)
    }

    fn next_of_call(&mut self, tokens_max: u32) -> Option<(Piece, u32)> {
        let call = self.calls.get(self.call)?;
        let index = u32::try_from(self.call).unwrap_or(u32::MAX);
        let Some(at) = self.call_at else {
            self.call_at = Some(0);
            return Some((Piece::ToolStart { index, name: call.name.clone() }, 1));
        };
        let mut end = at;
        let mut tokens = 0;
        while tokens < tokens_max && end < call.arguments.len() {
            end = call.arguments.len().min(end + ARGUMENT_TOKEN_BYTES);
            while !call.arguments.is_char_boundary(end) {
                end += 1;
            }
            tokens += 1;
        }
        let json = call.arguments[at..end].to_owned();
        if end == call.arguments.len() {
            self.call += 1;
            self.call_at = None;
        } else {
            self.call_at = Some(end);
        }
        Some((Piece::ToolArguments { index, json }, tokens))
    }
}

impl Said {
    pub(crate) fn add(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.text.push_str(&text),
            Piece::Reasoning(thought) => self.reasoning.push_str(&thought),
            Piece::ToolStart { name, .. } => self.calls.push(Call { name, arguments: String::new() }),
            Piece::ToolArguments { json, .. } => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&json);
                }
            }
        }
    }
}

fn text(ask: &Ask, script: &Script, fault: Option<Fault>) -> (Words, Stop) {
    let endless = fault == Some(Fault::Endless);
    let split = fault == Some(Fault::SplitUtf8);
    if let (Some(form), None) = (&ask.form, fault) {
        let text = format!("{form:#}");
        let words = Words::new(text, 0, None);
        let left = Some(words.natural().min(ask.max_tokens.unwrap_or(u32::MAX)));
        let stop = if left == Some(words.natural()) { Stop::End } else { Stop::Length };
        return (Words { left, ..words }, stop);
    }
    let mut words = match script.token_bytes {
        Some(bytes) if !split => {
            Words { token_bytes: Some(bytes as usize), ..Words::new(BODY.to_owned(), 0, None) }
        }
        _ => {
            let before = if split { MULTIBYTE } else { "" };
            let intro = format!("{before}This is a simulated answer to: “{}”.", ask.question);
            let cycle_from = intro.len();
            Words::new(intro + BODY, cycle_from, None)
        }
    };
    let wanted = script.text_tokens.unwrap_or_else(|| words.natural());
    let allowed = ask.max_tokens.unwrap_or(u32::MAX);
    words.left = (!endless).then_some(wanted.min(allowed));
    (words, if allowed < wanted && !endless { Stop::Length } else { Stop::End })
}

/// A text that is handed out in tokens, round and round.
#[derive(Debug)]
struct Words {
    text: String,
    /// Where it goes on after its end.
    cycle_from: usize,
    at: usize,
    /// Tokens left, or for ever.
    left: Option<u32>,
    /// Size of a token, or words.
    token_bytes: Option<usize>,
}

impl Words {
    const fn new(text: String, cycle_from: usize, left: Option<u32>) -> Self {
        Self { text, cycle_from, at: 0, left, token_bytes: None }
    }

    /// How many tokens the text has by itself.
    fn natural(&self) -> u32 {
        let bytes = self.token_bytes.unwrap_or(0);
        let tokens = if bytes > 0 { self.text.len().div_ceil(bytes) } else { self.text.split(' ').count() };
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    fn take(&mut self, tokens_max: u32) -> (String, u32) {
        let tokens = self.left.map_or(tokens_max, |left| left.min(tokens_max));
        self.left = self.left.map(|left| left - tokens);
        let mut out = String::new();
        for _ in 0..tokens {
            match self.token_bytes {
                Some(bytes) => self.take_bytes(bytes, &mut out),
                None => self.take_word(&mut out),
            }
        }
        (out, tokens)
    }

    fn take_word(&mut self, out: &mut String) {
        if self.at == self.text.len() {
            self.at = self.cycle_from;
            if self.cycle_from == 0 {
                out.push(' ');
            }
        }
        let rest = &self.text[self.at..];
        // A word brings the space before it.
        let end = rest.char_indices().skip(1).find(|(_, c)| *c == ' ').map_or(rest.len(), |(space, _)| space);
        out.push_str(&rest[..end]);
        self.at += end;
    }

    fn take_bytes(&mut self, bytes: usize, out: &mut String) {
        let end = out.len() + bytes;
        while out.len() < end {
            if self.at == self.text.len() {
                self.at = self.cycle_from;
            }
            let rest = &self.text[self.at..];
            let some = rest.len().min(end - out.len());
            out.push_str(&rest[..some]);
            self.at += some;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::Endpoint;

    fn ask() -> Ask {
        let body = br#"{"model":"m","messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;
        Ask::read(Endpoint::Chat, body).expect("it is valid")
    }

    fn say(script: &Script, fault: Option<Fault>, chunk: u32) -> (Said, u32, u32, Stop) {
        let mut content = Content::new(&ask(), script, fault);
        let (mut said, mut tokens, mut chunks) = (Said::default(), 0, 0);
        while let Some((piece, n)) = content.next(chunk) {
            said.add(piece);
            tokens += n;
            chunks += 1;
        }
        (said, tokens, chunks, content.stop())
    }

    #[test]
    fn the_answer_says_that_it_is_simulated() {
        let (said, tokens, chunks, stop) = say(&Script::default(), None, 1);
        let begin = "This is a simulated answer to: “Why is the sky blue?”. No model was asked";
        assert!(said.text.starts_with(begin), "{}", said.text);
        assert!(said.text.ends_with("arrive."));
        assert_eq!((tokens as usize, chunks, stop), (said.text.split(' ').count(), tokens, Stop::End));
    }

    #[test]
    fn as_many_tokens_of_as_many_bytes_as_asked() {
        let script = Script { text_tokens: Some(1000), token_bytes: Some(7), ..Script::default() };
        let (said, tokens, chunks, _) = say(&script, None, 4);
        assert_eq!((said.text.len(), tokens, chunks), (7000, 1000, 250));
        let words = Script { text_tokens: Some(1000), ..Script::default() };
        let (said, tokens, ..) = say(&words, None, 3);
        assert_eq!((said.text.split(' ').count(), tokens), (1000, 1000));
        let none = Script { text_tokens: Some(0), ..Script::default() };
        assert_eq!(say(&none, None, 3).0, Said::default());
    }

    #[test]
    fn the_requests_own_bound_cuts_the_answer() {
        let mut ask = ask();
        ask.max_tokens = Some(5);
        let mut content = Content::new(&ask, &Script::default(), None);
        let piece = content.next(100).map(|(_, tokens)| tokens);
        assert_eq!((piece, content.next(100), content.stop()), (Some(5), None, Stop::Length));
    }

    #[test]
    fn a_form_that_was_asked_for_is_kept() {
        let mut ask = ask();
        ask.form = Some(serde_json::json!({ "city": "ü b", "days": 1 }));
        let said = |ask: &Ask| {
            let mut content = Content::new(ask, &Script { text_tokens: Some(9), ..Script::default() }, None);
            let (mut said, mut pieces) = (Said::default(), 0);
            while let Some((piece, _)) = content.next(1) {
                said.add(piece);
                pieces += 1;
            }
            (said.text, pieces, content.stop())
        };
        let (text, pieces, stop) = said(&ask);
        assert_eq!(serde_json::from_str(&text).ok(), ask.form);
        assert!(pieces > 2 && stop == Stop::End, "{pieces} {stop:?}");
        ask.max_tokens = Some(2);
        assert_eq!(said(&ask).2, Stop::Length);
    }

    #[test]
    fn thinking_comes_first_and_tools_replace_the_text() {
        let script = Script { reasoning_tokens: 20, tool_calls: 2, ..Script::default() };
        let (said, tokens, _, stop) = say(&script, None, 2);
        let call = Call { name: "get_weather".to_owned(), arguments: r#"{"city":"Paris"}"#.to_owned() };
        assert_eq!((said.calls, said.text.as_str(), stop), (vec![call.clone(), call], "", Stop::Tool));
        assert_eq!(said.reasoning.split(' ').count(), 20);
        assert_eq!(tokens, 20 + 2 * (1 + 3));
    }

    #[test]
    fn the_splitting_fault_has_something_to_split() {
        let script = Script { text_tokens: Some(4), token_bytes: Some(3), ..Script::default() };
        assert_eq!(say(&script, Some(Fault::SplitUtf8), 1).0.text, "Déjà vu – ✓");
    }
}
