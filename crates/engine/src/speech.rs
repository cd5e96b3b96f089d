//! One answer being spoken: the mouth is on the engine's thread, the ear with whoever asked.
//!
//! The mouth chooses each token, within the form that the answer must have if it must have one, makes
//! text of it, reads thinking and calls out of that, and hands it over in pieces. Between the two lie at
//! most `PIECES_MAX` of them: a reader who does not keep up pauses its own sequence and no other, and
//! the engine never waits. Dropping the ear cancels.
//!
//! Invariant: pieces arrive in order, none is lost, and after the end there are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use firsttoken_logic::engine::ids::Token;
use firsttoken_logic::engine::sequence::Request;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::driver::{Answer, Engine, Flow, Job, NotTaken, Refused, Ticket};
use crate::grammar::{Grammar, GrammarError};
use crate::sample::{Sampler, Sampling, Scratch};
use crate::text::{Detokenizer, Stops};
use crate::tools::{Delta, Expect, Parser};
use crate::vocabulary::Vocabulary;

/// Pieces between mouth and ear.
const PIECES_MAX: usize = 128;
/// From so few on, a mouth that had to pause goes on.
const PIECES_RESUME: usize = PIECES_MAX / 4;

/// Most guesses at once.
pub const GUESSES_MAX: u32 = 32;
/// Places that stay free for what one step more may say: a piece for its token and one for each guess
/// that was right, and the end.
const PIECES_LEFT_MIN: usize = GUESSES_MAX as usize + 2;

/// What the reader gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// What one token made sure, in its order and never empty, and when it was chosen.
    Said(Vec<Delta>, Instant),
    /// The end, as it should be.
    End(End),
    /// There will be no (more) answer.
    Refused(Refused),
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub reason: Reason,
    /// Prompt tokens that nobody had to compute.
    pub cached: u32,
    /// Tokens that were generated, the one that ended it included.
    pub generated: u32,
    /// Those of them that were thinking.
    pub thought: u32,
    /// How long it took.
    pub timings: Timings,
}

/// How long the stages of an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// From being asked to the first step that worked at it.
    pub waited: Duration,
    /// From there until the prompt was computed.
    pub prompt: Duration,
    /// From there to the end.
    pub spoken: Duration,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model had finished.
    Finished,
    /// The model had finished, and has called tools.
    Called,
    /// A stop string stood in the text.
    Stopped,
    /// There was no room for more: the bound that was asked for, or the memory.
    Length,
}

/// How to speak.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// How to choose.
    pub sampling: Sampling,
    /// Texts that end the answer.
    pub stops: Stops,
    /// Goes on when the model says that it has finished; an answer that must have a form ends all the same.
    pub ignore_end: bool,
    /// Most guesses at once, at most [`GUESSES_MAX`].
    pub guesses_max: u32,
    /// The form that the answer must have, once there is no more thinking.
    pub form: Option<Grammar>,
    /// What to read out of the text; nothing where it is to be told as it stands.
    pub expect: Option<Expect>,
}

/// The end of an answer where it is heard.
pub struct Ear {
    pieces: mpsc::Receiver<Piece>,
    paused: Arc<AtomicBool>,
    ticket: Ticket,
}

impl Ear {
    /// The next piece; `None` after the end.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let polled = self.pieces.poll_recv(cx);
        if polled.is_ready()
            && self.pieces.len() <= PIECES_RESUME
            && self.paused.load(Relaxed)
            && self.paused.swap(false, Relaxed)
        {
            self.ticket.resume();
        }
        polled
    }

    /// The next piece; `None` after the end.
    pub async fn hear(&mut self) -> Option<Piece> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }
}

/// Asks `engine` to answer.
///
/// # Errors
/// When the engine cannot take it.
pub fn speak(
    engine: &Engine,
    request: Request,
    manner: Manner,
    vocabulary: Arc<dyn Vocabulary>,
) -> Result<Ear, NotTaken> {
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let paused = Arc::new(AtomicBool::new(false));
    let guesses_max = manner.guesses_max.min(GUESSES_MAX);
    let mouth = Mouth::new(manner, &request.prompt, vocabulary, sender, Arc::clone(&paused));
    let job = Job { request, answer: Box::new(mouth), guesses_max };
    let ticket = engine.generate(job)?;
    Ok(Ear { pieces, paused, ticket })
}

struct Mouth {
    sampler: Sampler,
    grammar: Option<Grammar>,
    detokenizer: Detokenizer,
    parser: Option<Parser>,
    ignore_end: bool,
    vocabulary: Arc<dyn Vocabulary>,
    scratch: Scratch,
    bytes: Vec<u8>,
    /// Why there is no mask, where there should be one.
    stuck: Option<GrammarError>,
    has_called: bool,
    cached: u32,
    generated: u32,
    thought: u32,
    timings: Timings,
    /// When the stage of it began that is under way.
    since: Instant,
    sender: mpsc::Sender<Piece>,
    paused: Arc<AtomicBool>,
}

impl Answer for Mouth {
    fn on_work(&mut self) {
        self.timings.waited = self.stage();
    }

    fn on_start(&mut self, cached: u32) {
        self.cached = cached;
        self.timings.prompt = self.stage();
    }

    fn choose(&mut self, logits: &[f32]) -> Token {
        let is_thinking = self.is_thinking();
        let grammar = self.grammar.as_mut().filter(|_| !is_thinking);
        let mask = match grammar.map(Grammar::mask).transpose() {
            Ok(mask) => mask,
            Err(error) => {
                self.stuck = Some(error);
                None
            }
        };
        // Where nothing may be chosen the model has nothing to say.
        let ended = || self.vocabulary.eos().unwrap_or_default();
        self.sampler.sample(&mut self.scratch, logits, mask).unwrap_or_else(ended)
    }

    fn guess(&mut self, logits: &[f32], ahead: u32) -> Token {
        // Two models of one vocabulary may fill it up to another length.
        let words = logits.len().min(self.vocabulary.size() as usize);
        self.sampler.guess(&mut self.scratch, &logits[..words], ahead).unwrap_or_default()
    }

    fn on_token(&mut self, token: Token, last: bool) -> Flow {
        self.sampler.accept(token);
        self.generated += 1;
        self.thought += u32::from(self.is_thinking());
        if let Err(error) = self.advance(token) {
            self.hand_over(Piece::Refused(Refused::Failed(error.to_string())));
            return Flow::End;
        }
        let has_form = self.grammar.is_some();
        if self.vocabulary.is_end(token) && (has_form || !self.ignore_end) {
            return self.end(Vec::new(), Reason::Finished);
        }
        let mut deltas = Vec::new();
        let is_stopped = self.read(token, &mut deltas);
        let is_whole = !self.is_thinking() && self.grammar.as_ref().is_some_and(Grammar::is_finished);
        match (is_stopped, is_whole, last) {
            (true, ..) => self.end(deltas, Reason::Stopped),
            (false, true, _) => self.end(deltas, Reason::Finished),
            (false, false, true) => self.end(deltas, Reason::Length),
            (false, false, false) => {
                self.say(deltas);
                self.pace()
            }
        }
    }

    fn on_refused(&mut self, why: Refused) {
        self.hand_over(Piece::Refused(why));
    }
}

impl Mouth {
    fn new(
        manner: Manner,
        prompt: &[Token],
        vocabulary: Arc<dyn Vocabulary>,
        sender: mpsc::Sender<Piece>,
        paused: Arc<AtomicBool>,
    ) -> Self {
        Self {
            sampler: Sampler::new(manner.sampling, prompt),
            grammar: manner.form,
            detokenizer: Detokenizer::new(manner.stops),
            parser: manner.expect.map(Parser::new),
            ignore_end: manner.ignore_end,
            vocabulary,
            scratch: Scratch::default(),
            bytes: Vec::new(),
            stuck: None,
            has_called: false,
            cached: 0,
            generated: 0,
            thought: 0,
            timings: Timings::default(),
            since: Instant::now(),
            sender,
            paused,
        }
    }

    fn is_thinking(&self) -> bool {
        self.parser.as_ref().is_some_and(Parser::is_thinking)
    }

    /// Ends a stage: how long it was.
    fn stage(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.since, now)
    }

    /// Moves on in the form. Thinking has none.
    fn advance(&mut self, token: Token) -> Result<(), GrammarError> {
        if let Some(error) = self.stuck.take() {
            return Err(error);
        }
        let is_thinking = self.is_thinking();
        match self.grammar.as_mut().filter(|_| !is_thinking) {
            Some(grammar) => grammar.advance(token),
            None => Ok(()),
        }
    }

    /// What `token` says, and whether a stop string stood in it.
    fn read(&mut self, token: Token, deltas: &mut Vec<Delta>) -> bool {
        self.bytes.clear();
        self.vocabulary.push_piece(token, false, &mut self.bytes);
        if self.bytes.is_empty()
            && let Some(parser) = &self.parser
        {
            // A mark that is a token of its own is no text, but the parser may wait for it.
            let mark = self.vocabulary.special_text(Some(token));
            if parser.reads(&mark) {
                self.bytes.extend(mark.into_bytes());
            }
        }
        let mut text = String::new();
        let met = self.detokenizer.push(&self.bytes, &mut text);
        self.tell(text, deltas);
        met.is_some()
    }

    fn tell(&mut self, text: String, deltas: &mut Vec<Delta>) {
        match &mut self.parser {
            Some(parser) => parser.push(&text, deltas),
            None if !text.is_empty() => deltas.push(Delta::Text(text)),
            None => {}
        }
    }

    /// The end, after what is still held back.
    fn end(&mut self, mut deltas: Vec<Delta>, reason: Reason) -> Flow {
        let mut text = String::new();
        let is_stopped = self.detokenizer.finish(&mut text).is_some();
        self.tell(text, &mut deltas);
        if let Some(parser) = &mut self.parser {
            parser.finish(&mut deltas);
        }
        self.say(deltas);
        let reason = match reason {
            Reason::Finished | Reason::Stopped if self.has_called => Reason::Called,
            _ if is_stopped => Reason::Stopped,
            reason => reason,
        };
        self.timings.spoken = self.stage();
        let Self { cached, generated, thought, timings, .. } = *self;
        self.hand_over(Piece::End(End { reason, cached, generated, thought, timings }));
        Flow::End
    }

    fn say(&mut self, deltas: Vec<Delta>) {
        if !deltas.is_empty() {
            self.has_called |= deltas.iter().any(|delta| matches!(delta, Delta::CallBegin { .. }));
            self.hand_over(Piece::Said(deltas, Instant::now()));
        }
    }

    /// There is always room: the mouth pauses while there is some left for an end and its last text.
    fn hand_over(&mut self, piece: Piece) {
        // A reader who has left hears nothing.
        let _ = self.sender.try_send(piece);
    }

    /// Whether the reader keeps up.
    fn pace(&mut self) -> Flow {
        if self.sender.capacity() > PIECES_LEFT_MIN {
            return Flow::More;
        }
        self.paused.store(true, Relaxed);
        // It may have caught up in between, and then nobody would wake this sequence.
        if self.sender.capacity() >= PIECES_MAX - PIECES_RESUME && self.paused.swap(false, Relaxed) {
            return Flow::More;
        }
        Flow::Pause
    }
}

#[cfg(test)]
mod tests;
