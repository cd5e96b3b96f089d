//! docs/dialects/*.md: where each field of a caller's dialect goes. Nothing in them is claimed: each row is a
//! request that is read and written with the field and without it, and what differs is what became of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use firsttoken_wire::Dialect;
use serde_json::{Value, json};

use crate::rows::{Row, rows};

/// Upstreams, each with models that take as much as any and differ in what.
const UPSTREAMS: [(Dialect, &str, &[&str]); 2] = [
    (Dialect::OpenAiChat, "Chat Completions", &["gpt-4o", "gpt-5.1", "deepseek-reasoner"]),
    (Dialect::Anthropic, "Messages", &["claude-sonnet-4-5", "claude-opus-4-7", "claude-opus-4-8"]),
];

/// A page: its file, its dialect, and what it is about.
const PAGES: [(&str, Dialect, &str); 5] = [
    ("chat-completions", Dialect::OpenAiChat, "Chat Completions, `POST /v1/chat/completions`"),
    ("messages", Dialect::Anthropic, "Messages, `POST /v1/messages`"),
    ("responses", Dialect::OpenAiResponses, "Responses, `POST /v1/responses`"),
    ("chat", Dialect::Typed, "Typed events, `POST /v1/chat`"),
    ("ui", Dialect::Ui, "The AI SDK's `useChat`, `POST /api/chat`"),
];

const HEAD: &str = "\
Where the upstream speaks this dialect, too, every field passes as it is. Where each goes when it speaks another,
`crates/world/tests/dialects` finds by writing a request with the field and without. *Dropped* is left out and named
in `x-firsttoken-dropped`, or refused where `strict = true`. *Refused* is always answered with 400 and the path of the
field. A star: only for models that take it, by the table in `crates/wire/src/capabilities.rs`; for others it is
dropped or refused. Any other field is dropped. What becomes of answers stands in [dialects.md](../dialects.md).

";

/// What became of a field.
#[derive(Debug, PartialEq)]
enum Fate {
    Goes(BTreeSet<String>),
    Dropped(Vec<String>),
    Refused,
    Silent,
}

fn fate(from: Dialect, to: Dialect, model: &str, row: &Row) -> Fate {
    let write = |body: &Value| {
        let mut body = body.clone();
        body["model"] = json!(model);
        let request = from.parse_request(body.to_string().as_bytes())?.ok()?;
        to.render_request(&request).ok()
    };
    // A model that does not take what the field is about takes no field of it.
    let (Some(without), Some(with)) = (write(&row.without), write(&row.with)) else { return Fate::Refused };
    let (before, after) = (leaves(&without.body), leaves(&with.body));
    let new: BTreeSet<String> = after.difference(&before).map(|(path, _)| path.clone()).collect();
    let dropped: Vec<String> =
        with.dropped.into_iter().filter(|name| !without.dropped.contains(name)).collect();
    match (new.is_empty(), dropped.is_empty()) {
        (_, false) => Fate::Dropped(dropped),
        (false, true) => Fate::Goes(new),
        (true, true) => Fate::Silent,
    }
}

/// The values of a body by their paths, without their places in lists.
fn leaves(body: &[u8]) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    let body = serde_json::from_slice(body).expect("what we write is JSON");
    gather(&body, String::new(), &mut all);
    all
}

fn gather(value: &Value, path: String, all: &mut BTreeSet<(String, String)>) {
    let whole = ["schema", "parameters", "input_schema", "input"].iter().any(|name| path.ends_with(name));
    match value {
        Value::Object(fields) if !whole => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                gather(value, format!("{path}{dot}{name}"), all);
            }
        }
        Value::Array(list) if !list.iter().all(Value::is_string) => {
            list.iter().for_each(|value| gather(value, format!("{path}[]"), all));
        }
        _ => {
            all.insert((path, value.to_string()));
        }
    }
}

/// One cell: the best that a model of this upstream makes of it.
fn cell(from: Dialect, to: Dialect, models: &[&str], row: &Row) -> String {
    let fates: Vec<Fate> = models.iter().map(|model| fate(from, to, model, row)).collect();
    let star = if fates.iter().all(|fate| matches!(fate, Fate::Goes(_))) { "" } else { " *" };
    let mut paths: BTreeSet<&str> = fates.iter().filter_map(goes).flatten().map(String::as_str).collect();
    // The words of a type go without saying where something stands beside them.
    if paths.iter().any(|path| !path.ends_with(".type")) {
        paths.retain(|path| !path.ends_with("[].type"));
    }
    if !paths.is_empty() {
        let paths: Vec<String> = paths.into_iter().map(|path| format!("`{path}`")).collect();
        return paths.join(", ") + star;
    }
    match &fates[0] {
        Fate::Dropped(names) => format!("dropped: `{}`", names.join("`, `")),
        Fate::Refused => "refused".to_owned(),
        Fate::Silent | Fate::Goes(_) => "says nothing there".to_owned(),
    }
}

fn goes(fate: &Fate) -> Option<&BTreeSet<String>> {
    match fate {
        Fate::Goes(paths) => Some(paths),
        Fate::Dropped(_) | Fate::Refused | Fate::Silent => None,
    }
}

fn page(dialect: Dialect, title: &str) -> String {
    let others: Vec<_> = UPSTREAMS.iter().filter(|(to, ..)| *to != dialect).collect();
    let names: Vec<&str> = others.iter().map(|upstream| upstream.1).collect();
    let mut page = format!("# {title}\n\n{HEAD}| field | before {} |\n|---|", names.join(" | before "));
    page += &"---|".repeat(others.len());
    page.push('\n');
    for row in rows(dialect) {
        let cells: Vec<String> =
            others.iter().map(|(to, _, models)| cell(dialect, *to, models, &row)).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{}` | {} |", row.field, cells.join(" | "));
    }
    page
}

#[test]
fn every_field_goes_where_the_page_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dialects");
    let mut stale = Vec::new();
    for (file, dialect, title) in PAGES {
        let (path, page) = (format!("{folder}/{file}.md"), page(dialect, title));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(&path, &page).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != page {
            stale.push(file);
        }
    }
    assert!(stale.is_empty(), "not what is done: {stale:?}; write them with UPDATE_DOCS=1");
}

/// A row whose plain request is refused everywhere would show nothing.
#[test]
fn every_plain_request_is_taken() {
    for (_, dialect, _) in PAGES {
        for row in rows(dialect) {
            let mut body = row.without;
            body["model"] = json!("gpt-4o");
            let read = dialect.parse_request(body.to_string().as_bytes()).expect("it is a caller's dialect");
            let written = read.and_then(|request| Dialect::OpenAiChat.render_request(&request));
            assert!(written.is_ok(), "{dialect:?} {}: {written:?}", row.field);
        }
    }
}

/// A field that says nothing anywhere would be lost without a word.
#[test]
fn no_field_is_lost_without_a_word() {
    for (_, dialect, _) in PAGES {
        for row in rows(dialect).into_iter().filter(|row| !row.may_be_silent) {
            for (to, _, models) in UPSTREAMS {
                for model in models {
                    let fate = fate(dialect, to, model, &row);
                    assert_ne!(fate, Fate::Silent, "{dialect:?} {} before {to:?}, {model}", row.field);
                }
            }
        }
    }
}
