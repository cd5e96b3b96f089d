//! What a model's text says: an answer, thinking, or calls of tools.
//!
//! All three come in one stream of characters, and where one becomes another is written in marks that
//! each family of models has its own of. What could become a mark or a call is held back until it is
//! one; what only looked like it is text again. A call is sure from its name and the first of its
//! arguments on; from there its arguments stream.
//!
//! Invariant: what comes out does not depend on how the text was cut into pieces, and without thinking
//! and calls it is the text.

mod call;
mod family;
mod form;

use call::{Call, Read};
pub use family::Family;
use family::{THINK, THOUGHT};
pub use form::{Calls, form};

use crate::sample::Random;

/// Longest head of a call, from its mark to its arguments.
const HEAD_BYTES_MAX: usize = 256;

/// Something that the model said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// More of the answer.
    Text(String),
    /// More of its thinking.
    Reasoning(String),
    /// A call begins.
    CallBegin {
        /// Which of this answer, from zero.
        index: u32,
        /// Its name for the tool's answer: nine letters and digits, as all families take it.
        id: String,
        /// The tool.
        name: String,
    },
    /// More of the arguments, which together are JSON if the model wrote JSON.
    Arguments {
        /// Of which call.
        index: u32,
        /// So much of them.
        json: String,
    },
    /// A call ends.
    CallEnd {
        /// Which.
        index: u32,
    },
}

/// What an answer may contain.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// How calls are written, where the request has tools.
    pub family: Option<Family>,
    /// The names of the tools: a call without a mark is one only where it calls one of these.
    pub names: Vec<String>,
    /// Whether the prompt has begun the thinking: see [`opens_thinking`].
    pub is_thinking: bool,
    /// What the calls' ids are made from.
    pub seed: u64,
}

/// Whether a prompt ends with the mark that begins thinking, so that the answer begins within it.
#[must_use]
pub fn opens_thinking(prompt: &str) -> bool {
    prompt.trim_end().ends_with(THINK)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Text,
    Reasoning,
    /// A call may begin here.
    Opened,
    /// A call's name stands before its arguments.
    Head,
    Call,
    /// A call has ended.
    After,
}

/// A model's text on its way to deltas.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    expect: Expect,
    mode: Mode,
    /// What may become a mark.
    held: String,
    /// Space that the next character, or nothing, will follow.
    gap: String,
    /// Whether that space belongs to a mark before it.
    drops_gap: bool,
    /// Whether some of the answer is out.
    has_spoken: bool,
    /// What has to be given back if this is no call.
    raw: String,
    call: Call,
    /// The call is sure, and begun.
    is_sure: bool,
    is_list: bool,
    calls: u32,
}

impl Parser {
    /// At the beginning of an answer.
    #[must_use]
    pub fn new(expect: Expect) -> Self {
        let mode = if expect.is_thinking { Mode::Reasoning } else { Mode::Text };
        Self { drops_gap: expect.is_thinking, mode, expect, ..Self::default() }
    }

    /// Whether a special token with this text is part of what the parser reads.
    #[must_use]
    pub fn reads(&self, mark: &str) -> bool {
        self.expect.family.unwrap_or(Family::Generic).marks().contains(&mark)
    }

    /// Whether the model is thinking.
    #[must_use]
    pub fn is_thinking(&self) -> bool {
        self.mode == Mode::Reasoning
    }

    /// Appends to `out` what `text` makes sure.
    pub fn push(&mut self, text: &str, out: &mut Vec<Delta>) {
        text.chars().for_each(|character| self.on(character, out));
    }

    /// Nothing follows: what was held back is text, and a call that was begun ends.
    pub fn finish(&mut self, out: &mut Vec<Delta>) {
        match self.mode {
            Mode::Call if self.is_sure => self.end_call(out),
            Mode::Call | Mode::Opened | Mode::Head => self.give_back(out),
            Mode::Text | Mode::Reasoning | Mode::After => {
                let held = std::mem::take(&mut self.held);
                held.chars().for_each(|character| self.say(character, out));
            }
        }
        if self.mode == Mode::Text && !self.drops_gap {
            self.flush_gap(out);
        }
    }

    fn on(&mut self, character: char, out: &mut Vec<Delta>) {
        match self.mode {
            Mode::Text | Mode::Reasoning => self.on_text(character, out),
            Mode::Opened => self.on_opened(character, out),
            Mode::Head => self.on_head(character, out),
            Mode::Call => self.on_call(character, out),
            Mode::After => self.on_after(character, out),
        }
    }

    /// The marks that mean something here.
    fn marks(&self) -> [Option<&'static str>; 3] {
        if self.mode == Mode::Reasoning {
            return [Some(THOUGHT), None, None];
        }
        let is_first = !self.has_spoken && self.calls == 0;
        let family = self.expect.family;
        let close = family.filter(|_| self.calls > 0).and_then(Family::close);
        [is_first.then_some(THINK), family.and_then(Family::open), close]
    }

    fn on_text(&mut self, character: char, out: &mut Vec<Delta>) {
        let may_be_bare = self.mode == Mode::Text
            && !self.has_spoken
            && self.calls == 0
            && self.held.is_empty()
            && self.expect.family.is_some_and(Family::is_bare);
        if may_be_bare && matches!(character, '{' | '[') {
            self.mode = Mode::Opened;
            return self.on_opened(character, out);
        }
        self.held.push(character);
        let marks = self.marks();
        if let Some(mark) = marks.into_iter().flatten().find(|mark| *mark == self.held) {
            self.held.clear();
            return self.on_mark(mark);
        }
        while !self.held.is_empty() && !marks.iter().flatten().any(|mark| mark.starts_with(&self.held)) {
            let first = self.held.remove(0);
            self.say(first, out);
        }
    }

    fn on_mark(&mut self, mark: &str) {
        match mark {
            THINK => self.mode = Mode::Reasoning,
            THOUGHT => self.mode = Mode::Text,
            _ if self.expect.family.and_then(Family::open) == Some(mark) => {
                self.mode = Mode::Opened;
                mark.clone_into(&mut self.raw);
                return;
            }
            _ => {}
        }
        self.gap.clear();
        self.drops_gap = true;
    }

    fn on_opened(&mut self, character: char, out: &mut Vec<Delta>) {
        self.raw.push(character);
        let family = self.expect.family.unwrap_or(Family::Generic);
        match character {
            '{' => {
                self.call = Call::new(!self.is_marked());
                self.call.on(character);
                self.mode = Mode::Call;
            }
            '[' if !self.is_list && family.has_lists() => self.is_list = true,
            _ if character.is_ascii_whitespace() => {}
            _ if family == Family::Mistral
                && !self.is_list
                && (character.is_alphanumeric() || character == '_') =>
            {
                self.mode = Mode::Head;
            }
            _ => self.give_back(out),
        }
    }

    fn on_head(&mut self, character: char, out: &mut Vec<Delta>) {
        self.raw.push(character);
        if character == '\n' || self.raw.len() > HEAD_BYTES_MAX {
            return self.give_back(out);
        }
        if character != '{' {
            return;
        }
        let head = self.raw.trim_end_matches('{');
        let head = head.rsplit_once("[TOOL_CALLS]").map_or(head, |(_, head)| head).trim();
        let head = head.trim_end_matches("[ARGS]");
        let (name, id) = head.split_once("[CALL_ID]").map_or((head, None), |(name, id)| (name, Some(id)));
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !name.chars().all(is_name) {
            return self.give_back(out);
        }
        self.call = Call::headed(name, id);
        self.mode = Mode::Call;
        self.raw.pop();
        self.on_call(character, out);
    }

    fn on_call(&mut self, character: char, out: &mut Vec<Delta>) {
        if !self.is_sure {
            self.raw.push(character);
        }
        let read = self.call.on(character);
        let is_marked = self.is_marked();
        if let Some(name) = &self.call.name
            && !self.is_sure
        {
            let is_known = is_marked || self.expect.names.contains(name);
            if !is_known {
                return self.give_back(out);
            }
            // A marked call without arguments is one; without a mark it is anything that has a name.
            if read == Read::End && is_marked && self.call.arguments.is_empty() {
                self.call.arguments.push_str("{}");
            }
            if !self.call.arguments.is_empty() {
                self.begin_call(out);
            }
        }
        if self.is_sure && !self.call.arguments.is_empty() {
            let (index, json) = (self.calls, &mut self.call.arguments);
            match out.last_mut() {
                Some(Delta::Arguments { json: last, .. }) => last.push_str(json),
                _ => out.push(Delta::Arguments { index, json: json.clone() }),
            }
            json.clear();
        }
        match (read, self.is_sure) {
            (Read::More, _) => {}
            (Read::End | Read::Wrong, true) => self.end_call(out),
            (Read::End | Read::Wrong, false) => self.give_back(out),
        }
    }

    /// Whether a mark says that this is a call.
    fn is_marked(&self) -> bool {
        self.raw.starts_with('<') || !self.expect.family.is_some_and(Family::is_bare)
    }

    fn begin_call(&mut self, out: &mut Vec<Delta>) {
        self.is_sure = true;
        self.raw.clear();
        self.gap.clear();
        let id = self.call.id.take().filter(|id| !id.is_empty());
        let id = id.unwrap_or_else(|| id_of(self.expect.seed, self.calls));
        let name = self.call.name.clone().unwrap_or_default();
        out.push(Delta::CallBegin { index: self.calls, id, name });
    }

    fn end_call(&mut self, out: &mut Vec<Delta>) {
        out.push(Delta::CallEnd { index: self.calls });
        self.calls += 1;
        self.is_sure = false;
        self.drops_gap = true;
        self.mode = Mode::After;
    }

    fn on_after(&mut self, character: char, out: &mut Vec<Delta>) {
        let is_llama = self.expect.family == Some(Family::Llama3);
        match character {
            _ if character.is_ascii_whitespace() => {}
            ']' if self.is_list => self.is_list = false,
            ',' | ';' if self.is_list || is_llama => {
                self.mode = Mode::Opened;
                self.raw.push(character);
            }
            '{' if is_llama => {
                self.mode = Mode::Opened;
                self.on_opened(character, out);
            }
            _ => {
                self.mode = Mode::Text;
                self.on_text(character, out);
            }
        }
    }

    /// It was no call: it is text, as it stands.
    fn give_back(&mut self, out: &mut Vec<Delta>) {
        self.mode = Mode::Text;
        self.is_list = false;
        self.flush_gap(out);
        let raw = std::mem::take(&mut self.raw);
        raw.chars().for_each(|character| self.add(character, out));
    }

    /// A character that is no part of a mark. Space waits for what follows it.
    fn say(&mut self, character: char, out: &mut Vec<Delta>) {
        let waits = self.mode == Mode::Reasoning || !self.has_spoken || self.expect.family.is_some();
        if character.is_whitespace() && waits {
            self.gap.push(character);
        } else {
            self.flush_gap(out);
            self.add(character, out);
        }
    }

    fn flush_gap(&mut self, out: &mut Vec<Delta>) {
        let gap = std::mem::take(&mut self.gap);
        if !std::mem::take(&mut self.drops_gap) {
            gap.chars().for_each(|character| self.add(character, out));
        }
    }

    fn add(&mut self, character: char, out: &mut Vec<Delta>) {
        match (self.mode == Mode::Reasoning, out.last_mut()) {
            (true, Some(Delta::Reasoning(text))) | (false, Some(Delta::Text(text))) => text.push(character),
            (true, _) => out.push(Delta::Reasoning(character.into())),
            (false, _) => out.push(Delta::Text(character.into())),
        }
        self.has_spoken |= self.mode != Mode::Reasoning;
    }
}

/// Nine letters and digits, the same for the same answer and place.
fn id_of(seed: u64, index: u32) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut bits = Random::new(seed ^ u64::from(index).rotate_left(32)).next_u64();
    let digit = |_| {
        let at = usize::try_from(bits % 62).unwrap_or(0);
        bits /= 62;
        char::from(DIGITS[at])
    };
    (0..9).map(digit).collect()
}
