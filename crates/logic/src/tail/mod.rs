//! The tail: what keeps one slow or broken upstream from being what callers feel.
//!
//! - [`live`]: how long calls take, lately
//! - [`budget`]: how many calls may be added to those that were asked for
//! - [`hedge`]: which late call is sent a second time
//! - [`retry`]: which failed one is tried again, where, and when
//! - [`breaker`]: which upstream is left alone for a while
//!
//! Invariant: whatever is tried again or twice is paid for first.

pub mod breaker;
pub mod budget;
pub mod hedge;
pub mod live;
pub mod retry;
