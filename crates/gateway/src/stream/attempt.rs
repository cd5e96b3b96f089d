//! One try at one upstream, up to the point where there is something to give to the client.
//!
//! For a stream that is its first content: until then nothing of it has reached anyone, and another try
//! may still answer in its place.
//!
//! Invariant: dropping the future aborts the request at its upstream.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use firsttoken_logic::clocks::{self, Clocks};
use firsttoken_logic::failure::{Failure, Kind, Reached};
use firsttoken_logic::time::Instant;
use firsttoken_wire::ApiError;
use http::{HeaderMap, StatusCode, header};

use crate::evidence::Heard;
use crate::front::headers;
use crate::gateway::Setup;
use crate::stream::answer::Arrived;
use crate::stream::exchange::{Call, Leg};
use crate::stream::failures;
use crate::stream::inflate::Decoded;
use crate::stream::relay::Begun;
use crate::tail;
use crate::upstream::{Answer, Attempt};

/// Longest error body of an upstream that is read.
pub(super) const ERROR_BYTES_MAX: usize = 64 * 1024;
/// How long an upstream may take to finish an error body.
pub(super) const ERROR_PATIENCE: Duration = Duration::from_secs(5);

/// Something to give to the client.
pub(super) enum Arrival {
    /// Bytes that flow.
    Stream { status: StatusCode, headers: HeaderMap, begun: Box<Begun> },
    /// A whole body.
    Whole { status: StatusCode, headers: HeaderMap, body: Bytes },
}

/// A try that came to nothing.
pub(super) struct Lost {
    /// What happened.
    pub(super) failure: Failure,
    /// How the caller is told, if this was the last.
    pub(super) error: ApiError,
    /// The upstream's own answer, where the caller shall get it as it came.
    pub(super) answer: Option<(StatusCode, HeaderMap, Bytes)>,
}

impl Lost {
    pub(super) fn new(failure: Failure, upstream: &str) -> Box<Self> {
        let error = failures::error(&failure, upstream);
        Box::new(Self { failure, error, answer: None })
    }
}

/// Sends the request of `leg` and waits until there is something to give.
pub(super) async fn run(
    setup: &Setup,
    call: &Call,
    leg: &Leg,
    accepted: Instant,
    heard: &mut Heard,
) -> Result<Arrival, Box<Lost>> {
    let (name, upstream) = setup.upstream(leg.upstream);
    let mut attempt = Attempt {
        clocks: Clocks::new(limits(call, leg), accepted),
        stamps: std::mem::take(&mut heard.stamps),
    };
    let sent = upstream.send(&leg.request, &mut attempt).await;
    heard.stamps = attempt.stamps;
    let Answer { head, source } = sent.map_err(|failure| Lost::new(failure, name))?;
    let body = Decoded::new(source, &head.headers)
        .map_err(|detail| Lost::new(Failure::new(Kind::Protocol, Reached::Head, detail), name))?;
    // Boxed: a future has room for it wherever it is moved to, and there are several.
    let arrived = Box::new(Arrived { head, body, clocks: attempt.clocks, upstream: name.clone() });
    if arrived.head.status.is_success() {
        let opened = arrived.open(call, leg, &setup.config().limits, heard).await;
        if let (Ok(Arrival::Stream { .. }), Some(place)) = (&opened, &heard.place) {
            place.on_content(tail::class(leg.request.body.len()));
        }
        return opened;
    }
    if let (429 | 503 | 529, Some(place)) = (arrived.head.status.as_u16(), &heard.place) {
        place.on_overloaded();
    }
    Err(refused(call, leg, arrived).await)
}

/// A request that is not streamed shows nothing before its end: only connect and total can judge it.
fn limits(call: &Call, leg: &Leg) -> clocks::Limits {
    let mut limits = call.policy.clocks;
    if leg.local {
        // It sends its head with the first token, and its own queue judges who waits too long.
        (limits.headers, limits.first_content) = (None, None);
    }
    if call.stream {
        return limits;
    }
    clocks::Limits { headers: None, first_content: None, stall: None, idle: None, ..limits }
}

/// The upstream answered with an error status.
async fn refused(call: &Call, leg: &Leg, arrived: Box<Arrived>) -> Box<Lost> {
    let Arrived { head, mut body, upstream, .. } = *arrived;
    let mut said = BytesMut::new();
    let reading = async {
        while let Some(read) = body.data().await {
            let Ok(bytes) = read else { return false };
            said.extend_from_slice(&bytes);
            if said.len() > ERROR_BYTES_MAX {
                return false;
            }
        }
        true
    };
    // What has come by then is what there is; only a whole body is passed on.
    let whole = tokio::time::timeout(ERROR_PATIENCE, reading).await.unwrap_or(false);
    let body = said.freeze();
    let status = head.status.as_u16();
    let parsed = call.dialect.parse_error_body(status, &body);
    let mut failure = Failure::new(Kind::Status(status), Reached::Head, parsed.message.clone());
    failure.retry_after = retry_after(&head.headers);
    if head.status.is_redirection() {
        let to = head.headers.get(header::LOCATION).and_then(|v| v.to_str().ok()).unwrap_or("nowhere");
        failure.detail = format!("to {to}");
    }
    let own_credentials = matches!(status, 401 | 403) && !leg.caller_auth;
    let json = media_type(&head.headers, "application/json");
    let passes = whole
        && !own_credentials
        && match leg.answers {
            // Nobody here knows what it means, so it is the caller's to read, redirects included.
            None => true,
            Some(answers) => json && answers == call.dialect && status != 529 && status >= 400,
        };
    let mut error = failures::error(&failure, &upstream);
    if matches!(status, 400..=499) && !own_credentials {
        // The upstream says what is wrong with the caller's request: its words, its field.
        error = ApiError { retry_after_s: error.retry_after_s.or(parsed.retry_after_s), ..parsed };
    }
    let answer = passes.then(|| (head.status, headers::downward(&head.headers), body));
    Box::new(Lost { failure, error, answer })
}

/// Whether the body is of this media type. Their names are case-insensitive (RFC 9110 §8.3.1).
pub(super) fn media_type(headers: &HeaderMap, name: &str) -> bool {
    let said = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes());
    said.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
}

/// `retry-after-ms`, else `retry-after` in seconds; dates are left to the caller.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1e3).or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}
