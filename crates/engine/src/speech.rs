//! One answer being spoken: the mouth is on the engine's thread, the ear with whoever asked.
//!
//! The mouth chooses each token, makes text of it and hands that over in pieces. Between the two lie
//! at most [`PIECES_MAX`] of them: a reader who does not keep up pauses its own sequence and no other,
//! and the engine never waits. Dropping the ear cancels.
//!
//! Invariant: pieces arrive in order, none is lost, and after the end there are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use firsttoken_logic::engine::ids::Token;
use firsttoken_logic::engine::sequence::Request;
use tokio::sync::mpsc;

use crate::driver::{Answer, Engine, Flow, Job, NotTaken, Refused, Ticket};
use crate::sample::{Sampler, Sampling, Scratch};
use crate::text::{Detokenizer, Stops};
use crate::vocabulary::Vocabulary;

/// Pieces between mouth and ear.
const PIECES_MAX: usize = 128;
/// From so few on, a mouth that had to pause goes on.
const PIECES_RESUME: usize = PIECES_MAX / 4;

/// Places that stay free for what one step more may say: a text and an end for each guess that was right.
const PIECES_LEFT_MIN: usize = 40;

/// What the reader gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text, never empty.
    Text(String),
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
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The model had finished.
    Finished,
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
    /// Goes on when the model says that it has finished.
    pub ignore_end: bool,
    /// Most guesses at once.
    pub guesses_max: u32,
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
    let mouth = Mouth {
        sampler: Sampler::new(manner.sampling, &request.prompt),
        detokenizer: Detokenizer::new(manner.stops),
        ignore_end: manner.ignore_end,
        vocabulary,
        scratch: Scratch::default(),
        bytes: Vec::new(),
        cached: 0,
        generated: 0,
        sender,
        paused: Arc::clone(&paused),
    };
    let job = Job { request, answer: Box::new(mouth), guesses_max: manner.guesses_max };
    let ticket = engine.generate(job)?;
    Ok(Ear { pieces, paused, ticket })
}

struct Mouth {
    sampler: Sampler,
    detokenizer: Detokenizer,
    ignore_end: bool,
    vocabulary: Arc<dyn Vocabulary>,
    scratch: Scratch,
    bytes: Vec<u8>,
    cached: u32,
    generated: u32,
    sender: mpsc::Sender<Piece>,
    paused: Arc<AtomicBool>,
}

impl Answer for Mouth {
    fn on_start(&mut self, cached: u32) {
        self.cached = cached;
    }

    fn choose(&mut self, logits: &[f32]) -> Token {
        // Where nothing may be chosen the model has nothing to say.
        let ended = || self.vocabulary.eos().unwrap_or_default();
        self.sampler.sample(&mut self.scratch, logits, None).unwrap_or_else(ended)
    }

    fn on_token(&mut self, token: Token, last: bool) -> Flow {
        self.sampler.accept(token);
        self.generated += 1;
        if self.vocabulary.is_end(token) && !self.ignore_end {
            return self.end(Reason::Finished);
        }
        self.bytes.clear();
        self.vocabulary.push_piece(token, false, &mut self.bytes);
        let mut text = String::new();
        let stopped = self.detokenizer.push(&self.bytes, &mut text).is_some();
        self.say(text);
        match (stopped, last) {
            (true, _) => self.close(Reason::Stopped),
            (false, true) => self.end(Reason::Length),
            (false, false) => self.pace(),
        }
    }

    fn on_refused(&mut self, why: Refused) {
        self.hand_over(Piece::Refused(why));
    }
}

impl Mouth {
    /// The end, after what is still held back.
    fn end(&mut self, reason: Reason) -> Flow {
        let mut text = String::new();
        let stopped = self.detokenizer.finish(&mut text).is_some();
        self.say(text);
        self.close(if stopped { Reason::Stopped } else { reason })
    }

    fn close(&mut self, reason: Reason) -> Flow {
        self.hand_over(Piece::End(End { reason, cached: self.cached, generated: self.generated }));
        Flow::End
    }

    fn say(&mut self, text: String) {
        if !text.is_empty() {
            self.hand_over(Piece::Text(text));
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
