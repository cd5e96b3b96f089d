//! What the fuzz targets share: the dialects that they choose from, and the cutting of a stream. They judge
//! by the same words as the tests of `wire` do. How to run them stands in CONTRIBUTING.md.

use firsttoken_wire::Dialect;

/// The dialects whose streams are read.
pub const PARSED: [Dialect; 5] = [
    Dialect::OpenAiChat,
    Dialect::OpenAiResponses,
    Dialect::Anthropic,
    Dialect::Typed,
    Dialect::OpenAiCompletions,
];

/// The dialects in which a caller asks.
pub const ASKED: [Dialect; 5] =
    [Dialect::OpenAiChat, Dialect::OpenAiResponses, Dialect::Anthropic, Dialect::Typed, Dialect::Ui];

/// The dialects of upstreams.
pub const TRANSLATED: [Dialect; 3] = [Dialect::OpenAiChat, Dialect::OpenAiResponses, Dialect::Anthropic];

/// The one of `all` that a byte chooses.
#[must_use]
pub fn choose<T: Copy>(all: &[T], choice: u8) -> T {
    all[usize::from(choice) % all.len()]
}

/// The stream in pieces, cut where `choices` say, each in 255ths of its length.
#[must_use]
pub fn cut<'a>(stream: &'a [u8], choices: &[u8]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = choices.iter().map(|choice| stream.len() * usize::from(*choice) / 255).collect();
    at.extend([0, stream.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect()
}
