//! Lenient pieces of JSON for frames that others write, and the few writing helpers of the renderers.
//!
//! A frame whose `content` is suddenly a list must not stop a stream that passes through, so these
//! types take any JSON value and hold nothing where it is not what we know. Strings borrow from
//! the frame unless they had escapes.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::dialect::NotJson;

/// A string, or nothing.
#[derive(Debug, Default)]
pub(crate) struct Str<'a>(pub(crate) Option<Cow<'a, str>>);

/// A natural number, or nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Num(pub(crate) Option<u64>);

/// An object, or nothing.
#[derive(Debug)]
pub(crate) struct Obj<T>(pub(crate) Option<T>);

/// A list that nearly always has one element: no allocation up to that.
#[derive(Debug)]
pub(crate) struct Few<T> {
    pub(crate) first: Option<T>,
    rest: Vec<T>,
}

/// A list, or nothing.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// A string, or a list, or nothing.
#[derive(Debug)]
pub(crate) struct StrOr<'a, T> {
    pub(crate) text: Str<'a>,
    pub(crate) list: Vec<T>,
}

/// Whether a value is there and is not null.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Present(pub(crate) bool);

impl<'a> Str<'a> {
    /// The string, if it is there and not empty.
    pub(crate) fn filled(self) -> Option<Cow<'a, str>> {
        self.0.filter(|text| !text.is_empty())
    }
}

impl<'a> Str<'a> {
    /// The string where it had no escape, else empty: for names, which have none.
    pub(crate) fn plain(&self) -> &'a str {
        match &self.0 {
            Some(Cow::Borrowed(text)) => text,
            Some(Cow::Owned(_)) | None => "",
        }
    }
}

impl<T> Default for Obj<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Few::deserialize(deserializer).map(|few| Self(few.into_iter().collect()))
    }
}

impl<T> Default for StrOr<'_, T> {
    fn default() -> Self {
        Self { text: Str(None), list: Vec::new() }
    }
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, rest: Vec::new() }
    }
}

impl<T> Few<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

/// The visits of a visitor that holds nothing for what it does not know.
macro_rules! otherwise_nothing {
    ($nothing:expr; $($kind:ident)*) => { $(otherwise_nothing!(@$kind $nothing);)* };
    (@unit $nothing:expr) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok($nothing) }
    };
    (@bool $nothing:expr) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> { Ok($nothing) }
    };
    (@number $nothing:expr) => {
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> { Ok($nothing) }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> { Ok($nothing) }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> { Ok($nothing) }
    };
    (@string $nothing:expr) => {
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> { Ok($nothing) }
    };
    (@list $nothing:expr) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok($nothing)
        }
    };
    (@object $nothing:expr) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok($nothing)
        }
    };
}

fn expecting(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("any JSON value")
}

struct StrVisitor;

impl<'de> Visitor<'de> for StrVisitor {
    type Value = Str<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expecting(f)
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Str<'de>, E> {
        Ok(Str(Some(Cow::Borrowed(text))))
    }
    fn visit_str<E>(self, text: &str) -> Result<Str<'de>, E> {
        Ok(Str(Some(Cow::Owned(text.to_owned()))))
    }
    otherwise_nothing!(Str(None); unit bool number list object);
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrVisitor)
    }
}

struct StrOrVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for StrOrVisitor<T> {
    type Value = StrOr<'de, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expecting(f)
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<StrOr<'de, T>, E> {
        Ok(StrOr { text: Str(Some(Cow::Borrowed(text))), list: Vec::new() })
    }
    fn visit_str<E>(self, text: &str) -> Result<StrOr<'de, T>, E> {
        Ok(StrOr { text: Str(Some(Cow::Owned(text.to_owned()))), list: Vec::new() })
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<StrOr<'de, T>, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = seq.next_element()? {
            list.push(element);
        }
        Ok(StrOr { text: Str(None), list })
    }
    otherwise_nothing!(StrOr::default(); unit bool number object);
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for StrOr<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrOrVisitor(PhantomData))
    }
}

struct NumVisitor;

impl<'de> Visitor<'de> for NumVisitor {
    type Value = Num;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expecting(f)
    }
    fn visit_u64<E>(self, number: u64) -> Result<Num, E> {
        Ok(Num(Some(number)))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Num, E> {
        Ok(Num(u64::try_from(number).ok()))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Num, E> {
        Ok(Num(None))
    }
    otherwise_nothing!(Num(None); unit bool string list object);
}

impl<'de> Deserialize<'de> for Num {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumVisitor)
    }
}

struct ObjVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjVisitor<T> {
    type Value = Obj<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expecting(f)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Obj<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(|object| Obj(Some(object)))
    }
    otherwise_nothing!(Obj(None); unit bool number string list);
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Obj<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjVisitor(PhantomData))
    }
}

struct FewVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
    type Value = Few<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expecting(f)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Few<T>, A::Error> {
        let mut few = Few { first: seq.next_element()?, rest: Vec::new() };
        if few.first.is_some() {
            while let Some(element) = seq.next_element()? {
                few.rest.push(element);
            }
        }
        Ok(few)
    }
    otherwise_nothing!(Few::default(); unit bool number string object);
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FewVisitor(PhantomData))
    }
}

struct PresentVisitor;

impl<'de> Visitor<'de> for PresentVisitor {
    type Value = Present;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        expecting(f)
    }
    fn visit_unit<E>(self) -> Result<Present, E> {
        Ok(Present(false))
    }
    otherwise_nothing!(Present(true); bool number string list object);
}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PresentVisitor)
    }
}

/// Reads one frame: `None` where it is JSON, but not an object that we can read.
pub(crate) fn frame<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<Option<T>, NotJson> {
    // Checked as a whole, UTF-8 costs a third of what it costs string by string.
    let text = str::from_utf8(data).map_err(|_| NotJson)?;
    match serde_json::from_str(text) {
        Ok(frame) => Ok(Some(frame)),
        Err(error) if error.is_data() => Ok(None),
        Err(_) => Err(NotJson),
    }
}

/// The string at `key`, if it is there and not empty.
pub(crate) fn word(object: &serde_json::Value, key: &str) -> Option<String> {
    object.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Appends `text` as a JSON string.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing a string to memory cannot fail");
}

/// Appends `value` as JSON.
pub(crate) fn value(out: &mut Vec<u8>, value: &serde_json::Value) {
    serde_json::to_writer(out, value).expect("writing a JSON value to memory cannot fail");
}

/// Appends a number in decimal.
pub(crate) fn number(out: &mut Vec<u8>, number: u64) {
    serde_json::to_writer(out, &number).expect("writing a number to memory cannot fail");
}
