//! docs/dialects.md, written from what the matrix found.

use std::fmt::Write as _;

use firsttoken_world::Caller;

use crate::{Feature, Found};

const HEAD: &str = "\
# Any client before any upstream

A caller keeps its dialect, whoever answers. Where the upstream speaks it too, requests and answers pass byte
for byte. Where it speaks another, the request is read into one model and written anew, and so is the answer,
token by token.

`[[models]]` decides which upstream answers for a model's name. If a name has a rule for an upstream of each
dialect, the caller's own dialect wins. Responses pass to an upstream of `provider = \"openai\"`, unless it says
`responses = false`.

## What works before what

Each cell is a test (`crates/world/tests/dialects`), streamed and whole: what the caller reads is held against
what the upstream says to the same request when it is asked directly. After a change write this page with
`UPDATE_DOCS=1 cargo nextest run --release -p firsttoken-world`.

";

/// Links are from where the page lies.
const PAGES: &str = "
## What becomes of what

Field by field, with what is dropped: [Chat Completions](dialects/chat-completions.md), [Messages](dialects/messages.md),
[Responses](dialects/responses.md), [`/v1/chat`](dialects/chat.md), [`/api/chat`](dialects/ui.md).

";

const FOOT: &str = include_str!("mapping.md");

/// The page.
pub(crate) fn page(found: &[Found]) -> String {
    let mut page = HEAD.to_owned();
    let names: Vec<&str> = Feature::ALL.iter().map(|feature| feature.name()).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(page, "| caller | upstream | {} |", names.join(" | "));
    let _ = writeln!(page, "|---|---|{}", "---|".repeat(names.len()));
    for row in found.chunk_by(|a, b| (a.caller, a.upstream) == (b.caller, b.upstream)) {
        let cells: Vec<&str> =
            row.iter().map(|found| if found.wrong.is_none() { "yes" } else { "no" }).collect();
        let (caller, upstream) = (name_of(row[0].caller), name_of(row[0].upstream.0));
        let passes = match (row[0].caller, row[0].upstream.1) {
            _ if row[0].caller == row[0].upstream.0 => ", passes",
            (_, "old") => " without Responses",
            _ => "",
        };
        let _ = writeln!(page, "| {caller} | {upstream}{passes} | {} |", cells.join(" | "));
    }
    page + PAGES + FOOT
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
