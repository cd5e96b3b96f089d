//! The fault table: what a caller gets for everything that can be wrong with an upstream. The tests
//! hold the gateway to it, and docs/faults.md is written from it.

use firsttoken_sim::Fault;
use firsttoken_world::Caller;

/// When a fault strikes, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    /// It has got nothing.
    Before,
    /// It has got a head and a keepalive.
    Between,
    /// It has got content.
    After,
}

/// What a streaming caller gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// The fault cannot strike then.
    Never,
    /// The whole answer.
    Full,
    /// What had come by then, and our error.
    Fails,
    /// What had come by then, and the upstream's own error.
    Theirs,
}

/// What a caller gets who did not ask for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// The whole answer.
    Full,
    /// Our error: status and code.
    Fails(u16, &'static str),
    /// The upstream's own error with this status.
    Theirs(u16, &'static str),
}

/// A dialect for which a row says something else: status, cell (where the row has one at all) and code.
pub(crate) type Except = (Caller, u16, Cell, &'static str);

/// One fault.
pub(crate) struct Row {
    pub(crate) fault: Fault,
    /// The upstream …
    pub(crate) happens: &'static str,
    /// The status while there can still be one; 200 where nothing fails.
    pub(crate) status: u16,
    /// Our word for it in timelines, metrics and logs, and in errors of our own.
    pub(crate) code: &'static str,
    /// By interval.
    pub(crate) cells: [Cell; 3],
    pub(crate) whole: Whole,
    pub(crate) except: &'static [Except],
}

impl Row {
    /// What `caller` gets when the fault strikes in `interval`: status, cell, code.
    pub(crate) fn expects(&self, caller: Caller, interval: Interval) -> (u16, Cell, &'static str) {
        let cell = self.cells[interval as usize];
        match self.except.iter().find(|except| except.0 == caller) {
            Some((_, status, other, code)) if cell != Never => (*status, *other, code),
            _ => (self.status, cell, self.code),
        }
    }
}

const fn row(
    fault: Fault,
    happens: &'static str,
    status: u16,
    code: &'static str,
    cells: [Cell; 3],
    whole: Whole,
) -> Row {
    Row { fault, happens, status, code, cells, whole, except: &[] }
}

use Cell::{Fails, Full, Never, Theirs};

/// It fails before its head, or not at all.
const HEAD: [Cell; 3] = [Fails, Fails, Never];
/// It may fail at any moment.
const ANY: [Cell; 3] = [Fails, Fails, Fails];
/// It changes nothing for the client.
const HARMLESS: [Cell; 3] = [Full, Full, Full];

/// Every row, in the order in which things can go wrong.
pub(crate) const ROWS: [Row; 33] = [
    row(
        Fault::Reset,
        "resets the connection before its head",
        502,
        "upstream_closed",
        HEAD,
        Whole::Fails(502, "upstream_closed"),
    ),
    row(
        Fault::Status401,
        "refuses the gateway's key: 401",
        502,
        "upstream_auth",
        HEAD,
        Whole::Fails(502, "upstream_auth"),
    ),
    row(
        Fault::Status403,
        "refuses the gateway's key: 403",
        502,
        "upstream_auth",
        HEAD,
        Whole::Fails(502, "upstream_auth"),
    ),
    row(
        Fault::Status404,
        "answers 404, as for an unknown model",
        404,
        "upstream_refused",
        [Theirs, Theirs, Never],
        Whole::Theirs(404, "upstream_refused"),
    ),
    row(
        Fault::Status429,
        "answers 429 with `Retry-After`",
        429,
        "upstream_rate_limit",
        [Theirs, Theirs, Never],
        Whole::Theirs(429, "upstream_rate_limit"),
    ),
    row(
        Fault::Status429Bare,
        "answers 429 without `Retry-After`",
        429,
        "upstream_rate_limit",
        [Theirs, Theirs, Never],
        Whole::Theirs(429, "upstream_rate_limit"),
    ),
    row(
        Fault::Status500,
        "answers 500",
        500,
        "upstream_error",
        [Theirs, Fails, Never],
        Whole::Theirs(500, "upstream_error"),
    ),
    row(
        Fault::Status502,
        "answers 502",
        502,
        "upstream_error",
        [Theirs, Fails, Never],
        Whole::Theirs(502, "upstream_error"),
    ),
    row(
        Fault::Status503,
        "answers 503",
        503,
        "upstream_error",
        [Theirs, Fails, Never],
        Whole::Theirs(503, "upstream_error"),
    ),
    Row {
        except: &[(Caller::Messages, 529, Fails, "upstream_overloaded")],
        ..row(
            Fault::Status529,
            "is overloaded: 529",
            503,
            "upstream_overloaded",
            HEAD,
            Whole::Fails(503, "upstream_overloaded"),
        )
    },
    row(
        Fault::SlowHead,
        "sends its head late, within `headers_ms`",
        200,
        "complete",
        [Full, Full, Never],
        Whole::Full,
    ),
    row(
        Fault::Silent,
        "never sends a head",
        504,
        "headers_timeout",
        HEAD,
        Whole::Fails(504, "total_timeout"),
    ),
    row(
        Fault::Redirect,
        "redirects: 307",
        502,
        "upstream_redirect",
        HEAD,
        Whole::Fails(502, "upstream_redirect"),
    ),
    row(
        Fault::Empty,
        "answers 200 with nothing",
        502,
        "upstream_truncated",
        HEAD,
        Whole::Fails(502, "upstream_protocol"),
    ),
    row(
        Fault::Html,
        "answers 200 with a page of HTML",
        502,
        "upstream_protocol",
        HEAD,
        Whole::Fails(502, "upstream_protocol"),
    ),
    row(
        Fault::Json,
        "answers a streaming request with plain JSON",
        502,
        "upstream_protocol",
        HEAD,
        Whole::Full,
    ),
    row(Fault::Gzip, "compresses, though it was asked not to", 200, "complete", HARMLESS, Whole::Full),
    row(
        Fault::RoleSilence,
        "opens the stream, then is silent",
        504,
        "idle_timeout",
        HEAD,
        Whole::Fails(504, "total_timeout"),
    ),
    row(
        Fault::Pings,
        "opens the stream, then only pings",
        504,
        "first_content_timeout",
        HEAD,
        Whole::Fails(504, "total_timeout"),
    ),
    row(
        Fault::Stall,
        "falls silent before its first content",
        504,
        "idle_timeout",
        HEAD,
        Whole::Fails(504, "total_timeout"),
    ),
    row(
        Fault::Stall,
        "falls silent in the middle",
        504,
        "stall_timeout",
        [Never, Never, Fails],
        Whole::Fails(504, "total_timeout"),
    ),
    row(
        Fault::Cut,
        "closes the connection in the middle",
        502,
        "upstream_cut",
        ANY,
        Whole::Fails(502, "upstream_cut"),
    ),
    row(
        Fault::ResetAt,
        "resets the connection in the middle",
        502,
        "upstream_cut",
        ANY,
        Whole::Fails(502, "upstream_cut"),
    ),
    row(
        Fault::End,
        "ends the stream with no finish reason and no terminal event",
        502,
        "upstream_truncated",
        ANY,
        Whole::Fails(502, "upstream_protocol"),
    ),
    row(
        Fault::BadJson,
        "sends a frame that is not JSON",
        502,
        "upstream_malformed",
        ANY,
        Whole::Fails(502, "upstream_protocol"),
    ),
    Row {
        except: &[(Caller::Messages, 529, Theirs, "upstream_reported")],
        ..row(
            Fault::ErrorEvent,
            "sends an error event",
            502,
            "upstream_reported",
            [Theirs, Theirs, Theirs],
            Whole::Theirs(500, "upstream_error"),
        )
    },
    Row {
        except: &[(Caller::Typed, 502, Fails, "upstream_protocol")],
        ..row(
            Fault::BigEvent,
            "sends one event of 2 MiB, over `event_bytes_max`",
            200,
            "complete",
            HARMLESS,
            Whole::Full,
        )
    },
    row(Fault::SplitUtf8, "splits characters between writes", 200, "complete", HARMLESS, Whole::Full),
    row(Fault::Trickle, "sends byte by byte", 200, "complete", HARMLESS, Whole::Full),
    row(
        Fault::Endless,
        "never ends its answer",
        504,
        "total_timeout",
        [Never, Never, Fails],
        Whole::Fails(504, "total_timeout"),
    ),
    Row {
        except: &[
            (Caller::Messages, 502, Fails, "upstream_truncated"),
            (Caller::Responses, 502, Fails, "upstream_truncated"),
        ],
        ..row(
            Fault::NoDone,
            "sends a finish reason, but no terminal event",
            200,
            "complete",
            [Never, Never, Full],
            Whole::Full,
        )
    },
    row(Fault::TwoDone, "sends its terminal event twice", 200, "complete", [Never, Never, Full], Whole::Full),
    row(Fault::After, "goes on after its terminal event", 200, "complete", [Never, Never, Full], Whole::Full),
];
