//! One request in the engine.
//!
//! It has *tokens*, the prompt and what was generated since, and of the first of them the keys and
//! values are *computed*. Each step brings the two numbers closer; there is no other difference
//! between prefill, decode, the rest behind a shared prefix, and the verification of a draft.
//!
//! Invariant: what is computed are tokens that it has; only a running one has a sequence of the
//! kernels.

use alloc::vec::Vec;
use core::time::Duration;

use super::ids::{RequestId, SeqId, SnapshotId, Tenant, Token};
use super::prefix::Chain;
use crate::time::Instant;

/// Who goes first. Within one, short waits come first, and age counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Nobody looks on: runs when nothing else does.
    Batch,
    /// Somebody reads along.
    #[default]
    Interactive,
}

/// What is asked of the engine.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its name.
    pub id: RequestId,
    /// Whose prefixes it may share.
    pub tenant: Tenant,
    /// The prompt, at least one token.
    pub prompt: Vec<Token>,
    /// Most tokens that it will generate, at least one.
    pub output_max: u32,
    /// Who goes first.
    pub priority: Priority,
    /// The longest gap between two tokens that its reader should see; none where nobody reads along.
    pub itl_target: Option<Duration>,
    /// When its answer is worth nothing any more.
    pub deadline: Option<Instant>,
}

/// What brings a part of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Another is computing it: wait until that one has come so far.
    Computed(RequestId, u32),
    /// It is being read from disk: wait for it, but no longer than until then.
    Read(SnapshotId, Instant),
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not at work.
    Waiting {
        /// What it waits for, beside its turn.
        after: Option<After>,
        /// Its own work, saved when it had to make room.
        saved: Option<SnapshotId>,
    },
    /// At work.
    Running {
        /// The sequence of the kernels.
        seq: SeqId,
        /// Tokens with keys and values.
        computed: u32,
    },
}

/// One request, and how far it has come.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub(super) request: RequestId,
    pub(super) tenant: Tenant,
    pub(super) tokens: Vec<Token>,
    /// How many of them were the prompt.
    pub(super) prompt: u32,
    pub(super) output_max: u32,
    pub(super) priority: Priority,
    pub(super) itl_target: Option<Duration>,
    pub(super) deadline: Option<Instant>,
    pub(super) arrived: Instant,
    pub(super) chain: Chain,
    pub(super) state: State,
    /// Guesses at the next tokens, to be verified with the next step.
    pub(super) drafts: Vec<Token>,
    /// Its reader does not keep up.
    pub(super) paused: bool,
    /// Tokens that a step will have to compute for it, as far as can be told before it runs.
    pub(super) expected: u32,
    /// Those of them that one who has come before it will compute for both.
    pub(super) follows: u32,
    /// How long its prompt has been held back until others had finished.
    pub(super) held: Duration,
    /// How long it may be: what it could win when it was held back first.
    pub(super) patience: Option<Duration>,
    /// Prompt tokens that nobody had to compute for it, when it first ran.
    pub(super) cached: Option<u32>,
    /// It has waited for disk in vain, and does so no more.
    pub(super) impatient: bool,
}

impl Sequence {
    pub(super) fn new(request: Request, arrived: Instant) -> Self {
        let chain = Chain::of(request.tenant, &request.prompt);
        Self {
            request: request.id,
            tenant: request.tenant,
            expected: 0,
            follows: 0,
            held: Duration::ZERO,
            patience: None,
            prompt: u32::try_from(request.prompt.len()).unwrap_or(u32::MAX),
            tokens: request.prompt,
            output_max: request.output_max,
            priority: request.priority,
            itl_target: request.itl_target,
            deadline: request.deadline,
            arrived,
            chain,
            state: State::Waiting { after: None, saved: None },
            drafts: Vec::new(),
            paused: false,
            cached: None,
            impatient: false,
        }
    }

    /// How many tokens it has.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.tokens.len()).unwrap_or(u32::MAX)
    }

    /// Its sequence of the kernels, and how much is computed, while it runs.
    pub(super) const fn running(&self) -> Option<(SeqId, u32)> {
        match self.state {
            State::Running { seq, computed } => Some((seq, computed)),
            State::Waiting { .. } => None,
        }
    }

    /// Tokens with keys and values.
    pub(super) const fn computed(&self) -> u32 {
        match self.state {
            State::Running { computed, .. } => computed,
            State::Waiting { .. } => 0,
        }
    }

    /// So many tokens have keys and values now, if it is at work.
    pub(super) const fn computed_to(&mut self, end: u32) {
        if let State::Running { computed, .. } = &mut self.state {
            *computed = end;
        }
    }

    /// Tokens that a step has yet to compute before the next can be sampled.
    pub(super) fn remaining(&self) -> u32 {
        self.len() - self.computed()
    }

    /// Whether all but the newest token are computed: one row gives the next.
    pub(super) fn decodes(&self) -> bool {
        self.running().is_some() && self.remaining() == 1 && self.generated() > 0
    }

    /// Whether its prompt is being computed.
    pub(super) fn prefills(&self) -> bool {
        self.running().is_some() && !self.paused && !self.decodes() && self.remaining() > 0
    }

    /// How many tokens it has generated.
    pub(super) fn generated(&self) -> u32 {
        self.len() - self.prompt
    }
}
