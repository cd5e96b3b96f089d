//! One request on its way to its upstreams and back, up to the point where bytes flow.
//!
//! [`Call`] is what has been decided (who may answer, in which dialect, what is sent); [`open`] performs
//! it and ends in an answer the client can be given: a stream, a whole body, or a refusal that is
//! still a true status. On the way there may be several attempts: one that failed is made again elsewhere, one that
//! says nothing for too long is made twice. What is decided about that is [`crate::tail`]'s.
//!
//! Invariant: one attempt answers, and all others have been dropped before the caller hears of it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use bytes::Bytes;
use firsttoken_logic::failure::{Failure, Kind, Reached};
use firsttoken_logic::tail::retry::Next;
use firsttoken_logic::time::Instant;
use firsttoken_wire::{ApiError, Dialect, ErrorKind, Identity};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::clock;
use crate::config::Policy;
use crate::evidence::{Phase, Record};
use crate::gateway::Setup;
use crate::lines::Wants;
use crate::stream::attempt::{self, Arrival, Lost};
use crate::stream::failures;
use crate::stream::relay::Relay;
use crate::tail::{Course, Raced};
use crate::upstream::Request;

/// What has been decided about a request.
pub(crate) struct Call {
    /// Who may answer: the first, and in its place the others. Never empty.
    pub(crate) legs: Vec<Leg>,
    /// How the caller talks.
    pub(crate) dialect: Dialect,
    /// Whether a stream is expected.
    pub(crate) stream: bool,
    /// Whether a second copy of it does nothing that one does not.
    pub(crate) hedgeable: bool,
    /// What the route says.
    pub(crate) policy: Policy,
}

/// The request as one upstream gets it.
pub(crate) struct Leg {
    /// Index of the upstream.
    pub(crate) upstream: usize,
    /// What is sent.
    pub(crate) request: Request,
    /// How the upstream answers; `None` where there is nothing we could read.
    pub(crate) answers: Option<Dialect>,
    /// Whether the usage chunk was our wish alone.
    pub(crate) strip_usage: bool,
    /// How the answer becomes one in the caller's dialect, where the upstream speaks another.
    pub(crate) translation: Option<Box<Translation>>,
    /// Whether the caller's own key went upstream: then its refusal is the caller's.
    pub(crate) caller_auth: bool,
    /// Whether it is an engine of this machine.
    pub(crate) local: bool,
}

/// An answer that is rendered anew.
pub(crate) struct Translation {
    /// Whose answer it is.
    pub(crate) identity: Identity,
    /// Names of what the upstream could not be told.
    pub(crate) dropped: Option<HeaderValue>,
}

impl Leg {
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
    /// Whether it was tried more than once: then the caller had better not.
    pub(crate) retried: bool,
    /// The request's record, to end it with the status.
    pub(crate) record: Record,
}

/// Sends the request, as often as it takes and may, and waits until there is something to give to the client.
pub(crate) async fn open(setup: &Setup, call: Call, mut record: Record) -> Result<Opened, Refusal> {
    let mut course = Course::new(setup, &call, &record);
    loop {
        let (at, began) = (course.begin(), clock::now());
        name(setup, &call.legs[at], &mut record);
        let raced = match enter(setup, &call, &call.legs[at], &mut record).await {
            Ok(()) => race(setup, &call, at, &mut course, &mut record).await,
            Err(lost) => Err(lost),
        };
        let lost = match raced {
            Ok(arrival) => return Ok(give(call, arrival, record)),
            Err(lost) => lost,
        };
        let pause = match course.on_failure(&lost.failure, clock::now()) {
            Next::GiveUp => return Err(refuse(*lost, course.has_retried(), record)),
            Next::Elsewhere => None,
            Next::Again(pause) => Some(pause),
        };
        let asked = record.upstream.clone().unwrap_or_default();
        record.on_lost(asked, began, failures::code(&lost.failure.kind));
        record.heard = record.heard.fork();
        record.heard.stamps.enter(Phase::Retry);
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
    }
}

/// Waits for a place at the leg's upstream, where that has a limit.
async fn enter(setup: &Setup, call: &Call, leg: &Leg, record: &mut Record) -> Result<(), Box<Lost>> {
    let Some(bounds) = setup.config().upstreams[leg.upstream].concurrency else { return Ok(()) };
    let (upstream, tenant) = (setup.upstream(leg.upstream).0.clone(), record.tenant.clone());
    let wants = wants(call, leg, &tenant, record.accepted);
    let entered = setup.shared.lines.enter(&upstream, bounds, wants, &mut record.heard.stamps).await;
    let place = entered.map_err(|wait| {
        let mut failure = Failure::new(Kind::Shed, Reached::Nothing, "");
        failure.retry_after = Some(wait);
        Lost::new(failure, &upstream)
    })?;
    record.heard.place = Some(place);
    Ok(())
}

fn wants<'a>(call: &Call, leg: &'a Leg, tenant: &'a str, accepted: Instant) -> Wants<'a> {
    Wants {
        tenant,
        body: &leg.request.body,
        priority: call.policy.priority,
        policy: call.policy.queue,
        deadline: call.policy.clocks.total.map(|total| accepted + total),
    }
}

/// One attempt, or two of which the first to show content answers.
async fn race(
    setup: &Setup,
    call: &Call,
    at: usize,
    course: &mut Course<'_>,
    record: &mut Record,
) -> Result<Arrival, Box<Lost>> {
    let (began, accepted) = (clock::now(), record.accepted);
    let leg = |at: usize| &call.legs[at];
    let tenant = record.tenant.clone();
    // A second copy waits in no line.
    let room = |at: usize| match setup.config().upstreams[leg(at).upstream].concurrency {
        None => Some((at, None)),
        Some(bounds) => {
            let upstream = setup.upstream(leg(at).upstream).0;
            let wants = wants(call, leg(at), &tenant, accepted);
            Some((at, Some(setup.shared.lines.try_enter(upstream, bounds, wants)?)))
        }
    };
    let Some(delay) = course.delay() else {
        let arrived = attempt::run(setup, call, leg(at), accepted, &mut record.heard).await;
        course.on_end(at, failure_of(&arrived), began);
        return arrived;
    };
    let mut other = record.heard.fork();
    let mut second_at = None;
    let race = {
        let mut first = pin!(attempt::run(setup, call, leg(at), accepted, &mut record.heard));
        match tokio::time::timeout(delay, &mut first).await {
            Ok(arrived) => Finish::alone(arrived),
            Err(_) => match course.on_late(at, clock::now()).and_then(room) {
                None => Finish::alone(first.await),
                Some((place, place_there)) => {
                    other.place = place_there;
                    second_at = Some((place, clock::now()));
                    other.stamps.enter(Phase::Retry);
                    let second = pin!(attempt::run(setup, call, leg(place), accepted, &mut other));
                    either(first, second).await
                }
            },
        }
    };
    let Some((place, second_began)) = second_at else {
        course.on_end(at, failure_of(&race.result), began);
        return race.result;
    };
    let raced = Raced {
        second: race.second,
        failure: failure_of(&race.result),
        lost: race.lost.as_ref().map(|lost| &lost.failure),
    };
    course.on_race(at, place, &raced, began);
    if race.second {
        record.heard = other;
        name(setup, leg(place), record);
    }
    let (loser, loser_began) = if race.second { (at, began) } else { (place, second_began) };
    let outcome = race.lost.as_ref().map_or("late", |lost| failures::code(&lost.failure.kind));
    record.on_lost(setup.upstream(leg(loser).upstream).0.clone(), loser_began, outcome);
    race.result
}

/// How a race ended.
struct Finish<T, E> {
    /// What came of it.
    result: Result<T, E>,
    /// Whether that is the second copy's.
    second: bool,
    /// Why the other one had failed before, if it had.
    lost: Option<E>,
}

impl<T, E> Finish<T, E> {
    const fn alone(result: Result<T, E>) -> Self {
        Self { result, second: false, lost: None }
    }
}

/// Both at once: the first that comes to something, or the last that does not.
async fn either<T, E>(
    mut first: Pin<&mut impl Future<Output = Result<T, E>>>,
    mut second: Pin<&mut impl Future<Output = Result<T, E>>>,
) -> Finish<T, E> {
    let (mut first_lost, mut second_lost) = (None, None);
    poll_fn(move |cx| {
        if first_lost.is_none()
            && let Poll::Ready(result) = first.as_mut().poll(cx)
        {
            match result {
                Err(lost) if second_lost.is_none() => first_lost = Some(lost),
                result => return Poll::Ready(Finish { result, second: false, lost: second_lost.take() }),
            }
        }
        if second_lost.is_none()
            && let Poll::Ready(result) = second.as_mut().poll(cx)
        {
            match result {
                Err(lost) if first_lost.is_none() => second_lost = Some(lost),
                result => return Poll::Ready(Finish { result, second: true, lost: first_lost.take() }),
            }
        }
        Poll::Pending
    })
    .await
}

fn failure_of<T>(result: &Result<T, Box<Lost>>) -> Option<&Failure> {
    result.as_ref().err().map(|lost| &lost.failure)
}

/// The record says who is asked.
fn name(setup: &Setup, leg: &Leg, record: &mut Record) {
    record.upstream = Some(setup.upstream(leg.upstream).0.clone());
    record.provider = setup.config().upstreams[leg.upstream].provider.name();
}

fn give(call: Call, arrival: Arrival, record: Record) -> Opened {
    match arrival {
        Arrival::Whole { status, headers, body } => Opened::Whole { status, headers, body, record },
        Arrival::Stream { status, headers, begun } => {
            let relay = Box::new(Relay::new(record, *begun, call.dialect, call.policy.keepalive));
            Opened::Stream { status, headers, relay }
        }
    }
}

fn refuse(lost: Lost, retried: bool, mut record: Record) -> Refusal {
    record.fail(failures::code(&lost.failure.kind));
    Refusal { error: lost.error, answer: lost.answer, retried, record }
}

/// A refusal of our own, before anything went upstream.
pub(crate) fn invalid(error: ApiError, mut record: Record) -> Refusal {
    record.fail(refusal_code(error.kind));
    Refusal { error, answer: None, retried: false, record }
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
