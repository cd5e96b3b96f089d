//! How much a model thinks, in words (OpenAI, newer Anthropic models) and in tokens (Anthropic).
//!
//! Invariant: a word that is made of a number is one that every model knows which is told by words.

/// The smallest budget that there is.
pub(crate) const BUDGET_MIN: u64 = 1024;

const BUDGETS: [(&str, u64); 6] = [
    ("minimal", BUDGET_MIN),
    ("low", 2048),
    ("medium", 8192),
    ("high", 24_576),
    ("xhigh", 32_768),
    ("max", 32_768),
];

/// The tokens that a word stands for; none for a word that we do not know.
pub(crate) fn budget(word: &str) -> Option<u64> {
    BUDGETS.iter().find(|(known, _)| *known == word).map(|(_, budget)| *budget)
}

/// The word for so many tokens.
pub(crate) const fn word(budget: u64) -> &'static str {
    match budget {
        0..8192 => "low",
        8192..24_576 => "medium",
        24_576.. => "high",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_budgets_agree() {
        for known in ["low", "medium", "high"] {
            assert_eq!(budget(known).map(word), Some(known));
        }
        assert_eq!((word(0), word(24_575), word(u64::MAX)), ("low", "medium", "high"));
        assert_eq!(budget("a lot"), None);
    }
}
