//! Which pages share the telling words of a question: Okapi BM25 (Robertson and Zaragoza, *The Probabilistic
//! Relevance Framework: BM25 and Beyond*, 2009), with the idf that Lucene uses, which is never negative.
//!
//! score = Σ over the question's words of ln(1 + (N - n + ½) / (n + ½)) · f · (k₁ + 1) / (f + k₁ · (1 - b + b · L / L̄)),
//! where n of N pages have the word, this one f times, and L are the words of a page.
//! `models/demo/train/evaluate.py` ranks alike.
//!
//! Invariant: the same pages and question give the same order; pages that score the same keep theirs.

use std::collections::{HashMap, HashSet};

use rust_stemmers::{Algorithm, Stemmer};

/// How soon a word that comes again counts no more.
const K1: f64 = 1.2;
/// How much a long page is held against it.
const B: f64 = 0.75;

/// Pages, ready to be searched.
pub(super) struct Index {
    pages: Vec<HashMap<String, u32>>,
    /// How many pages have a word.
    spread: HashMap<String, u32>,
}

impl Index {
    /// Of these texts.
    pub(super) fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let mut index = Self { pages: Vec::new(), spread: HashMap::new() };
        for text in texts {
            let mut page = HashMap::new();
            words(&text).for_each(|word| *page.entry(word).or_default() += 1);
            for word in page.keys() {
                *index.spread.entry(word.clone()).or_default() += 1;
            }
            index.pages.push(page);
        }
        index
    }

    /// Whether any page has this word.
    pub(super) fn knows(&self, word: &str) -> bool {
        words(word).any(|word| self.spread.contains_key(&word))
    }

    /// The `most` pages that score best for a question, the best first. All pages are ranked, also those
    /// that share no word with it.
    pub(super) fn best(&self, question: &str, most: usize) -> Vec<usize> {
        let scores = self.scores(question);
        let mut order: Vec<usize> = (0..self.pages.len()).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        order.truncate(most);
        order
    }

    /// What each page scores for a question.
    pub(super) fn scores(&self, question: &str) -> Vec<f64> {
        let question: HashSet<String> = words(question).collect();
        let all: u32 = self.pages.iter().flat_map(HashMap::values).sum();
        let mean = f64::from(all) / self.pages.len().max(1) as f64;
        self.pages.iter().map(|page| self.score(page, mean, &question)).collect()
    }

    fn score(&self, page: &HashMap<String, u32>, mean: f64, question: &HashSet<String>) -> f64 {
        let length = f64::from(page.values().sum::<u32>());
        let count = self.pages.len() as f64;
        let of = |word: &String| {
            let (Some(times), Some(spread)) = (page.get(word), self.spread.get(word)) else { return 0.0 };
            let (times, spread) = (f64::from(*times), f64::from(*spread));
            let idf = (1.0 + (count - spread + 0.5) / (spread + 0.5)).ln();
            idf * times * (K1 + 1.0) / (times + K1 * (1.0 - B + B * length / mean))
        };
        // In one order always: sums of floating-point numbers depend on it.
        let mut parts: Vec<f64> = question.iter().map(of).collect();
        parts.sort_by(f64::total_cmp);
        parts.iter().sum()
    }
}

/// The stems of a text's words, by Snowball's English rules: who asks about pausing means a page on pauses.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
    let stemmer = Stemmer::create(Algorithm::English);
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(move |word| stemmer.stem(&word.to_ascii_lowercase()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_small_and_stemmed() {
        let found: Vec<String> = words("The refunds: PAUSING isn't 15 pauses").collect();
        assert_eq!(found, ["the", "refund", "paus", "isn", "t", "15", "paus"]);
    }

    #[test]
    fn rare_words_count_more_and_long_pages_less() {
        let texts =
            ["pause a plan", "a plan and a plan and a plan", "refund a plan, with many words more", "tax"];
        let index = Index::new(texts.map(str::to_owned));
        assert_eq!(index.best("can I pause my plan", 1), [0]);
        assert_eq!(index.best("refunds for plans", 2)[0], 2);
        assert_eq!(index.best("plan plan plan", 4), index.best("plan", 4));
        assert!(index.knows("Refunds") && !index.knows("joke") && !index.knows(""));
    }

    #[test]
    fn equal_pages_keep_their_order() {
        let index = Index::new(["b", "b", "b"].map(str::to_owned));
        assert_eq!(index.best("b", 3), [0, 1, 2]);
        assert_eq!(index.best("nothing", 2), [0, 1]);
        assert_eq!(Index::new([]).best("x", 3), [0_usize; 0]);
    }

    #[test]
    fn the_score_is_the_formula() {
        let index = Index::new(["a a b".to_owned(), "c".to_owned()]);
        // N = 2, n = 1, f = 2, L = 3, mean = 2.
        let expected = (1.0_f64 + 1.5 / 1.5).ln() * 2.0 * 2.2 / (2.0 + 1.2 * (0.25 + 0.75 * 1.5));
        let score = index.score(&index.pages[0], 2.0, &HashSet::from(["a".to_owned()]));
        assert!((score - expected).abs() < 1e-12, "{score} {expected}");
    }
}
