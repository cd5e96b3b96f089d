//! Whether the JSON object that comes in pieces is whole: its depth and nothing else is kept.
//!
//! Invariant: of valid JSON it says so behind the last bracket, and never before.

/// How deep the pieces so far are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Nesting {
    depth: u32,
    begun: bool,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    /// The next piece.
    pub(crate) fn push(&mut self, json: &str) {
        for byte in json.bytes() {
            if std::mem::take(&mut self.escaped) {
                continue;
            }
            match (self.in_string, byte) {
                (true, b'\\') => self.escaped = true,
                (_, b'"') => self.in_string = !self.in_string,
                (false, b'{' | b'[') => {
                    self.begun = true;
                    self.depth = self.depth.saturating_add(1);
                }
                (false, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    /// Whether an object or a list began and ended.
    pub(crate) fn is_whole(self) -> bool {
        self.begun && self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::Nesting;

    #[test]
    fn it_is_whole_behind_its_last_bracket() {
        let json = r#" {"a":[{"b":"}\"{"},"\\"],"c":{}} "#;
        let end = json.trim_end().len();
        for cut in 0..=json.len() {
            let mut nesting = Nesting::default();
            nesting.push(&json[..cut]);
            assert_eq!(nesting.is_whole(), cut >= end, "{}", &json[..cut]);
            nesting.push(&json[cut..]);
            assert!(nesting.is_whole());
        }
        let mut scalar = Nesting::default();
        scalar.push("\"}\" 5 }");
        assert!(!scalar.is_whole());
    }
}
