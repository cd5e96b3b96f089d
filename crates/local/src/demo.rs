//! The demo model: what answers where nobody else is configured, from documents that are part of the binary.
//!
//! Its template is more than a template: the three pages that BM25 likes best are put before the question, as
//! `models/demo/README.md` says, and the answer is held to the sentences of these pages. The model decides
//! which one answers, or that none does, with a head start for those that BM25 likes; that a quotation is one
//! word for word is the form's doing.
//!
//! - `bm25`: which pages
//! - `scope`: what does not reach the model, and what is said instead
//!
//! Invariant: nothing that a caller writes can be taken for a sentence of the documents.

mod bm25;
mod scope;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::num::NonZeroU32;

use firsttoken_engine::grammar::Form;
use firsttoken_engine::sample::Sampling;
use firsttoken_engine::speech::Manner;
use firsttoken_engine::vocabulary::Vocabulary;
use firsttoken_logic::engine::ids::Token;
use firsttoken_samples::{PAGES, Page};
use firsttoken_wire::ApiError;
use firsttoken_wire::chat::{Citation, Part, Request, Role, ToolChoice};

use crate::ask::{self, Asked, Outcome, invalid};
use crate::model::{Model, Options, StartError};
use bm25::Index;

/// What callers call it.
pub const NAME: &str = "firsttoken-demo";
/// What it is, for who lists the models.
pub const ABOUT: &str = "A demo model of 5.5 million parameters: it answers questions about the sample documents \
    with one of their sentences, and nothing else.";
/// The weights. The kernels read files, so they are written to one before they are loaded.
static WEIGHTS: &[u8] = include_bytes!("../../../models/demo/firsttoken-demo.gguf");

/// Pages before a question.
const PAGES_SHOWN: usize = 3;
/// Sentences before a question, as many as it knows numbers for.
const SENTENCES_MAX: usize = 60;
/// Tokens of prompt and answer that it was trained on.
const CONTEXT: u32 = 1024;
/// Longest question that is looked at.
const QUESTION_BYTES_MAX: usize = 8 * 1024;
/// What a sentence's BM25 score adds to the model's own score for it, and what a refusal is given against that.
/// Chosen on the hand-written questions of `models/demo/train`, not on those that the bars ask.
const HEAD_START: f64 = 0.6;
const REFUSAL_HEAD_START: f32 = 2.0;
/// The line that every prompt begins with, and the answer where there is none.
const SYSTEM: &str = "Answer with a sentence of the documents.";
const REFUSAL: &str = " I don't find that in the documents.";
/// What steers the model where it stands in a text, beside the numbers.
const MARKS: [&str; 5] = ["<q>", "<a>", "<s>", "</s>", "<pad>"];

/// Starts it, with so many threads that compute, or one for each core.
///
/// # Errors
/// If the weights cannot be written to a temporary file, or not be loaded.
pub fn start(threads: Option<NonZeroU32>) -> Result<Model, StartError> {
    // Gone when it has been mapped: nothing is left behind, whatever becomes of the process.
    let folder = std::env::temp_dir();
    let file = tempfile::Builder::new().prefix("firsttoken-demo-").suffix(".gguf").tempfile_in(&folder);
    let written = file.and_then(|mut file| file.write_all(WEIGHTS).map(|()| file));
    let file =
        written.map_err(|error| StartError::Weights { folder: folder.display().to_string(), error })?;
    let options = Options { threads, ..Options::new(file.path(), NAME) };
    let model = Model::start(options)?;
    // Every answer has a form, the first one, too; what is wrong with it would be said there.
    let _ = model.grammars();
    Ok(model.with_documents(Documents::new(), CONTEXT))
}

/// Pages to answer from.
pub(crate) struct Documents {
    pages: Index,
    sentences: Index,
    /// Where the sentences of each page begin among all.
    starts: Vec<usize>,
}

/// What is searched of a page.
fn text_of(page: &Page) -> String {
    page.sentences().fold(page.title().to_owned(), |text, sentence| text + " " + sentence)
}

impl Documents {
    fn new() -> Self {
        let mut starts = Vec::new();
        let mut sentences = Vec::new();
        for page in PAGES.iter() {
            starts.push(sentences.len());
            sentences.extend(page.sentences().map(|sentence| format!("{} {sentence}", page.title())));
        }
        Self { pages: Index::new(PAGES.iter().map(text_of)), sentences: Index::new(sentences), starts }
    }

    /// What the first words of answers are given before the model has its say: the numbers of the sentences of
    /// the pages `found`, as they are shown, and the refusal.
    fn head_starts(&self, vocabulary: &dyn Vocabulary, found: &[usize], question: &str) -> Vec<(Token, f32)> {
        let scores = self.sentences.scores(question);
        let shown = found.iter().flat_map(|page| {
            let start = self.starts[*page];
            &scores[start..start + PAGES[*page].sentences().count()]
        });
        let numbered = (1..=SENTENCES_MAX).zip(shown);
        #[expect(clippy::cast_possible_truncation, reason = "scores are small")]
        let liked = numbered.map(|(number, score)| (format!("[{number}]"), (HEAD_START * score) as f32));
        let all = liked.chain([(REFUSAL.to_owned(), REFUSAL_HEAD_START)]);
        all.filter_map(|(text, start)| Some((*vocabulary.tokenize(&text, true).first()?, start))).collect()
    }

    /// What becomes of a Chat Completions request that was read.
    ///
    /// # Errors
    /// What it asks for that the model cannot do.
    pub(crate) fn ask(&self, model: &Model, request: &Request) -> Result<Outcome, ApiError> {
        refuse(request)?;
        let question = question(request)?;
        let system: String = request.system.iter().filter_map(Part::text).collect();
        if !scope::is_bland(&system) || !scope::is_question(&question, &self.pages) {
            return Ok(Outcome::Say { text: scope::SENTENCE, stream: request.stream });
        }
        let found = self.pages.best(&question, PAGES_SHOWN);
        let shown = Shown::new(found.iter().map(|at| &PAGES[*at]));
        let bias = self.head_starts(&*model.vocabulary, &found, &question);
        let prompt = model.vocabulary.prompt(&shown.prompt(&question));
        let output_max = ask::room(model, prompt.len(), request.max_tokens, "messages")?;
        let grammars = model.grammars().map_err(|error| invalid(error.to_string()))?;
        let form = grammars.compile(&shown.form()).map_err(|error| invalid(error.to_string()))?;
        let manner = Manner {
            sampling: Sampling { temperature: 0.0, bias, ..Sampling::default() },
            form: Some(form),
            ..ask::manner(model, request)?
        };
        let stream = request.stream;
        let asked = ask::asked(model, prompt, output_max, stream);
        let cites = Some(Cites::new(shown));
        Ok(Outcome::Ask(Box::new(Asked { request: asked, manner, stream, echo: None, cites })))
    }
}

/// Refuses what cannot be ignored without lying.
fn refuse(request: &Request) -> Result<(), ApiError> {
    let refused = |what: &str, field: &str| {
        let message = format!("the demo model {what}; a real one can: serve --model, a key, or an upstream");
        Err(invalid(message).at(field).code("unsupported"))
    };
    let parts = || request.messages.iter().flat_map(|message| &message.parts);
    if !request.tools.is_empty() && request.tool_choice != Some(ToolChoice::None) {
        return refused("calls no tools", "tools");
    }
    if request.format.is_some() {
        return refused("answers with a sentence, and in no other form", "response_format");
    }
    if parts().any(|part| matches!(part, Part::ToolCall { .. } | Part::ToolResult { .. })) {
        return refused("knows nothing of tools and their results", "messages");
    }
    Ok(())
}

/// The last thing that was asked: every question is read alone.
fn question(request: &Request) -> Result<String, ApiError> {
    let last = request.messages.last().filter(|message| message.role == Role::User);
    let last = last.ok_or_else(|| {
        invalid("the last message must be a question; the demo model goes on with nobody's answer")
            .at("messages")
    })?;
    let text: Vec<&str> = last.parts.iter().filter_map(Part::text).collect();
    let text = clean(&text.join(" "));
    if text.len() > QUESTION_BYTES_MAX {
        let message = format!(
            "this question has {} bytes; the demo model reads {QUESTION_BYTES_MAX} at most",
            text.len()
        );
        return Err(invalid(message).at("messages").code("context_length_exceeded"));
    }
    Ok(text)
}

/// A text on one line, without what would steer the model: its marks, and numbers in brackets.
fn clean(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    loop {
        let before = line.len();
        for mark in MARKS {
            line = line.replace(mark, "");
        }
        for number in 1..=SENTENCES_MAX {
            line = line.replace(&format!("[{number}]"), "");
        }
        // What is left may have closed up to another mark.
        if line.len() == before {
            return line;
        }
    }
}

/// The sentences that are shown, with their numbers.
struct Shown {
    text: String,
    sentences: Vec<Citation<'static>>,
}

impl Shown {
    fn new<'a>(pages: impl Iterator<Item = &'a Page>) -> Self {
        let mut shown = Self { text: format!("{SYSTEM}\n"), sentences: Vec::new() };
        for page in pages {
            // Writing to a String cannot fail.
            let _ = writeln!(shown.text, "# {}", clean(page.title()));
            for (at, sentence) in page.sentences().enumerate() {
                if shown.sentences.len() == SENTENCES_MAX {
                    break;
                }
                let sentence = clean(sentence);
                let _ = writeln!(shown.text, "[{}] {sentence}", shown.sentences.len() + 1);
                shown.sentences.push(Citation {
                    url: format!("{}#s{}", page.path(), at + 1).into(),
                    title: page.title().into(),
                    passage: sentence.into(),
                    ..Citation::default()
                });
            }
        }
        shown
    }

    fn prompt(&self, question: &str) -> String {
        format!("{}<q> {question}<a>", self.text)
    }

    /// One of the sentences behind its number, or that there is none.
    fn form(&self) -> Form {
        let answer = |(at, cited): (usize, &Citation<'_>)| format!("[{}] {}", at + 1, cited.passage);
        let answers = self.sentences.iter().enumerate().map(answer).chain([REFUSAL.to_owned()]);
        let quoted: Vec<String> = answers.map(|answer| serde_json::Value::from(answer).to_string()).collect();
        Form::Lark(format!("start: {}\n", quoted.join(" | ")))
    }
}

/// Finds markers in an answer, and what they stand for.
pub(crate) struct Cites {
    sentences: HashMap<String, Citation<'static>>,
    /// A marker that may be going on, and where it began, in characters.
    open: Option<(String, u64)>,
    /// Characters that were said.
    said: u64,
}

impl Cites {
    fn new(shown: Shown) -> Self {
        let numbered = shown.sentences.into_iter().enumerate();
        let sentences = numbered.map(|(at, cited)| (format!("[{}]", at + 1), cited)).collect();
        Self { sentences, open: None, said: 0 }
    }

    /// The next piece of the answer, which does not begin with a space, as a refusal does, and what it cites.
    pub(crate) fn next(&mut self, piece: String) -> (String, Vec<Citation<'static>>) {
        let piece = if self.said == 0 { piece.trim_start().to_owned() } else { piece };
        let cited = self.read(&piece);
        (piece, cited)
    }

    /// What the text cites up to the end of this piece, and has not cited before it.
    fn read(&mut self, piece: &str) -> Vec<Citation<'static>> {
        let mut found = Vec::new();
        for c in piece.chars() {
            if c == '[' {
                self.open = Some((String::new(), self.said));
            }
            self.said += 1;
            let Some((marker, start)) = &mut self.open else { continue };
            marker.push(c);
            if c == ']'
                && let Some(cited) = self.sentences.get(marker)
            {
                found.push(Citation { start: *start, end: self.said, ..cited.clone() });
            }
            if c != '[' && !c.is_ascii_digit() {
                self.open = None;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use firsttoken_engine::vocabulary::Bytes;

    use super::*;

    fn shown() -> Shown {
        let pages = ["/samples/billing/pausing-a-subscription", "/samples/billing/coupons"];
        Shown::new(pages.into_iter().filter_map(Page::at))
    }

    #[test]
    fn the_prompt_is_what_the_model_was_trained_on() {
        insta::assert_snapshot!(shown().prompt("Can I pause my annual subscription?"));
    }

    #[test]
    fn what_shares_more_words_has_a_head_start() {
        let documents = Documents::new();
        let vocabulary = Bytes::new(&["[1]", "[2]", "[3]", "[4]", "[5]", "[6]", "[7]", "[8]", "[9]"], false);
        let page = PAGES.iter().position(|page| page.path() == "/samples/billing/adding-seats");
        let found = [page.expect("it is among the pages")];
        let starts = documents.head_starts(&vocabulary, &found, "How long is an invitation valid?");
        let of = |mark: &str| {
            let token = vocabulary.tokenize(mark, true)[0];
            starts.iter().find(|(known, _)| *known == token).map(|(_, start)| *start)
        };
        assert!(of("[3]") > of("[1]") && of("[3]") > of("[4]"), "{starts:?}");
        assert_eq!((of("[5]"), of(REFUSAL)), (None, Some(REFUSAL_HEAD_START)), "four sentences are shown");
    }

    #[test]
    fn no_mark_survives() {
        assert_eq!(
            clean(" a\n [1] b[60]<q>c [61] [0] "),
            "a b c [61] [0]".replace("b c", "bc").replace("a b", "a  b")
        );
        assert_eq!(clean("<<q>q>[[12]12]</<s>s>x"), "x");
    }

    #[test]
    fn markers_are_found_however_they_are_cut() {
        let all = "[2] One [9] two [3] three [ [2";
        for at in 0..all.len() {
            let mut cites = Cites::new(shown());
            let (head, tail) = all.split_at(at);
            let mut found = cites.read(head);
            found.extend(cites.read(tail));
            let places: Vec<(u64, u64)> = found.iter().map(|cited| (cited.start, cited.end)).collect();
            assert_eq!(places, [(0, 3), (8, 11), (16, 19)], "{at}");
            assert_eq!(found[0].url, "/samples/billing/pausing-a-subscription#s2");
        }
        assert!(Cites::new(shown()).read("[99] [x] []").is_empty());
    }
}
