//! Whether a stream is one that its dialect allows, and what it says, whatever its dialect.
//!
//! The property tests, the recorded streams and the fuzz targets judge by the same words. A checker reads
//! the frames itself: it must not share a mistake with the parser that it stands beside.
#![allow(dead_code, reason = "each test uses its part of it")]

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod responses;
pub(crate) mod said;
pub(crate) mod typed;

use firsttoken_wire::Dialect;

/// Ends a check with what is wrong.
macro_rules! ensure {
    ($holds:expr) => {
        $crate::valid::ensure!($holds, "{}", stringify!($holds))
    };
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(format!($($words)+));
        }
    };
}

/// Ends a check where two things differ.
macro_rules! equal {
    ($left:expr, $right:expr) => {
        match (&$left, &$right) {
            (left, right) if left != right => {
                return Err(format!("{}: {left:?}, not {right:?}", stringify!($left)));
            }
            _ => {}
        }
    };
}

pub(crate) use {ensure, equal};

/// The dialects that a stream can be rendered in.
pub(crate) const RENDERED: [Dialect; 4] =
    [Dialect::OpenAiChat, Dialect::OpenAiResponses, Dialect::Anthropic, Dialect::Typed];

/// Whether a whole stream is one that `dialect` allows.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(dialect: Dialect, stream: &[u8]) -> Result<(), String> {
    match dialect {
        Dialect::OpenAiChat | Dialect::OpenAiCompletions | Dialect::OpenAiOther => chat::check(stream),
        Dialect::OpenAiResponses => responses::check(stream),
        Dialect::Anthropic => anthropic::check(stream),
        Dialect::Typed | Dialect::Ui => typed::judge(stream).map(drop),
    }
}
