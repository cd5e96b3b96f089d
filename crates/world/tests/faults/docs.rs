//! docs/faults.md, written from the table.

use std::fmt::Write as _;

use firsttoken_sim::FaultSpec;
use firsttoken_world::Caller;

use crate::table::{Cell, Interval, ROWS, Row, Whole};

const HEAD: &str = "\
# When an upstream fails

What a caller gets for everything that can be wrong with an upstream. This page is written from the table
that the tests hold the gateway to (`crates/world/tests/faults`), in every dialect and at every moment; after
changing it, write the page with `UPDATE_DOCS=1 cargo nextest run --release -p firsttoken-world`.

How a failure can be told depends on what the client has got already:

- **Before the head** it has got nothing, so it gets a true status and an error body in its dialect. The chat,
  messages, responses and completions endpoints hold the head back for the first content, but at most
  `head_commit_ms` (15 s).
- **Between the commits** it has got a head (status 200) and keepalives, but no content. It gets an error event
  in its dialect, and the end. `/v1/chat` sends its head at once, so there everything before the first content
  is told in this way.
- **After content** it has got whole events of the answer, and keeps them: the error event follows the last
  one of them. Half an event is never sent.

A caller who did not ask for a stream always gets a true status; it waits as long as the connect and total
clocks allow.

The upstream gets one request, whatever happens: there are no hidden retries. Only where a model has `fallbacks`
does the next one answer what the first one failed at before its first content, in the columns *before the head*, *between the
commits* and *not streamed*: [tail.md](tail.md) says which failures are, and `crates/world/tests/tail.rs` tries them. A stream
is never closed without a word, and never given an end that the upstream did not send.

| the upstream … | before the head | between the commits | after content | not streamed | code |
|---|---|---|---|---|---|
";

const FOOT: &str = "
*As it came*: the upstream's own error reaches the caller, in its words. Where a status can only be told in an
event, what the upstream says about the caller's own request (4xx) keeps its words and code. *The whole answer* is the upstream's events,
byte for byte, up to and with the terminal event.

The **code** is what `GET /v1/requests/{id}` gives as the outcome, and the label `outcome` in the metrics. In
errors of the gateway's own it stands where the dialect has a place for it:

| dialect | error body | error event | the code is |
|---|---|---|---|
| Chat Completions, completions | `{\"error\": {…}}` | `data: {\"error\": {…}}` | `error.code` |
| Responses | `{\"error\": {…}}` | `event: error`, `{\"type\": \"error\", …}` | `error.code`, in the event `code` |
| Messages | `{\"type\": \"error\", \"error\": {…}}` | `event: error`, the same | not said: `error.type` is `api_error`, `overloaded_error`, `timeout_error`, … |
| `/v1/chat` | `{\"error\": {…}}` | `event: error`, a `data-error` chunk, and an `error` chunk behind it | `error.code`, in the event `data.code` |

Each fault can be tried: the first column ends with its name for the simulated provider, to be sent in the
header `x-sim` through a gateway in front of `firsttoken sim`: `x-sim: fault=cut@3`.
";

/// The page.
pub(crate) fn page() -> String {
    let mut page = HEAD.to_owned();
    for row in &ROWS {
        let name = name(row);
        let cells: Vec<String> =
            [Interval::Before, Interval::Between, Interval::After].map(|at| cell(row, at)).into();
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "| {} (`{name}`) | {} | {} | {} |",
            row.happens,
            cells.join(" | "),
            whole(row),
            code(row)
        );
    }
    page + FOOT
}

/// What to write after `fault=`; a fault in the middle strikes after the third token.
fn name(row: &Row) -> String {
    let after_tokens = if row.cells[2] == Cell::Never { 0 } else { 3 };
    FaultSpec { after_tokens, ..FaultSpec::new(row.fault) }.to_string()
}

fn cell(row: &Row, at: Interval) -> String {
    let usual = said(row.status, row.cells[at as usize], at);
    let mut others: Vec<(String, Vec<&str>)> = Vec::new();
    for (caller, status, cell, _) in row.except {
        // The typed endpoint has no moment before the head.
        let applies =
            row.cells[at as usize] != Cell::Never && !(at == Interval::Before && *caller == Caller::Typed);
        let other = said(*status, *cell, at);
        if !applies || other == usual {
            continue;
        }
        match others.iter_mut().find(|(said, _)| *said == other) {
            Some((_, callers)) => callers.push(name_of(*caller)),
            None => others.push((other, vec![name_of(*caller)])),
        }
    }
    let others = others.into_iter().map(|(said, callers)| format!("; {}: {said}", callers.join(", ")));
    usual + &others.collect::<String>()
}

fn said(status: u16, cell: Cell, at: Interval) -> String {
    match (cell, at) {
        (Cell::Never, _) => "–".to_owned(),
        (Cell::Full, _) => "the whole answer".to_owned(),
        (Cell::Fails, Interval::Before) => status.to_string(),
        (Cell::Theirs, Interval::Before) => format!("{status} as it came"),
        (Cell::Fails, _) => "error event".to_owned(),
        (Cell::Theirs, _) => "its error as an event".to_owned(),
    }
}

fn whole(row: &Row) -> String {
    let own = row.except.iter().find(|except| except.0 == Caller::Messages && except.2 == Cell::Fails);
    match row.whole {
        Whole::Full => "the whole answer".to_owned(),
        Whole::Fails(status, code) if code == row.code => match own {
            Some((_, other, ..)) => format!("{status}; Messages: {other}"),
            None => status.to_string(),
        },
        Whole::Fails(status, code) => format!("{status} `{code}`"),
        Whole::Theirs(status, _) => format!("{status} as it came"),
    }
}

fn code(row: &Row) -> String {
    let other = row.except.iter().find(|except| except.3 != row.code);
    let Some((.., other)) = other else { return format!("`{}`", row.code) };
    let callers: Vec<&str> =
        row.except.iter().filter(|except| except.3 == *other).map(|except| name_of(except.0)).collect();
    format!("`{}`; {}: `{other}`", row.code, callers.join(", "))
}

const fn name_of(caller: Caller) -> &'static str {
    match caller {
        Caller::Chat => "Chat Completions",
        Caller::Messages => "Messages",
        Caller::Responses => "Responses",
        Caller::Completions => "completions",
        Caller::Typed => "`/v1/chat`",
    }
}
