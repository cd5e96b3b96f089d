//! What the TOML says, key by key, each value with its place in the file.
//!
//! Deserialising into structs stops at the first mistake and forgets positions, so the parsed tree
//! is read by hand: a [`Section`] is a table being read. It takes note of the keys that were asked
//! for, and whatever else the table holds is a problem.
//!
//! Invariant: a section is only handed out to a closure, so that its unknown keys are always
//! reported when the closure returns.

use std::ops::RangeInclusive;
use std::time::Duration;

use firsttoken_logic::tail::limit::Bounds;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::env::{self, Text};
use super::problems::{Complaint, Place, Report, Spot, suggest};

/// Longest time that any key may say: a day.
const DURATION_MS_MAX: u64 = 86_400_000;

/// Switches a clock off.
const OFF: &str = "off";
/// Has a limit learnt.
const ADAPTIVE: &str = "adaptive";
/// Most requests at a time that a key may say.
const CONCURRENCY_MAX: u64 = 100_000;

/// A table that is being read.
pub(super) struct Section<'a> {
    table: &'a DeTable<'a>,
    /// The table's own header.
    pub(super) place: Place,
    env: &'a env::Lookup<'a>,
    /// Where problems go.
    pub(super) report: &'a mut Report,
    asked: Vec<&'static str>,
}

/// Reads a whole file; `None` if it is not even TOML.
///
/// A file with syntax errors gets only these reported: what its keys would have said is a guess.
pub(super) fn read<T>(
    text: &str,
    env: &env::Lookup<'_>,
    report: &mut Report,
    f: impl FnOnce(&mut Section<'_>) -> T,
) -> Option<T> {
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let place = Place::File { offset: error.span().map_or(0, |span| span.start), key: String::new() };
        report.add(&place, Complaint::new(format!("not TOML: {}", one_line(error.message()))));
    }
    let place = Place::File { offset: 0, key: String::new() };
    errors.is_empty().then(|| Section::new(document.get_ref(), place, env, report).read(f))
}

fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

impl<'a> Section<'a> {
    const fn new(
        table: &'a DeTable<'a>,
        place: Place,
        env: &'a env::Lookup<'a>,
        report: &'a mut Report,
    ) -> Self {
        Self { table, place, env, report, asked: Vec::new() }
    }

    fn read<T>(mut self, f: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let value = f(&mut self);
        for key in self.table.keys() {
            let name = key.get_ref().as_ref();
            if !self.asked.contains(&name) {
                let place = Place::File { offset: key.span().start, key: self.path(name) };
                let hint = suggest(name, self.asked.iter().copied());
                self.report.add(&place, Complaint::new("unknown key").hint(hint));
            }
        }
        value
    }

    fn path(&self, key: &str) -> String {
        if self.place.key().is_empty() { key.to_owned() } else { format!("{}.{key}", self.place.key()) }
    }

    fn value(&mut self, key: &'static str) -> Option<(&'a DeValue<'a>, Place)> {
        self.asked.push(key);
        let value: &'a Spanned<DeValue<'a>> = self.table.get(key)?;
        Some((value.get_ref(), Place::File { offset: value.span().start, key: self.path(key) }))
    }

    /// Whether the table has this key, right or wrong.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Reports that a key which has no default is not there.
    pub(super) fn missing(&mut self, key: &'static str, hint: &str) {
        if !self.has(key) {
            self.report.add(&self.place, Complaint::new(format!("`{key}` is missing")).hint(hint));
        }
    }

    fn expected(&mut self, place: &Place, wanted: &str, found: &DeValue<'_>) {
        self.report.add(place, Complaint::new(format!("must be {wanted}, not {}", kind(found))));
    }

    /// A string with its `${…}` filled in, as `f` understands it.
    pub(super) fn text<T>(
        &mut self,
        key: &'static str,
        f: impl FnOnce(&Text) -> Result<T, Complaint>,
    ) -> Option<Spot<T>> {
        let (value, place) = self.value(key)?;
        self.understand(value, place, f)
    }

    fn understand<T>(
        &mut self,
        value: &DeValue<'_>,
        place: Place,
        f: impl FnOnce(&Text) -> Result<T, Complaint>,
    ) -> Option<Spot<T>> {
        let DeValue::String(raw) = value else {
            self.expected(&place, "a string", value);
            return None;
        };
        let understood = match env::expand(raw, self.env) {
            Ok(text) => f(&text).map_err(|complaint| vec![complaint]),
            Err(complaints) => Err(complaints),
        };
        match understood {
            Ok(value) => Some(Spot { value, place }),
            Err(complaints) => {
                for complaint in complaints {
                    self.report.add(&place, complaint);
                }
                None
            }
        }
    }

    /// A list of strings, each as `f` understands it; empty if the key is not there.
    pub(super) fn texts<T>(
        &mut self,
        key: &'static str,
        f: impl Fn(&Text) -> Result<T, Complaint>,
    ) -> Vec<Spot<T>> {
        let Some((value, place)) = self.value(key) else { return Vec::new() };
        let DeValue::Array(items) = value else {
            self.expected(&place, "a list of strings", value);
            return Vec::new();
        };
        let path = self.path(key);
        let item = |(index, item): (usize, &Spanned<DeValue<'_>>)| {
            let place = Place::File { offset: item.span().start, key: format!("{path}[{index}]") };
            self.understand(item.get_ref(), place, &f)
        };
        items.iter().enumerate().filter_map(item).collect()
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<Spot<bool>> {
        let (value, place) = self.value(key)?;
        if let DeValue::Boolean(value) = value {
            return Some(Spot { value: *value, place });
        }
        self.expected(&place, "true or false", value);
        None
    }

    /// A whole number within `range`.
    pub(super) fn number(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Spot<u64>> {
        let (value, place) = self.value(key)?;
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        self.number_in(value, place, range, &wanted)
    }

    fn number_in(
        &mut self,
        value: &DeValue<'_>,
        place: Place,
        range: RangeInclusive<u64>,
        wanted: &str,
    ) -> Option<Spot<u64>> {
        let DeValue::Integer(integer) = value else {
            self.expected(&place, wanted, value);
            return None;
        };
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(value) if range.contains(&value) => Some(Spot { value, place }),
            _ => {
                self.report.add(&place, Complaint::new(format!("must be {wanted}, not {integer}")));
                None
            }
        }
    }

    /// A whole number within `range`, as a size.
    pub(super) fn size(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Option<Spot<usize>> {
        let spot = self.number(key, u64::from(*range.start())..=u64::from(*range.end()))?;
        Some(Spot { value: usize::try_from(spot.value).unwrap_or(usize::MAX), place: spot.place })
    }

    /// A time in milliseconds, `least_ms` or more.
    pub(super) fn millis(&mut self, key: &'static str, least_ms: u64) -> Option<Spot<Duration>> {
        let (value, place) = self.value(key)?;
        let wanted = format!("milliseconds from {least_ms} to {DURATION_MS_MAX}");
        let spot = self.number_in(value, place, least_ms..=DURATION_MS_MAX, &wanted)?;
        Some(Spot { value: Duration::from_millis(spot.value), place: spot.place })
    }

    /// A time in milliseconds, or `"off"`.
    pub(super) fn clock(&mut self, key: &'static str) -> Option<Spot<Option<Duration>>> {
        let (value, place) = self.value(key)?;
        if matches!(value, DeValue::String(text) if text == OFF) {
            return Some(Spot { value: None, place });
        }
        let wanted = format!("milliseconds from 1 to {DURATION_MS_MAX} or \"{OFF}\"");
        let spot = self.number_in(value, place, 1..=DURATION_MS_MAX, &wanted)?;
        Some(Spot { value: Some(Duration::from_millis(spot.value)), place: spot.place })
    }

    /// Requests at a time: a number, `"adaptive"`, or `"off"`.
    pub(super) fn concurrency(&mut self, key: &'static str) -> Option<Spot<Option<Bounds>>> {
        let (value, place) = self.value(key)?;
        let bounds = match value {
            DeValue::String(text) if text == OFF => None,
            DeValue::String(text) if text == ADAPTIVE => Some(Bounds::default()),
            _ => {
                let wanted =
                    format!("a whole number from 1 to {CONCURRENCY_MAX}, \"{ADAPTIVE}\" or \"{OFF}\"");
                let spot = self.number_in(value, place.clone(), 1..=CONCURRENCY_MAX, &wanted)?;
                Some(Bounds::fixed(u32::try_from(spot.value).unwrap_or(u32::MAX)))
            }
        };
        Some(Spot { value: bounds, place })
    }

    /// A table, read by `f`.
    pub(super) fn section<T>(
        &mut self,
        key: &'static str,
        f: impl FnOnce(&mut Section<'_>) -> T,
    ) -> Option<T> {
        let (value, place) = self.value(key)?;
        if let DeValue::Table(table) = value {
            return Some(Section::new(table, place, self.env, self.report).read(f));
        }
        let wanted = format!("a table ([{}])", self.path(key));
        self.expected(&place, &wanted, value);
        None
    }

    /// A list of tables, each read by `f`; empty if the key is not there.
    pub(super) fn sections<T>(
        &mut self,
        key: &'static str,
        mut f: impl FnMut(&mut Section<'_>) -> T,
    ) -> Vec<T> {
        let Some((value, place)) = self.value(key) else { return Vec::new() };
        let wanted = format!("a list of tables ([[{key}]])");
        let DeValue::Array(items) = value else {
            self.expected(&place, &wanted, value);
            return Vec::new();
        };
        let (mut read, path) = (Vec::new(), self.path(key));
        for (index, item) in items.iter().enumerate() {
            let place = Place::File { offset: item.span().start, key: format!("{path}[{index}]") };
            match item.get_ref() {
                DeValue::Table(table) => {
                    read.push(Section::new(table, place, self.env, self.report).read(&mut f));
                }
                other @ (DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_)) => self.expected(&place, "a table", other),
            }
        }
        read
    }
}

const fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
