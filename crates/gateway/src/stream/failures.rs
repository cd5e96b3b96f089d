//! From a failure to what the caller is told: the one table of causes, statuses and codes.
//!
//! Invariant: a caller never sees a status that is not true of *its* request: an upstream that
//! refuses the gateway's own key is a 502, not a 401.

use firsttoken_logic::clocks::Clock;
use firsttoken_logic::failure::{Failure, Kind, Reached};
use firsttoken_wire::{ApiError, ErrorKind};

/// The code of a failure in errors, logs and metrics.
pub(crate) const fn code(kind: &Kind) -> &'static str {
    match kind {
        Kind::Dns => "upstream_dns",
        Kind::Connect => "upstream_connect",
        Kind::Tls => "upstream_tls",
        Kind::Closed => "upstream_closed",
        Kind::Protocol => "upstream_protocol",
        Kind::Status(401 | 403) => "upstream_auth",
        Kind::Status(429) => "upstream_rate_limit",
        Kind::Status(529) => "upstream_overloaded",
        Kind::Status(300..=399) => "upstream_redirect",
        Kind::Status(400..=499) => "upstream_refused",
        Kind::Status(_) => "upstream_error",
        Kind::Cut => "upstream_cut",
        Kind::Truncated => "upstream_truncated",
        Kind::Malformed => "upstream_malformed",
        Kind::Reported => "upstream_reported",
        Kind::Timeout(clock) => clock.name(),
        Kind::Draining => "draining",
        Kind::Shed => "shed",
        _ => "upstream_failed",
    }
}

/// The shutdown's patience is over.
pub(crate) fn draining() -> ApiError {
    error(&Failure::new(Kind::Draining, Reached::Nothing, ""), "")
}

/// The failure in words for the caller. `upstream` is the configured name.
pub(crate) fn error(failure: &Failure, upstream: &str) -> ApiError {
    let kind = match failure.kind {
        Kind::Timeout(_) => ErrorKind::Timeout,
        Kind::Draining | Kind::Shed => ErrorKind::Unavailable,
        Kind::Status(429) => ErrorKind::RateLimit,
        Kind::Status(529) => ErrorKind::Overloaded,
        _ => ErrorKind::Upstream,
    };
    let mut error = ApiError::new(kind, message(failure, upstream)).code(code(&failure.kind));
    error.retry_after_s = failure.retry_after.and_then(|d| u32::try_from(d.as_secs()).ok());
    error
}

/// The same, of a stream that may have `reported` the failure itself.
pub(crate) fn streamed(failure: &Failure, reported: Option<ApiError>, upstream: &str) -> ApiError {
    match (&failure.kind, reported) {
        // Whoever the upstream does not let in, it is not the caller whose key this gateway checked.
        (Kind::Reported, Some(reported))
            if matches!(reported.kind, ErrorKind::Authentication | ErrorKind::Permission) =>
        {
            ApiError { kind: ErrorKind::Upstream, ..reported }
        }
        (Kind::Reported, Some(reported)) => reported,
        _ => error(failure, upstream),
    }
}

fn message(failure: &Failure, upstream: &str) -> String {
    let detail = if failure.detail.is_empty() { String::new() } else { format!(": {}", failure.detail) };
    match failure.kind {
        Kind::Timeout(clock) => match clock {
            Clock::Connect => format!("no connection to {upstream} in time"),
            Clock::Headers => format!("{upstream} sent no response head in time"),
            Clock::FirstContent => format!("{upstream} sent no content in time"),
            Clock::Stall => format!("{upstream} stopped sending content"),
            Clock::Idle => format!("{upstream} stopped sending anything"),
            Clock::Total => format!("the answer of {upstream} took longer than the request may"),
        },
        Kind::Draining => "the gateway is shutting down; try again".to_owned(),
        Kind::Shed => {
            let wait = failure.retry_after.map_or(1, |wait| wait.as_secs());
            format!("{upstream} has as many requests as it can answer in time; come back in {wait} s")
        }
        Kind::Cut => format!("the connection to {upstream} broke in the middle of the answer{detail}"),
        Kind::Truncated => {
            format!("{upstream} ended the stream without its terminal event: the answer may be incomplete")
        }
        Kind::Malformed => format!("{upstream} sent a frame that cannot be read"),
        Kind::Status(status @ (401 | 403)) => {
            format!(
                "{upstream} refused the gateway's credentials with status {status}{detail}. Check api_key of this upstream."
            )
        }
        Kind::Status(status @ 300..=399) => {
            format!("{upstream} answered {status} (a redirect){detail}. Check base_url of this upstream.")
        }
        Kind::Status(status) => format!("{upstream} answered {status}{detail}"),
        _ if failure.detail.is_empty() => format!("{upstream} failed"),
        _ => failure.detail.clone(),
    }
}
