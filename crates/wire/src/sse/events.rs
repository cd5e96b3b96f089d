//! Reads the events of a block of whole events in place (WHATWG rules: one space after the colon
//! is dropped, unknown fields and comments are skipped, several `data` lines are joined by LF).

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// One event of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its bytes as they came, the blank line included. The slices of a block tile it.
    pub raw: &'a [u8],
    /// The `event` field; `None` where it is missing, empty or not UTF-8.
    pub name: Option<&'a str>,
    /// The `data` field; borrowed unless it had several lines. Not necessarily UTF-8.
    pub data: Cow<'a, [u8]>,
    /// The `id` field; one with a NUL in it is ignored.
    pub id: Option<&'a str>,
    /// The `retry` field.
    pub retry_ms: Option<u64>,
    /// Whether there was a `data` field, an empty one counts. Without it the event says nothing:
    /// comments alone, a stray blank line, or an unfinished rest.
    pub has_data: bool,
}

impl Event<'_> {
    /// Whether it has no data but something else, such as the comment of a keepalive.
    #[must_use]
    pub fn is_comment(&self) -> bool {
        !self.has_data && self.raw.iter().any(|byte| !matches!(byte, b'\r' | b'\n'))
    }
}

/// The events of `block`, which holds whole events. Comment-only blocks come too, without data;
/// blank lines before an event belong to it; an unfinished rest comes without data.
#[must_use]
pub const fn events(block: &[u8]) -> Events<'_> {
    Events { rest: block, first: true }
}

/// Iterator over the events of a block.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    rest: &'a [u8],
    first: bool,
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let block = self.rest;
        // Only the start of a stream may carry a byte order mark; elsewhere this line would be an unknown field.
        let mut at = if self.first && block.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
        self.first = false;
        let mut event = Event::default();
        let mut blank = true;
        while at < block.len() {
            let Some((line, next)) = line(block, at) else { break };
            at = next;
            if !line.is_empty() {
                blank = false;
                field(&mut event, line);
            } else if !blank {
                let (raw, rest) = block.split_at(at);
                self.rest = rest;
                event.raw = raw;
                return Some(event);
            }
        }
        // Only blank lines, or an event that its stream never finished: nothing that may be dispatched.
        self.rest = &[];
        Some(Event { raw: block, ..Event::default() })
    }
}

/// The line at `at`, without its terminator, and where the next begins. `None` if it has no end.
fn line(block: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = &block[at..];
    let end = memchr2(b'\n', b'\r', rest)?;
    let crlf = rest[end] == b'\r' && rest.get(end + 1) == Some(&b'\n');
    Some((&rest[..end], at + end + if crlf { 2 } else { 1 }))
}

fn field<'a>(event: &mut Event<'a>, line: &'a [u8]) {
    // By far the most frequent line.
    if let Some(value) = line.strip_prefix(b"data:") {
        return data(event, value.strip_prefix(b" ").unwrap_or(value));
    }
    let (name, value) = match memchr(b':', line) {
        Some(colon) => (&line[..colon], &line[colon + 1..]),
        None => (line, &line[line.len()..]),
    };
    let value = value.strip_prefix(b" ").unwrap_or(value);
    match name {
        b"data" => data(event, value),
        b"event" => event.name = str::from_utf8(value).ok().filter(|name| !name.is_empty()),
        b"id" if memchr(0, value).is_none() => event.id = str::from_utf8(value).ok(),
        b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
            event.retry_ms = str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
        }
        _ => {}
    }
}

fn data<'a>(event: &mut Event<'a>, value: &'a [u8]) {
    if event.has_data {
        let joined = event.data.to_mut();
        joined.push(b'\n');
        joined.extend_from_slice(value);
    } else {
        event.has_data = true;
        event.data = Cow::Borrowed(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(block: &str, expected: &[(&str, &str)]) {
        let all: Vec<Event<'_>> = events(block.as_bytes()).collect();
        let tiled: Vec<u8> = all.iter().flat_map(|event| event.raw.to_vec()).collect();
        assert_eq!(tiled, block.as_bytes());
        let got: Vec<(&str, &str)> = all
            .iter()
            .filter(|event| event.has_data)
            .map(|event| (event.name.unwrap_or(""), str::from_utf8(&event.data).unwrap_or("?")))
            .collect();
        assert_eq!(got, expected, "{block:?}");
    }

    #[test]
    fn fields_follow_the_standard() {
        check("data: a\n\n", &[("", "a")]);
        check("data:a\n\ndata:  b\n\n", &[("", "a"), ("", " b")]);
        check("event: x\ndata: a\ndata: b\ndata\n\n", &[("x", "a\nb\n")]);
        check("data\n\n", &[("", "")]);
        check("event: x\n\ndata: b\n\n", &[("", "b")]);
        check(": c\ndata: a\nfoo: bar\n\n", &[("", "a")]);
        check("event:\ndata: a\n\n", &[("", "a")]);
        check("\n\n\r\ndata: a\r\n\r\n\r\rdata: b\r\r", &[("", "a"), ("", "b")]);
        check("\u{feff}data: a\n\n", &[("", "a")]);
        check("data: a\n\n\u{feff}data: b\n\n", &[("", "a")]);
    }

    #[test]
    fn an_unfinished_rest_is_not_dispatched() {
        check("data: a\n\ndata: b\n", &[("", "a")]);
        check("data: b", &[]);
        check("", &[]);
    }

    #[test]
    fn ids_retries_and_comments() {
        let all: Vec<Event<'_>> =
            events(b": hi\n\nid: 7\nretry: 50\ndata: a\n\nid: \0\nretry: 5x\ndata\n\n\n").collect();
        assert_eq!(all.len(), 4);
        assert!(all[0].is_comment() && !all[0].has_data);
        assert_eq!((all[1].id, all[1].retry_ms), (Some("7"), Some(50)));
        assert_eq!((all[2].id, all[2].retry_ms), (None, None));
        assert!(!all[3].is_comment());
    }

    #[test]
    fn a_single_data_line_is_borrowed() {
        let event = events(b"data: a\xff\n\n").next().unwrap();
        assert!(matches!(event.data, Cow::Borrowed(b"a\xff")));
    }
}
