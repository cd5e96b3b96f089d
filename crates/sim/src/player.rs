//! Plays a script: what comes next, and when.
//!
//! A [`Player`] is asked for one [`Step`] at a time and produces only what is asked for, so a reader
//! that stops reading stops the production too. Times are absolute: a late step does not delay the
//! ones after it, as a real engine does not wait for its readers either.
//!
//! Invariant: after [`Step::End`], [`Step::Hang`] or [`Step::Break`] nothing more is asked for.

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::time::Instant;

use crate::ask::Ask;
use crate::content::{Content, Piece, Said};
use crate::fault::{Fault, FaultSpec, Strike};
use crate::latency;
use crate::link::Break;
use crate::script::Script;
use crate::stats::Ended;
use crate::voice::{Counts, Voice};

/// Size of the text in [`Fault::BigEvent`].
const BIG_EVENT_BYTES: usize = 2 << 20;
/// Time between two [`Fault::Pings`].
const PING_MS: u64 = 1_000;
/// Time between the halves of a character in [`Fault::SplitUtf8`].
const SPLIT_MS: u64 = 1;

/// What the body does next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Waits.
    Until(Instant),
    /// Hands bytes to the connection.
    Write { bytes: Bytes, tokens: u64 },
    /// Lets the connection write what it has.
    Flush,
    /// Does nothing until the peer leaves.
    Hang,
    /// Breaks the connection, or over HTTP/2 the stream.
    Break(Break),
    /// Ends the body properly; how that counts.
    End(Ended),
}

/// The script of one answer.
pub(crate) struct Player {
    script: Script,
    fault: Option<FaultSpec>,
    voice: Box<dyn Voice>,
    content: Content,
    counts: Counts,
    rng: fastrand::Rng,
    phase: Phase,
    steps: VecDeque<Step>,
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// When the next content is due.
    due: Instant,
    /// When what was queued last is due.
    at: Instant,
    /// Whether a fault with a position has struck.
    struck: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Opening,
    Content,
    Finish,
    /// Keepalives for ever.
    Pings,
    /// Blank characters for ever: what a whole answer has for an endless one.
    Blanks,
    Over,
}

impl Player {
    /// An answer whose request was taken at `start`.
    pub(crate) fn new(
        ask: &Ask,
        script: &Script,
        fault: Option<FaultSpec>,
        voice: Box<dyn Voice>,
        counts: Counts,
        mut rng: fastrand::Rng,
        start: Instant,
    ) -> Self {
        let prefill = latency::millis(script.prefill_ms * f64::from(ask.prompt_tokens) / 1e3);
        let due = start + script.ttft.sample(&mut rng) + prefill;
        let gzip = fault.is_some_and(|spec| spec.fault == Fault::Gzip);
        Self {
            content: Content::new(ask, script, fault.map(|spec| spec.fault)),
            script: script.clone(),
            fault,
            voice,
            counts,
            rng,
            phase: Phase::Opening,
            steps: VecDeque::new(),
            gzip: gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
            due,
            at: script.head.map_or(due, |head| start + head),
            struck: false,
        }
    }

    /// When the response head of a stream goes out, `start` being when the request was taken.
    pub(crate) fn head_at(&self, start: Instant) -> Instant {
        self.script.head.map_or(self.due, |head| start + head)
    }

    /// Makes this the script of a whole answer, and says when its head goes out.
    pub(crate) fn make_whole(&mut self) -> Instant {
        self.phase = Phase::Over;
        match self.fault() {
            Some(Fault::RoleSilence) => self.steps.push_back(Step::Hang),
            Some(Fault::Pings) => self.phase = Phase::Pings,
            Some(Fault::Endless) => self.phase = Phase::Blanks,
            _ => self.script_whole(),
        }
        self.due
    }

    /// Size of the body in bytes, where it is one piece and known.
    pub(crate) fn length(&self) -> Option<usize> {
        match (self.steps.front(), self.steps.get(1)) {
            (Some(Step::Write { bytes, .. }), Some(Step::End(_))) => Some(bytes.len()),
            _ => None,
        }
    }

    /// The next step.
    pub(crate) fn next(&mut self) -> Step {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            self.refill();
        }
    }

    fn fault(&self) -> Option<Fault> {
        self.fault.map(|spec| spec.fault)
    }

    fn refill(&mut self) {
        match self.phase {
            Phase::Opening => self.open(),
            Phase::Content => self.go_on(),
            Phase::Finish => self.finish(),
            Phase::Pings => self.ping(),
            Phase::Blanks => {
                self.write(b" \n".to_vec(), 0);
                self.due += self.script.itl.sample(&mut self.rng).max(Duration::from_millis(1));
                self.wait_until(self.due);
            }
            Phase::Over => self.steps.push_back(Step::Hang),
        }
    }

    fn open(&mut self) {
        let mut out = Vec::new();
        self.voice.opening(&mut out);
        self.write(out, 0);
        self.phase = match self.fault() {
            Some(Fault::Pings) => Phase::Pings,
            Some(Fault::RoleSilence) => Phase::Over,
            _ => Phase::Content,
        };
    }

    fn ping(&mut self) {
        let gap = self.fault.and_then(|spec| spec.time).unwrap_or(Duration::from_millis(PING_MS));
        self.due += gap.max(Duration::from_millis(1));
        self.wait_until(self.due);
        let mut out = Vec::new();
        self.voice.ping(&mut out);
        self.write(out, 0);
    }

    /// One write of content, or the fault whose turn it is.
    fn go_on(&mut self) {
        let next_strike =
            self.fault.filter(|_| !self.struck).and_then(|spec| Some((spec, spec.fault.strike()?)));
        let until_fault = match next_strike {
            Some((spec, strike)) => match u64::from(spec.after_tokens).saturating_sub(self.counts.output) {
                0 => return self.strike(strike),
                tokens => tokens,
            },
            None => u64::MAX,
        };
        let mut out = Vec::new();
        let mut tokens = 0;
        let mut at = self.due;
        for _ in 0..self.script.write_chunks {
            let tokens_max = u32::try_from(until_fault - tokens).unwrap_or(u32::MAX);
            if tokens_max == 0 {
                break;
            }
            let Some((piece, n)) = self.content.next(self.script.chunk_tokens.min(tokens_max)) else {
                self.phase = Phase::Finish;
                break;
            };
            self.voice.piece(&piece, &mut out);
            tokens += u64::from(n);
            if matches!(piece, Piece::Reasoning(_)) {
                self.counts.reasoning += u64::from(n);
            }
            at = self.due;
            self.due += self.script.itl.sample(&mut self.rng);
        }
        self.counts.output += tokens;
        if tokens > 0 {
            self.wait_until(at);
            self.write(out, tokens);
        }
    }

    /// The fault with a position has its turn, at the time of the content it comes before.
    fn strike(&mut self, strike: Strike) {
        self.struck = true;
        if strike == Strike::Stall {
            let Some(time) = self.fault.and_then(|spec| spec.time) else {
                return self.steps.push_back(Step::Hang);
            };
            self.wait_until(self.at + time);
            self.due += time;
            return;
        }
        self.wait_until(self.due);
        let mut out = Vec::new();
        match strike {
            Strike::Stall => {}
            Strike::Cut => self.steps.push_back(Step::Break(Break::Cut)),
            Strike::Reset => self.steps.push_back(Step::Break(Break::Reset)),
            Strike::End => self.end(Ended::Faulted),
            Strike::BadJson => {
                self.voice.garbled(&mut out);
                self.write(out, 0);
            }
            Strike::ErrorEvent => {
                self.voice.error(&mut out);
                self.write(out, 0);
                self.end(Ended::Faulted);
            }
            Strike::BigEvent => {
                self.voice.piece(&Piece::Text("simulated ".repeat(BIG_EVENT_BYTES / 10)), &mut out);
                self.write(out, 1);
            }
        }
    }

    fn finish(&mut self) {
        if self.counts.output == 0 {
            self.wait_until(self.due);
        }
        let counts = self.script.usage.then_some(self.counts);
        let mut out = Vec::new();
        self.voice.finish(self.content.stop(), counts, &mut out);
        let terminals = match self.fault() {
            Some(Fault::NoDone) => 0,
            Some(Fault::TwoDone) => 2,
            _ => 1,
        };
        for _ in 0..terminals {
            self.voice.terminal(&mut out);
        }
        if self.fault() == Some(Fault::After) {
            self.voice.piece(&Piece::Text(" after the end".to_owned()), &mut out);
        }
        self.write(out, 0);
        self.end(if terminals == 0 { Ended::Faulted } else { Ended::Completed });
    }

    /// The steps of an answer that is not streamed: all of it when its last token is done, or the
    /// half of it and then the fault.
    fn script_whole(&mut self) {
        let mut said = Said::default();
        let mut chunks = 0_u32;
        while let Some((piece, tokens)) = self.content.next(self.script.chunk_tokens) {
            self.counts.output += u64::from(tokens);
            if matches!(piece, Piece::Reasoning(_)) {
                self.counts.reasoning += u64::from(tokens);
            }
            said.add(piece);
            // The first one comes at the TTFT.
            if chunks > 0 {
                self.due += self.script.itl.sample(&mut self.rng);
            }
            chunks += 1;
        }
        let counts = self.script.usage.then_some(self.counts);
        let whole = self.voice.whole(&said, self.content.stop(), counts);
        let mut body = whole.to_string().into_bytes();
        let half = body.len() / 2;
        let tokens = self.counts.output;
        let Some(strike) = self.fault().and_then(Fault::strike) else {
            self.write(body, tokens);
            return self.end(Ended::Completed);
        };
        if strike == Strike::BigEvent {
            // White space before the value is JSON too: 2 MiB of it.
            self.write(vec![b' '; BIG_EVENT_BYTES], 0);
            self.write(body, tokens);
            return self.end(Ended::Completed);
        }
        let rest = body.split_off(half);
        self.write(body, tokens);
        match (strike, self.fault.and_then(|spec| spec.time)) {
            (Strike::Stall, Some(time)) => {
                self.wait_until(self.due + time);
                self.write(rest, 0);
                self.end(Ended::Completed);
            }
            (Strike::Stall, None) => self.steps.push_back(Step::Hang),
            (Strike::Cut, _) => self.steps.push_back(Step::Break(Break::Cut)),
            (Strike::Reset, _) => self.steps.push_back(Step::Break(Break::Reset)),
            (Strike::End | Strike::BadJson | Strike::ErrorEvent | Strike::BigEvent, _) => {
                self.end(Ended::Faulted)
            }
        }
    }

    fn wait_until(&mut self, at: Instant) {
        self.at = self.at.max(at);
        self.steps.push_back(Step::Until(self.at));
    }

    fn end(&mut self, ended: Ended) {
        self.phase = Phase::Over;
        if let Some(gzip) = self.gzip.take() {
            let rest = gzip.finish().expect("a Vec takes everything");
            self.steps.push_back(Step::Write { bytes: rest.into(), tokens: 0 });
        }
        self.steps.push_back(Step::End(ended));
    }

    /// Queues bytes that are due now, in the shape that the fault gives them.
    fn write(&mut self, bytes: Vec<u8>, tokens: u64) {
        if let Some(gzip) = &mut self.gzip {
            gzip.write_all(&bytes).and_then(|()| gzip.flush()).expect("a Vec takes everything");
            let packed = std::mem::take(gzip.get_mut());
            return self.steps.push_back(Step::Write { bytes: packed.into(), tokens });
        }
        match self.fault() {
            Some(Fault::Trickle) => {
                let gap = self.fault.and_then(|spec| spec.time).unwrap_or_default();
                let cuts: Vec<_> = (1..bytes.len()).collect();
                self.write_cut(bytes, &cuts, gap, tokens);
            }
            Some(Fault::SplitUtf8) => {
                let is_lead = |i: &usize| bytes[*i] >= 0xC0;
                let cuts: Vec<_> = (0..bytes.len()).filter(is_lead).map(|i| i + 1).collect();
                self.write_cut(bytes, &cuts, Duration::from_millis(SPLIT_MS), tokens);
            }
            _ => self.steps.push_back(Step::Write { bytes: bytes.into(), tokens }),
        }
    }

    /// Queues bytes cut at these places, with a gap after each piece.
    fn write_cut(&mut self, bytes: Vec<u8>, cuts: &[usize], gap: Duration, mut tokens: u64) {
        let mut rest = Bytes::from(bytes);
        let mut from = 0;
        for &cut in cuts {
            let piece = rest.split_to(cut - from);
            from = cut;
            self.steps.push_back(Step::Write { bytes: piece, tokens: std::mem::take(&mut tokens) });
            self.steps.push_back(Step::Flush);
            if !gap.is_zero() {
                self.wait_until(self.at + gap);
            }
        }
        self.steps.push_back(Step::Write { bytes: rest, tokens });
    }
}
