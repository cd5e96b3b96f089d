//! The tail: what keeps one slow or broken upstream from being what callers feel.
//!
//! - [`live`]: how long calls take, lately
//! - [`budget`]: how many calls may be added to those that were asked for
//! - [`hedge`]: which late call is sent a second time
//! - [`retry`]: which failed one is tried again, where, and when
//! - [`breaker`]: which upstream is left alone for a while
//! - [`limit`]: how many calls an upstream may have at a time
//! - [`admission`]: who is sent, who waits, and who is told to come back later
//! - [`rate`]: how often a key may ask
//! - [`forecast`]: how long the next call of a model will take
//! - [`route`]: which model answers within a latency budget
//!
//! Invariant: whatever is tried again or twice is paid for first.

pub mod admission;
pub mod breaker;
pub mod budget;
pub mod forecast;
pub mod hedge;
mod level;
pub mod limit;
pub mod live;
pub mod rate;
pub mod retry;
pub mod route;
