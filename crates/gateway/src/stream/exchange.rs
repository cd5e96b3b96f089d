//! One request on its way to an upstream and back, up to the point where bytes flow.
//!
//! [`Call`] is what has been decided (who answers, in which dialect, what is sent); [`open`] performs
//! it and ends in an answer the client can be given: a stream, a whole body, or a refusal that is
//! still a true status.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use firsttoken_logic::clocks::{self, Clocks};
use firsttoken_logic::commit::Commit;
use firsttoken_logic::failure::{Failure, Kind, Reached};
use firsttoken_wire::chat::Answer as Answered;
use firsttoken_wire::{ApiError, Dialect, ErrorKind};
use http::{HeaderMap, StatusCode, header};
use serde::de::IgnoredAny;

use crate::clock;
use crate::config::Policy;
use crate::evidence::{Phase, Record};
use crate::front::headers;
use crate::gateway::{Bounds, Worker};
use crate::stream::failures;
use crate::stream::inflate::{Coding, Inflate};
use crate::stream::relay::{Parts, Relay};
use crate::stream::tee::{Face, Tee};
use crate::upstream::{Answer, Attempt, Head, Request, Source};

/// Longest error body of an upstream that is read.
const ERROR_BYTES_MAX: usize = 64 * 1024;
/// How long an upstream may take to finish an error body.
const ERROR_PATIENCE: Duration = Duration::from_secs(5);

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
    /// Whether the caller's own key went upstream: then its refusal is the caller's.
    pub(crate) caller_auth: bool,
    /// What the route says.
    pub(crate) policy: Policy,
}

/// An answer that the client can be given.
pub(crate) enum Opened {
    /// Bytes that flow.
    Stream { status: StatusCode, headers: HeaderMap, relay: Box<Relay> },
    /// A whole body.
    Whole { status: StatusCode, headers: HeaderMap, body: Bytes, record: Box<Record> },
}

/// A request that ends here with a true status.
pub(crate) struct Refusal {
    /// What is wrong.
    pub(crate) error: ApiError,
    /// The upstream's own answer, where the caller shall get it as it came.
    pub(crate) answer: Option<(StatusCode, HeaderMap, Bytes)>,
    /// The request's record, to end it with the status.
    pub(crate) record: Box<Record>,
}

/// Sends the request and waits until there is something to give to the client.
pub(crate) async fn open(
    worker: &Worker,
    call: Call,
    mut record: Box<Record>,
    face: Face,
) -> Result<Opened, Refusal> {
    let (name, upstream) = worker.upstream(call.upstream);
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
    let clocks = attempt.clocks;
    if !answer.head.status.is_success() {
        return Err(refused(&call, answer, &name, record).await);
    }
    let inflate = match inflate(&answer.head) {
        Ok(inflate) => inflate,
        Err(detail) => {
            return Err(refuse(&Failure::new(Kind::Protocol, Reached::Head, detail), &name, record));
        }
    };
    let bounded = answer.head.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    let bytes_max = worker.shared.config.limits.answer_bytes_max;
    let small = bounded.is_none_or(|n: usize| n <= bytes_max);
    if let (false, Some(answers), true) = (call.stream, call.answers, small) {
        return whole(answer, inflate, clocks, answers, bytes_max, &name, record).await;
    }
    stream(worker, call, answer, inflate, clocks, name, record, face).await
}

/// A request that is not streamed shows nothing before its end: only connect and total can judge it.
fn limits(call: &Call) -> clocks::Limits {
    let limits = call.policy.clocks;
    if call.stream {
        return limits;
    }
    clocks::Limits { headers: None, first_content: None, stall: None, idle: None, ..limits }
}

fn refuse(failure: &Failure, upstream: &str, mut record: Box<Record>) -> Refusal {
    record.fail(failures::code(&failure.kind));
    Refusal { error: failures::error(failure, upstream), answer: None, record }
}

fn inflate(head: &Head) -> Result<Option<Inflate>, String> {
    match Coding::of(&head.headers) {
        Coding::Plain => Ok(None),
        Coding::Gzip => Ok(Some(Inflate::new())),
        Coding::Unknown(other) => {
            Err(format!("the upstream encoded its answer with {other}, though it was asked not to"))
        }
    }
}

/// The upstream answered with an error status.
async fn refused(call: &Call, answer: Answer, upstream: &str, mut record: Box<Record>) -> Refusal {
    let Answer { head, mut source } = answer;
    let mut body = BytesMut::new();
    let reading = async {
        while let Some(Ok(bytes)) = source.data().await {
            body.extend_from_slice(&bytes);
            if body.len() > ERROR_BYTES_MAX {
                break;
            }
        }
    };
    // What has come by then is what there is.
    let _ = tokio::time::timeout(ERROR_PATIENCE, reading).await;
    let body = match inflate(&head) {
        Ok(Some(mut inflate)) => inflate.push(&body).unwrap_or_default(),
        _ => body.freeze(),
    };
    let status = head.status.as_u16();
    let parsed = call.dialect.parse_error_body(status, &body);
    let mut failure = Failure::new(Kind::Status(status), Reached::Head, parsed.message.clone());
    failure.retry_after = retry_after(&head.headers);
    if head.status.is_redirection() {
        let to = head.headers.get(header::LOCATION).and_then(|v| v.to_str().ok()).unwrap_or("nowhere");
        failure.detail = format!("to {to}");
    }
    record.fail(failures::code(&failure.kind));
    let json =
        head.headers.get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"application/json"));
    let own_credentials = matches!(status, 401 | 403) && !call.caller_auth;
    let passes =
        json && call.answers == Some(call.dialect) && !own_credentials && status != 529 && status >= 400;
    let mut error = failures::error(&failure, upstream);
    if matches!(status, 400..=499) && !own_credentials {
        // The upstream says what is wrong with the caller's request: its words, its field.
        error = ApiError { retry_after_s: error.retry_after_s.or(parsed.retry_after_s), ..parsed };
    }
    let answer = passes.then(|| (head.status, headers::downward(&head.headers), body));
    Refusal { error, answer, record }
}

/// `retry-after-ms`, else `retry-after` in seconds; dates are left to the caller.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1e3).or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Collects an answer that is not streamed, so that a broken one is still a true status.
async fn whole(
    answer: Answer,
    mut inflate: Option<Inflate>,
    clocks: Clocks,
    dialect: Dialect,
    bytes_max: usize,
    upstream: &str,
    mut record: Box<Record>,
) -> Result<Opened, Refusal> {
    let Answer { head, mut source } = answer;
    let collecting = collect(&mut source, inflate.as_mut(), bytes_max);
    let collected = match clocks.deadline() {
        None => collecting.await,
        Some((at, clock)) => match tokio::time::timeout_at(clock::to_tokio(at), collecting).await {
            Ok(collected) => collected,
            Err(_) => Err(Failure::new(Kind::Timeout(clock), Reached::Head, "")),
        },
    };
    let body = match collected {
        Ok(body) => body,
        Err(failure) => return Err(refuse(&failure, upstream, record)),
    };
    record.stamps.enter(Phase::NetworkOut);
    let html = head.headers.get(header::CONTENT_TYPE).is_some_and(|v| v.as_bytes().starts_with(b"text/html"));
    if html || body.is_empty() {
        let what = if html { "an HTML page" } else { "an empty body" };
        let detail =
            format!("{upstream} answered with {what} instead of JSON. Check base_url of this upstream.");
        return Err(refuse(&Failure::new(Kind::Protocol, Reached::Head, detail), upstream, record));
    }
    let answer = dialect.parse_answer(&body);
    // Read twice only where the first reading found nothing, as in half an answer.
    if answer == Answered::default() && serde_json::from_slice::<IgnoredAny>(&body).is_err() {
        let detail = format!("{upstream} answered with something that is not JSON: it may have broken off");
        return Err(refuse(&Failure::new(Kind::Protocol, Reached::Head, detail), upstream, record));
    }
    record.usage.update(answer.usage);
    Ok(Opened::Whole { status: head.status, headers: headers::downward(&head.headers), body, record })
}

async fn collect(
    source: &mut Source,
    mut inflate: Option<&mut Inflate>,
    bytes_max: usize,
) -> Result<Bytes, Failure> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(read) = source.data().await {
        let bytes = read.map_err(|broken| Failure::new(Kind::Cut, Reached::Head, format!("{broken:?}")))?;
        let bytes = match inflate.as_mut() {
            None => bytes,
            Some(inflate) => inflate
                .push(&bytes)
                .map_err(|e| Failure::new(Kind::Protocol, Reached::Head, format!("broken gzip: {e}")))?,
        };
        if first.len() + rest.len() + bytes.len() > bytes_max {
            let detail =
                format!("an answer of more than {bytes_max} bytes; the bound is limits.answer_bytes_max");
            return Err(Failure::new(Kind::Protocol, Reached::Head, detail));
        }
        if first.is_empty() && rest.is_empty() {
            first = bytes;
            continue;
        }
        if rest.is_empty() {
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&bytes);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

#[expect(clippy::too_many_arguments, reason = "the parts of one relay, each used once")]
async fn stream(
    worker: &Worker,
    call: Call,
    answer: Answer,
    inflate: Option<Inflate>,
    clocks: Clocks,
    upstream: Arc<str>,
    record: Box<Record>,
    face: Face,
) -> Result<Opened, Refusal> {
    let Answer { head, source } = answer;
    let events = head
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|v| v.as_bytes().starts_with(b"text/event-stream"));
    if call.stream && call.answers.is_some() && !events {
        let detail = not_a_stream(&head, source, inflate, &call, &upstream).await;
        let failure = Failure::new(Kind::Protocol, Reached::Head, detail);
        return Err(refuse(&failure, &upstream, record));
    }
    let (face, answers, hold) = match (call.answers, events, face) {
        (Some(answers), true, Face::Typed(renderer)) => (Face::Typed(renderer), answers, Duration::ZERO),
        (Some(answers), true, _) => {
            (Face::Same { strip_usage: call.strip_usage }, answers, call.policy.head_commit)
        }
        _ => (Face::Opaque, Dialect::OpenAiOther, Duration::ZERO),
    };
    let opaque = matches!(face, Face::Opaque);
    let limits = &worker.shared.config.limits;
    // The content clocks mean nothing where content cannot be seen.
    let clocks = if opaque {
        let mut clocks = Clocks::new(
            clocks::Limits { first_content: None, stall: None, ..call.policy.clocks },
            record.accepted,
        );
        clocks.on_head(clock::now());
        clocks
    } else {
        clocks
    };
    let mut relay = Relay::new(Parts {
        commit: Commit::new(record.accepted, hold, call.policy.keepalive),
        record,
        source,
        inflate,
        tee: Tee::new(answers, face, limits.event_bytes_max),
        clocks,
        dialect: call.dialect,
        upstream,
        hold_bytes_max: Bounds::of(limits.stream_bytes_max).write_buffer,
    });
    if let Err(error) = relay.hold().await {
        return Err(Refusal { error, answer: None, record: relay.into_record() });
    }
    let mut headers = headers::downward(&head.headers);
    if opaque {
        if let Some(length) = head.headers.get(header::CONTENT_LENGTH)
            && !relay.is_inflating()
        {
            headers.insert(header::CONTENT_LENGTH, length.clone());
        }
    } else {
        headers::event_stream(&mut headers);
    }
    Ok(Opened::Stream { status: head.status, headers, relay: Box::new(relay) })
}

/// A stream was asked for and something else came with a good status: says what, in the upstream's
/// own words where it has some.
async fn not_a_stream(
    head: &Head,
    mut source: Source,
    mut inflate: Option<Inflate>,
    call: &Call,
    upstream: &str,
) -> String {
    let kind =
        head.headers.get(header::CONTENT_TYPE).map_or("nothing", |v| v.to_str().unwrap_or("something"));
    let collecting = collect(&mut source, inflate.as_mut(), ERROR_BYTES_MAX);
    let body =
        tokio::time::timeout(ERROR_PATIENCE, collecting).await.ok().and_then(Result::ok).unwrap_or_default();
    let mut detail = format!("{upstream} answered with {kind} instead of an event stream");
    if kind.starts_with("application/json") {
        let said = call.dialect.parse_error_body(head.status.as_u16(), &body);
        detail.push_str(": ");
        detail.push_str(&said.message);
    } else {
        detail.push_str(". Check base_url of this upstream.");
    }
    detail
}

/// A refusal of our own, before anything went upstream.
pub(crate) fn invalid(error: ApiError, mut record: Box<Record>) -> Refusal {
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
