//! One call that a model is writing: a JSON object with a name and arguments, in any order.
//!
//! It is read character by character and arguments are handed on as they are written, not read: whether
//! they fit the tool is not judged here. Only arguments that come before their name wait for it.
//!
//! Invariant: arguments are handed on verbatim; ones that were written as a string are that string.

/// Where a reader stands in the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    KeyOrEnd,
    Key,
    Colon,
    Value(Field),
    CommaOrEnd,
}

/// What a value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    Id,
    Kind,
    Other,
}

/// What a character did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The call goes on.
    More,
    /// It is complete.
    End,
    /// It is no call.
    Wrong,
}

/// The call so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    place: Place,
    span: Span,
    text: String,
    /// Nothing but arguments follows: the name stood before them.
    is_headed: bool,
    /// Any other field than a call's shows that it is none.
    is_strict: bool,
    pub(super) name: Option<String>,
    pub(super) id: Option<String>,
    /// Arguments that were not handed on yet.
    pub(super) arguments: String,
}

impl Call {
    /// A call that is wholly to come; a strict one has no fields but a call's.
    pub(super) fn new(is_strict: bool) -> Self {
        Self { is_strict, ..Self::default() }
    }

    /// A call of which only the arguments follow.
    pub(super) fn headed(name: &str, id: Option<&str>) -> Self {
        Self {
            place: Place::Value(Field::Arguments),
            is_headed: true,
            name: Some(name.to_owned()),
            id: id.map(str::to_owned),
            ..Self::default()
        }
    }

    /// The next character.
    pub(super) fn on(&mut self, character: char) -> Read {
        if character.is_ascii_whitespace() && !self.span.is_begun() {
            return Read::More;
        }
        match (self.place, character) {
            (Place::Before, '{') => self.place = Place::KeyOrEnd,
            (Place::KeyOrEnd, '"') => {
                self.place = Place::Key;
                self.span.on(character);
            }
            (Place::Key, _) => return self.on_key(character),
            (Place::Colon, ':') => {
                let field = self.field();
                if self.is_strict && field == Field::Other {
                    return Read::Wrong;
                }
                self.place = Place::Value(field);
            }
            (Place::Value(field), _) => return self.on_value(field, character),
            (Place::CommaOrEnd, ',') => self.place = Place::KeyOrEnd,
            (Place::KeyOrEnd | Place::CommaOrEnd, '}') => return Read::End,
            _ => return Read::Wrong,
        }
        Read::More
    }

    fn on_key(&mut self, character: char) -> Read {
        if self.span.on(character) == At::Last {
            self.span = Span::default();
            self.place = Place::Colon;
        } else {
            self.text.push(character);
        }
        Read::More
    }

    fn field(&mut self) -> Field {
        match std::mem::take(&mut self.text).as_str() {
            "name" => Field::Name,
            "arguments" | "parameters" => Field::Arguments,
            "id" => Field::Id,
            "type" => Field::Kind,
            _ => Field::Other,
        }
    }

    fn on_value(&mut self, field: Field, character: char) -> Read {
        let is_first = !self.span.is_begun();
        let at = self.span.on(character);
        if at == At::Nowhere || (is_first && field == Field::Name && character != '"') {
            return Read::Wrong;
        }
        if at != At::Past {
            self.text.push(character);
        }
        // An object can be handed on while it is written.
        if field == Field::Arguments && self.span.is_object() {
            self.arguments.push(character);
            self.text.clear();
        }
        if at == At::Inside {
            return Read::More;
        }
        self.span = Span::default();
        if !self.take(field) {
            return Read::Wrong;
        }
        if self.is_headed {
            return Read::End;
        }
        self.place = Place::CommaOrEnd;
        if at == At::Past { self.on(character) } else { Read::More }
    }

    /// Keeps a complete value; false for one that cannot be what it is for.
    fn take(&mut self, field: Field) -> bool {
        let text = std::mem::take(&mut self.text);
        let string = || serde_json::from_str::<String>(&text).ok();
        match field {
            Field::Name => {
                self.name = string().filter(|name| !name.is_empty());
                self.name.is_some()
            }
            Field::Id => {
                self.id = string();
                true
            }
            Field::Arguments if text.is_empty() => true,
            Field::Arguments => {
                let arguments = if text == "null" { Some("{}".to_owned()) } else { string() };
                self.arguments.push_str(arguments.as_deref().unwrap_or_default());
                arguments.is_some()
            }
            Field::Kind | Field::Other => true,
        }
    }
}

/// Where a character lies, seen from a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Inside,
    /// The value ends with it.
    Last,
    /// The value ended before it.
    Past,
    /// No value begins like this.
    Nowhere,
}

/// Follows one JSON value to its end, without reading it.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    first: Option<char>,
    depth: u32,
    is_string: bool,
    is_escaped: bool,
}

impl Span {
    const fn is_begun(self) -> bool {
        self.first.is_some()
    }

    fn is_object(self) -> bool {
        self.first == Some('{')
    }

    fn on(&mut self, character: char) -> At {
        let first = *self.first.get_or_insert(character);
        if self.is_string {
            if self.is_escaped {
                self.is_escaped = false;
            } else if character == '\\' {
                self.is_escaped = true;
            } else if character == '"' {
                self.is_string = false;
                return if self.depth == 0 { At::Last } else { At::Inside };
            }
            return At::Inside;
        }
        match character {
            '"' => self.is_string = true,
            '{' | '[' => self.depth += 1,
            '}' | ']' if self.depth > 0 => {
                self.depth -= 1;
                return if self.depth == 0 { At::Last } else { At::Inside };
            }
            _ if self.depth > 0 => {}
            ',' | '}' | ']' => return At::Past,
            _ if character.is_ascii_whitespace() => return At::Past,
            _ if !matches!(first, '-' | '0'..='9' | 't' | 'f' | 'n') => return At::Nowhere,
            _ => {}
        }
        At::Inside
    }
}
