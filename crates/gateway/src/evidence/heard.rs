//! What one attempt has said, and when.
//!
//! A request may have several attempts, and two of them at once; what each says is its own until one of
//! them answers. Then it is the request's.
//!
//! Invariant: one sample of ITL for each content event, and none before the first.

use std::time::Duration;

use firsttoken_logic::sketch::Sketch;
use firsttoken_logic::time::Instant;
use firsttoken_wire::chat::{Event, Usage};

use super::{Phase, Stamps};
use crate::lines::Place;

/// Kinds of content whose first appearance is reported apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Text,
    Reasoning,
    Tool,
}

/// What an attempt has said so far.
pub(crate) struct Heard {
    pub(crate) stamps: Stamps,
    /// Its place at the upstream, where that has a limit.
    pub(crate) place: Option<Place>,
    /// A gap above this is a stall.
    pub(crate) stall_threshold: Duration,
    first: [Option<Instant>; 3],
    pub(super) first_content: Option<Instant>,
    pub(super) last_content: Option<Instant>,
    pub(super) content_events: u64,
    pub(super) itl: Sketch,
    pub(super) stalls: u32,
    pub(crate) usage: Usage,
    /// An event was too large to be read: from there on nothing is known.
    pub(crate) unmetered: bool,
}

impl Heard {
    /// Nothing yet.
    pub(crate) fn new(stamps: Stamps) -> Self {
        Self {
            stamps,
            place: None,
            stall_threshold: Duration::MAX,
            first: [None; 3],
            first_content: None,
            last_content: None,
            content_events: 0,
            itl: Sketch::default(),
            stalls: 0,
            usage: Usage::default(),
            unmetered: false,
        }
    }

    /// Nothing yet, of another attempt at the same request.
    pub(crate) fn fork(&self) -> Self {
        Self { stall_threshold: self.stall_threshold, ..Self::new(self.stamps.clone()) }
    }

    /// A content event came from the upstream at `now`. One sample of ITL each; events that came
    /// together have a gap of zero, which is how bunching shows.
    pub(crate) fn on_content(&mut self, event: &Event<'_>, now: Instant) {
        let kind = match event {
            Event::Reasoning(_) => Content::Reasoning,
            Event::ToolStart { .. } | Event::ToolArguments { .. } => Content::Tool,
            _ => Content::Text,
        };
        self.first[kind as usize].get_or_insert(now);
        self.content_events += 1;
        match self.last_content.replace(now) {
            None => {
                self.first_content = Some(now);
                self.stamps.enter_at(Phase::Decode, now);
            }
            Some(last) => {
                let gap = now.since(last);
                self.itl.record(gap);
                self.stalls += u32::from(gap > self.stall_threshold);
            }
        }
    }

    /// Whether content has come.
    pub(crate) fn has_content(&self) -> bool {
        self.first_content.is_some()
    }

    pub(super) const fn first(&self, content: Content) -> Option<Instant> {
        self.first[content as usize]
    }
}
