//! Everything that can be wrong with a provider, each by name.
//!
//! A [`Fault`] is what goes wrong, a [`FaultSpec`] also says after how many tokens and how long. The
//! fault tables of the gateway's tests walk over [`Fault::ALL`], so a fault that is added here is
//! met by every one of them.
//!
//! Spelling: `fault=NAME[@TOKENS][:MS]`. `@TOKENS` says after how many tokens it strikes (0: after
//! the opening frame and before any content), for the faults where [`Fault::takes_position`] holds;
//! left out it is 1. `:MS` is a time in milliseconds, for those where [`Fault::takes_time`] holds.

use std::fmt;
use std::time::Duration;

use crate::latency;

/// Largest `@TOKENS`.
const POSITION_TOKENS_MAX: u32 = 10_000_000;

/// One way in which a provider can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The connection is reset before any byte of the answer.
    Reset,
    /// Status 401: the key is wrong.
    Status401,
    /// Status 403: the key may not do this.
    Status403,
    /// Status 404: no such model.
    Status404,
    /// Status 429 with `Retry-After` (1 s, or what the knob `retryafter` says).
    Status429,
    /// Status 429 without `Retry-After`.
    Status429Bare,
    /// Status 500: the provider's own fault.
    Status500,
    /// Status 502: the provider's proxy found nobody behind it.
    Status502,
    /// Status 503: not available.
    Status503,
    /// Status 529: overloaded, as Anthropic says it.
    Status529,
    /// The head comes late (60 s, or `:MS`); then all is well.
    SlowHead,
    /// The request is taken and never answered.
    Silent,
    /// Status 307 to another place.
    Redirect,
    /// Status 200 and an empty body.
    Empty,
    /// Status 200 and an HTML page.
    Html,
    /// Status 200 and a JSON answer, though a stream was asked for.
    Json,
    /// A gzip body, though the caller did not offer to take one.
    Gzip,
    /// The opening frame (OpenAI's role, Anthropic's `message_start`), then silence.
    RoleSilence,
    /// The opening frame, then keepalives for ever (every 1,000 ms, or `:MS`), never content.
    Pings,
    /// After `@TOKENS` nothing for `:MS`, or for ever.
    Stall,
    /// After `@TOKENS` the connection is closed in the middle of the body.
    Cut,
    /// After `@TOKENS` the connection is reset.
    ResetAt,
    /// After `@TOKENS` the body ends properly, with neither finish reason nor terminal event.
    End,
    /// After `@TOKENS` one frame that is not JSON; then all is well.
    BadJson,
    /// After `@TOKENS` an error event under status 200; then the body ends.
    ErrorEvent,
    /// After `@TOKENS` one event of 2 MiB of text; then all is well.
    BigEvent,
    /// Every character of more than one byte comes in two writes.
    SplitUtf8,
    /// One byte per write (as fast as the peer takes them, or every `:MS`).
    Trickle,
    /// The answer never ends.
    Endless,
    /// The finish reason comes, the terminal event does not.
    NoDone,
    /// The terminal event comes twice.
    TwoDone,
    /// More content comes after the terminal event.
    After,
}

impl Fault {
    /// Every fault, in the order in which they strike.
    pub const ALL: [Self; 32] = [
        Self::Reset,
        Self::Status401,
        Self::Status403,
        Self::Status404,
        Self::Status429,
        Self::Status429Bare,
        Self::Status500,
        Self::Status502,
        Self::Status503,
        Self::Status529,
        Self::SlowHead,
        Self::Silent,
        Self::Redirect,
        Self::Empty,
        Self::Html,
        Self::Json,
        Self::Gzip,
        Self::RoleSilence,
        Self::Pings,
        Self::Stall,
        Self::Cut,
        Self::ResetAt,
        Self::End,
        Self::BadJson,
        Self::ErrorEvent,
        Self::BigEvent,
        Self::SplitUtf8,
        Self::Trickle,
        Self::Endless,
        Self::NoDone,
        Self::TwoDone,
        Self::After,
    ];

    /// How the knob `fault` spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Status401 => "status:401",
            Self::Status403 => "status:403",
            Self::Status404 => "status:404",
            Self::Status429 => "status:429",
            Self::Status429Bare => "status:429bare",
            Self::Status500 => "status:500",
            Self::Status502 => "status:502",
            Self::Status503 => "status:503",
            Self::Status529 => "status:529",
            Self::SlowHead => "slowhead",
            Self::Silent => "silent",
            Self::Redirect => "redirect",
            Self::Empty => "empty",
            Self::Html => "html",
            Self::Json => "json",
            Self::Gzip => "gzip",
            Self::RoleSilence => "rolesilence",
            Self::Pings => "pings",
            Self::Stall => "stall",
            Self::Cut => "cut",
            Self::ResetAt => "resetat",
            Self::End => "end",
            Self::BadJson => "badjson",
            Self::ErrorEvent => "errorevent",
            Self::BigEvent => "bigevent",
            Self::SplitUtf8 => "splitutf8",
            Self::Trickle => "trickle",
            Self::Endless => "endless",
            Self::NoDone => "nodone",
            Self::TwoDone => "twodone",
            Self::After => "after",
        }
    }

    /// The status of the answer, where the fault is a refusal.
    #[must_use]
    pub fn status(self) -> Option<u16> {
        self.name().strip_prefix("status:")?.get(..3)?.parse().ok()
    }

    /// Whether `@TOKENS` says when it strikes.
    #[must_use]
    pub fn takes_position(self) -> bool {
        self.strike().is_some()
    }

    /// What happens at its position, where it has one.
    pub(crate) fn strike(self) -> Option<Strike> {
        Strike::ALL.iter().find(|(fault, _)| *fault == self).map(|(_, strike)| *strike)
    }

    /// Whether `:MS` gives it a time.
    #[must_use]
    pub const fn takes_time(self) -> bool {
        matches!(self, Self::SlowHead | Self::Pings | Self::Stall | Self::Trickle)
    }

    /// Whether the caller of a stream gets the whole answer and its terminal event all the same.
    #[must_use]
    pub const fn answers_in_full(self) -> bool {
        matches!(
            self,
            Self::SlowHead
                | Self::Gzip
                | Self::BadJson
                | Self::BigEvent
                | Self::SplitUtf8
                | Self::Trickle
                | Self::TwoDone
                | Self::After
        )
    }
}

/// What a fault with a position does there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    Stall,
    Cut,
    Reset,
    End,
    BadJson,
    ErrorEvent,
    BigEvent,
}

impl Strike {
    const ALL: [(Fault, Self); 7] = [
        (Fault::Stall, Self::Stall),
        (Fault::Cut, Self::Cut),
        (Fault::ResetAt, Self::Reset),
        (Fault::End, Self::End),
        (Fault::BadJson, Self::BadJson),
        (Fault::ErrorEvent, Self::ErrorEvent),
        (Fault::BigEvent, Self::BigEvent),
    ];
}

/// A fault, when it strikes, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultSpec {
    /// What goes wrong.
    pub fault: Fault,
    /// After how many tokens, where the fault has a position.
    pub after_tokens: u32,
    /// How long, where the fault takes a time and one was given.
    pub time: Option<Duration>,
}

impl FaultSpec {
    /// `fault` after one token, with its own default time.
    #[must_use]
    pub const fn new(fault: Fault) -> Self {
        Self { fault, after_tokens: 1, time: None }
    }

    /// Reads `NAME[@TOKENS][:MS]`.
    ///
    /// # Errors
    /// What is wrong with `text`, and what it may be instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(&fault) = Fault::ALL.iter().find(|f| f.name() == text) {
            return Ok(Self::new(fault));
        }
        let (place, ms) = text.split_once(':').map_or((text, None), |(place, ms)| (place, Some(ms)));
        let (name, at) = place.split_once('@').map_or((place, None), |(name, at)| (name, Some(at)));
        let Some(&fault) = Fault::ALL.iter().find(|f| f.name() == name) else {
            let names: Vec<_> = Fault::ALL.iter().map(|f| f.name()).collect();
            return Err(format!("one of {}", names.join(", ")));
        };
        let mut spec = Self::new(fault);
        if let Some(at) = at {
            let tokens = at.parse().ok().filter(|&n| n <= POSITION_TOKENS_MAX);
            spec.after_tokens = tokens
                .filter(|_| fault.takes_position())
                .ok_or_else(|| format!("no `@TOKENS` at `{name}`, or one up to {POSITION_TOKENS_MAX}"))?;
        }
        if let Some(ms) = ms {
            let time = latency::number(ms, latency::KNOB_MS_MAX).map(latency::millis);
            let time = time
                .filter(|_| fault.takes_time())
                .ok_or_else(|| format!("no `:MS` at `{name}`, or one up to {}", latency::KNOB_MS_MAX))?;
            spec.time = Some(time);
        }
        Ok(spec)
    }
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fault.name())?;
        if self.fault.takes_position() {
            write!(f, "@{}", self.after_tokens)?;
        }
        if let Some(time) = self.time {
            write!(f, ":{}", time.as_secs_f64() * 1e3)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_read_as_it_is_written() {
        for fault in Fault::ALL {
            let mut spec = FaultSpec::new(fault);
            assert_eq!(FaultSpec::parse(fault.name()), Ok(spec));
            if fault.takes_position() {
                spec.after_tokens = 10;
            }
            if fault.takes_time() {
                spec.time = Some(Duration::from_millis(250));
            }
            assert_eq!(FaultSpec::parse(&spec.to_string()), Ok(spec), "{spec}");
        }
    }

    #[test]
    fn what_it_does_not_take_is_refused() {
        for wrong in ["", "nonsense", "reset@3", "status:418", "status", "cut@", "cut@x", "cut@1:5", "gzip:1"]
        {
            assert!(FaultSpec::parse(wrong).is_err(), "{wrong}");
        }
    }
}
