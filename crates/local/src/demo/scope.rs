//! What the demo model is for, and what is kept from it.
//!
//! It was trained on questions in English that stand alone, and answers anything else with a sentence that
//! looks as sure as a right one. So what is plainly something else does not reach it. These are rules of
//! thumb: what they let through the model may still refuse.
//!
//! Invariant: pure, and linear in the text.

use super::bm25::Index;

/// What is answered in the place of the model, word for word.
pub(crate) const SENTENCE: &str = "I am firsttoken's demo model. I answer one question at a time, in English, with \
    a sentence of the sample documents (a planning board's billing, a library, a health centre), and can do \
    nothing else. Try “Can I pause my annual subscription?” or, for a real model, start firsttoken serve \
    --model FILE.gguf, or set ANTHROPIC_API_KEY or OPENAI_API_KEY.";

/// What a question begins with that asks for writing rather than for an answer.
const COMMANDS: &str = "act calculate code compose compute debug define draw fix forget generate ignore imagine implement invent \
    paint play pretend recommend repeat rewrite roleplay say sing solve spell summarise summarize translate \
    write";
/// What only goes on from an earlier turn.
const FOLLOWING: &[&str] =
    &["and", "but", "so", "then", "why", "what about", "how about", "really", "are you sure", "tell me more"];
/// What stands in programs.
const CODE: &[&str] = &["```", "();", "=>", "==", "</", "{", "}", "def ", "SELECT ", "#include", "import "];
/// Words that tell nothing about what is asked.
const PLAIN: &str = "a about all am an and any are as at be been but by can could do does doing for from get give go good had \
    has have he help her here him his how i if in is it its just know like list make many may me mean mine \
    more most much must my name need new no not of off on one or our out own please say she should so some \
    take tell than that the their them then there these they thing this to up us use used was way we were \
    what when where which while who whom why will with work would yes you your yours afternoon bye day \
    evening everyone fine goodbye great hello hey hi morning night ok okay sup thank thanks today tomorrow \
    yesterday yo";
/// Little words of other languages that English does not have.
const FOREIGN: &str = "aan al aller annulere avec bitte che com como con cual cuando das dat de dei del den der des di du een \
    ein eine el en es est et eu fur gli har het hoe hur ich ik il ist jag jak je kan kann las les los ma \
    mein meine meu mi mijn mina minha moj mon moge nao nicht non och onde para pas per por posso pour puedo \
    puis que quel qui se si sie su sul sur te um uma un una und une usted van voor vous wann was wat wie wo \
    zu";

/// Whether the demo model is for this text.
pub(super) fn is_question(text: &str, index: &Index) -> bool {
    let lower = text.trim().to_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty()).collect();
    let goes_on = FOLLOWING
        .iter()
        .any(|start| lower.strip_prefix(start).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)));
    let polite = ["please ", "can you ", "could you ", "now "];
    let asked = polite.iter().find_map(|begin| lower.strip_prefix(begin)).unwrap_or(&lower);
    let commands = asked.split_whitespace().next().is_some_and(|word| is_in(COMMANDS, word));
    if commands || goes_on || CODE.iter().any(|mark| text.contains(mark)) || !is_english(&lower, &words) {
        return false;
    }
    // A word that any page has, and that tells something.
    words.iter().any(|word| {
        let has_letters = word.chars().any(|c| c.is_ascii_alphabetic());
        has_letters && !is_in(PLAIN, word) && index.knows(word)
    })
}

/// By its letters, and by the little words that every sentence has.
fn is_english(text: &str, words: &[&str]) -> bool {
    let letters = text.chars().filter(|c| c.is_alphabetic()).count();
    let foreign_letters = text.chars().filter(|c| c.is_alphabetic() && !c.is_ascii()).count();
    let of = |list: &str| words.iter().filter(|word| is_in(list, word)).count();
    let is_strange = text.contains(['¿', '¡']) || foreign_letters * 8 > letters;
    !is_strange && of(FOREIGN) <= of(PLAIN)
}

/// Whether `word` is one of a list's.
fn is_in(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|known| known == word)
}

/// Whether a system prompt asks for nothing that the demo model would have to do: none, or the sentence
/// that every tutorial begins with.
pub(super) fn is_bland(system: &str) -> bool {
    let lower = system.trim().trim_end_matches(['.', '!']).to_lowercase();
    let helpful = lower.strip_prefix("you are ").is_some_and(|rest| {
        let known = [
            "a",
            "an",
            "the",
            "helpful",
            "friendly",
            "concise",
            "ai",
            "support",
            "customer",
            "assistant",
            "bot",
        ];
        rest.split_whitespace().all(|word| known.contains(&word))
    });
    lower.is_empty() || helpful
}

#[cfg(test)]
mod tests {
    use firsttoken_samples::PAGES;

    use super::super::text_of;
    use super::*;

    #[test]
    fn sample_questions_are_let_through() {
        let index = Index::new(PAGES.iter().map(text_of));
        let billing = include_str!("../../../../samples/billing/questions.jsonl").lines();
        let all = billing.chain(include_str!("../../../../samples/unseen/questions.jsonl").lines());
        let answerable: Vec<&str> = all.filter(|line| !line.contains("\"answers\": []")).collect();
        let question = |line: &&str| line.split('"').nth(3).unwrap().to_owned();
        let kept: Vec<String> = answerable.iter().map(question).filter(|q| !is_question(q, &index)).collect();
        // Those share no telling word with any page, and BM25 would find none.
        assert!(kept.len() * 50 <= answerable.len(), "{kept:?}");
    }

    #[test]
    fn what_every_tutorial_says_is_bland() {
        for bland in ["", " ", "You are a helpful assistant.", "you are a friendly support assistant!"] {
            assert!(is_bland(bland), "{bland:?}");
        }
        for asks in ["You are a pirate.", "Answer in French.", "You are a helpful assistant. Reply in JSON."]
        {
            assert!(!is_bland(asks), "{asks:?}");
        }
    }
}
