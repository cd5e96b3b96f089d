//! One request on its way to an upstream and back, up to the point where bytes flow.
//!
//! [`Call`] is what has been decided (who answers, in which dialect, what is sent); [`open`] performs
//! it and ends in an answer the client can be given: a stream, a whole body, or a refusal that is
//! still a true status.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use firsttoken_logic::clocks::{self, Clocks};
use firsttoken_logic::failure::{Failure, Kind, Reached};
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Identity};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::config::Policy;
use crate::evidence::Record;
use crate::front::headers;
use crate::gateway::Setup;
use crate::stream::answer::Arrived;
use crate::stream::failures;
use crate::stream::inflate::Decoded;
use crate::stream::relay::Relay;
use crate::upstream::{Answer, Attempt, Request};

/// Longest error body of an upstream that is read.
pub(super) const ERROR_BYTES_MAX: usize = 64 * 1024;
/// How long an upstream may take to finish an error body.
pub(super) const ERROR_PATIENCE: Duration = Duration::from_secs(5);

/// What has been decided about a request.
pub(crate) struct Call {
    /// Index of the upstream.
    pub(crate) upstream: usize,
    /// What is sent.
    pub(crate) request: Request,
    /// How the caller talks.
    pub(crate) dialect: Dialect,
    /// How the upstream answers; `None` where there is nothing we could read.
    pub(crate) answers: Option<Dialect>,
    /// Whether a stream is expected.
    pub(crate) stream: bool,
    /// Whether the usage chunk was our wish alone.
    pub(crate) strip_usage: bool,
    /// How the answer becomes one in the caller's dialect, where the upstream speaks another.
    pub(crate) translation: Option<Box<Translation>>,
    /// Whether the caller's own key went upstream: then its refusal is the caller's.
    pub(crate) caller_auth: bool,
    /// What the route says.
    pub(crate) policy: Policy,
}

/// An answer that is rendered anew.
pub(crate) struct Translation {
    /// Whose answer it is.
    pub(crate) identity: Identity,
    /// Names of what the upstream could not be told.
    pub(crate) dropped: Option<HeaderValue>,
}

impl Call {
    /// What the caller is to be told was dropped.
    pub(crate) fn dropped(&self) -> Option<HeaderValue> {
        self.translation.as_ref()?.dropped.clone()
    }
}

/// An answer that the client can be given.
pub(crate) enum Opened {
    /// Bytes that flow.
    Stream { status: StatusCode, headers: HeaderMap, relay: Box<Relay> },
    /// A whole body.
    Whole { status: StatusCode, headers: HeaderMap, body: Bytes, record: Record },
}

/// A request that ends here with a true status.
pub(crate) struct Refusal {
    /// What is wrong.
    pub(crate) error: ApiError,
    /// The upstream's own answer, where the caller shall get it as it came.
    pub(crate) answer: Option<(StatusCode, HeaderMap, Bytes)>,
    /// The request's record, to end it with the status.
    pub(crate) record: Record,
}

/// Sends the request and waits until there is something to give to the client.
pub(crate) async fn open(setup: &Setup, call: Call, mut record: Record) -> Result<Opened, Refusal> {
    let (name, upstream) = setup.upstream(call.upstream);
    let name = name.clone();
    let mut attempt = Attempt {
        clocks: Clocks::new(limits(&call), record.accepted),
        stamps: std::mem::take(&mut record.stamps),
    };
    let sent = upstream.send(&call.request, &mut attempt).await;
    record.stamps = attempt.stamps;
    let answer = match sent {
        Ok(answer) => answer,
        Err(failure) => return Err(refuse(&failure, &name, record)),
    };
    let Answer { head, source } = answer;
    let body = match Decoded::new(source, &head.headers) {
        Ok(body) => body,
        Err(detail) => {
            return Err(refuse(&Failure::new(Kind::Protocol, Reached::Head, detail), &name, record));
        }
    };
    // Boxed: a future has room for it wherever it is moved to, and there are several.
    let arrived = Box::new(Arrived { head, body, clocks: attempt.clocks, upstream: name, record });
    if arrived.head.status.is_success() {
        arrived.open(call, &setup.config().limits).await
    } else {
        Err(refused(&call, arrived).await)
    }
}

/// A request that is not streamed shows nothing before its end: only connect and total can judge it.
fn limits(call: &Call) -> clocks::Limits {
    let limits = call.policy.clocks;
    if call.stream {
        return limits;
    }
    clocks::Limits { headers: None, first_content: None, stall: None, idle: None, ..limits }
}

pub(super) fn refuse(failure: &Failure, upstream: &str, mut record: Record) -> Refusal {
    record.fail(failures::code(&failure.kind));
    Refusal { error: failures::error(failure, upstream), answer: None, record }
}

/// The upstream answered with an error status.
async fn refused(call: &Call, arrived: Box<Arrived>) -> Refusal {
    let Arrived { head, mut body, upstream, mut record, .. } = *arrived;
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
    record.fail(failures::code(&failure.kind));
    let own_credentials = matches!(status, 401 | 403) && !call.caller_auth;
    let json = media_type(&head.headers, "application/json");
    let passes = whole
        && !own_credentials
        && match call.answers {
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
    Refusal { error, answer, record }
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

/// A refusal of our own, before anything went upstream.
pub(crate) fn invalid(error: ApiError, mut record: Record) -> Refusal {
    record.fail(refusal_code(error.kind));
    Refusal { error, answer: None, record }
}

/// Bounded words for refusals of our own.
const fn refusal_code(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Authentication => "refused_key",
        ErrorKind::NotFound => "refused_not_found",
        ErrorKind::TooLarge => "refused_too_large",
        ErrorKind::Unavailable => "refused_unavailable",
        ErrorKind::Cancelled => "cancelled",
        _ => "refused_invalid",
    }
}
