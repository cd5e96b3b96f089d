//! What is wrong with a configuration: where, what, and what to do about it.
//!
//! A person who starts the gateway wants to fix everything in one go, so a problem never ends the
//! reading: it is noted in the [`Report`] and the reader goes on with a stand-in value.
//!
//! Invariant: a value is only ever replaced by a stand-in after a problem was reported, so a report
//! without problems means that every value came from the file or is a documented default.

use std::fmt;

/// Everything that is wrong with a configuration, in the order of the file; one line each when shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    source: String,
    lines: Vec<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    /// Line and column, both from 1; none for what comes from the environment.
    position: Option<(usize, usize)>,
    key: String,
    complaint: Complaint,
}

impl Problems {
    /// How many there are; at least one.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.lines.len()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.lines.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match problem.position {
                Some((line, column)) => write!(f, "{}:{line}:{column}: ", self.source)?,
                None => f.write_str("environment: ")?,
            }
            if !problem.key.is_empty() {
                write!(f, "{}: ", problem.key)?;
            }
            problem.complaint.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// What is wrong with one value, not yet knowing where the value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    message: String,
    hint: Option<String>,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; hint: {hint}"))
    }
}

impl Complaint {
    /// What is wrong; lowercase, without a full stop.
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds what to do about it, where that is known.
    pub(super) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At a byte of the file, under this key path.
    File {
        /// Byte offset in the text.
        offset: usize,
        /// Such as `upstreams[0].base_url`.
        key: String,
    },
    /// In this environment variable.
    Variable(String),
}

impl Place {
    /// The key path or the variable's name.
    pub(super) fn key(&self) -> &str {
        match self {
            Self::File { key, .. } | Self::Variable(key) => key,
        }
    }

    const fn order(&self) -> usize {
        match self {
            Self::File { offset, .. } => *offset,
            Self::Variable(_) => usize::MAX,
        }
    }
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Spot<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

/// Collects problems while a configuration is read.
#[derive(Debug, Default)]
pub(super) struct Report {
    found: Vec<(Place, Complaint)>,
}

impl Report {
    /// Notes a problem.
    pub(super) fn add(&mut self, place: &Place, complaint: Complaint) {
        self.found.push((place.clone(), complaint));
    }

    /// How many problems there are so far.
    pub(super) const fn count(&self) -> usize {
        self.found.len()
    }

    /// The finished `value`, or every problem found in `text`, which came from `source`.
    pub(super) fn finish<T>(mut self, value: T, source: &str, text: &str) -> Result<T, Problems> {
        if self.found.is_empty() {
            return Ok(value);
        }
        self.found.sort_by_key(|(place, _)| place.order());
        let mut lines: Vec<Problem> = Vec::with_capacity(self.found.len());
        for (place, complaint) in self.found {
            let problem = match place {
                Place::File { offset, key } => {
                    Problem { position: Some(position(text, offset)), key, complaint }
                }
                Place::Variable(key) => Problem { position: None, key, complaint },
            };
            // A parser that recovers may stumble twice over the same slip.
            if lines.last() != Some(&problem) {
                lines.push(problem);
            }
        }
        Err(Problems { source: source.to_owned(), lines })
    }
}

/// Line and column (in characters) of a byte, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let (before, _) = text.split_at(text.floor_char_boundary(offset));
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    (line, before.split_at(line_start).1.chars().count() + 1)
}

/// The candidate that `word` was most likely meant to be, if one is near enough to be a slip.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    // A third of the letters wrong is another word, not a slip.
    let far = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// "did you mean …" for a key, or else the whole choice.
pub(super) fn suggest<'a>(key: &str, choice: impl IntoIterator<Item = &'a str> + Clone) -> String {
    // A forgotten unit is more than a slip of the finger: `total` for `total_ms`.
    let without_unit = |known: &&str| known.strip_prefix(key).is_some_and(|rest| rest.starts_with('_'));
    nearest(key, choice.clone()).or_else(|| choice.clone().into_iter().find(without_unit)).map_or_else(
        || format!("one of {}", choice.clone().into_iter().collect::<Vec<_>>().join(", ")),
        |near| format!("did you mean `{near}`?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters() {
        assert_eq!(position("", 0), (1, 1));
        assert_eq!(position("ä = 1\nü", 6), (1, 6));
        assert_eq!(position("ä = 1\nü", 7), (2, 1));
        assert_eq!(position("ä", 1), (1, 1));
        assert_eq!(position("a\n", 99), (2, 1));
    }

    #[test]
    fn a_slip_is_near_and_another_word_is_not() {
        assert_eq!(nearest("lisen", ["listen", "threads"]), Some("listen"));
        assert_eq!(nearest("LISTEN", ["listen", "threads"]), Some("listen"));
        assert_eq!(nearest("gtp-4o", ["gpt-4o", "gpt-4"]), Some("gpt-4o"));
        assert_eq!(nearest("port", ["listen", "threads"]), None);
    }
}
