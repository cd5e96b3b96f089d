//! The closing lines of test runners, read for what they counted.
//!
//! Invariant: a line that is no closing line counts nothing, so that output of tests cannot inflate
//! the sum by accident.

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u32,
    pub(super) failed: u32,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// What `line` counts, if it is a closing line of nextest, cargo test, pytest or Node's runner.
pub(super) fn read(line: &str) -> Option<Counts> {
    // Indented, cargo's line is a failed test's own, which nextest repeats.
    let summary = line.trim_start().starts_with("Summary [");
    let nextest = summary && (line.contains(" tests run: ") || line.contains(" test run: "));
    let cargo_test = line.starts_with("test result: ");
    let pytest = line.starts_with("==") && line.ends_with("==") && line.contains(" in ");
    if nextest || cargo_test || pytest {
        return Some(number_then_word(line));
    }
    // Node says one number a line: `ℹ pass 3` for people, `# pass 3` in TAP.
    let mut words = line.strip_prefix("ℹ ").or_else(|| line.strip_prefix("# "))?.split(' ');
    let (word, number) = (words.next()?, words.next()?.parse().ok()?);
    match word {
        "pass" => Some(Counts { passed: number, failed: 0 }),
        "fail" | "cancelled" => Some(Counts { passed: 0, failed: number }),
        _ => None,
    }
}

/// Adds up what stands as `3 passed` or `1 failed` in a line.
fn number_then_word(line: &str) -> Counts {
    let words: Vec<_> = line.split_whitespace().map(|w| w.trim_matches([',', ';', '='])).collect();
    let mut counts = Counts::default();
    for pair in words.windows(2) {
        let Ok(number) = pair[0].parse::<u32>() else { continue };
        match pair[1] {
            "passed" => counts.passed += number,
            // nextest: `1 timed out`, `1 exec failed`; pytest: `1 error`.
            "failed" | "timed" | "exec" | "error" | "errors" => counts.failed += number,
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::{Counts, read};

    #[test]
    fn every_runner() {
        let some = |passed, failed| Some(Counts { passed, failed });
        let nextest =
            "     Summary [   0.123s] 12 tests run: 9 passed (1 slow), 2 failed, 1 timed out, 3 skipped";
        assert_eq!(read(nextest), some(9, 3));
        assert_eq!(read("     Summary [   0.004s] 1 test run: 1 passed, 0 skipped"), some(1, 0));
        let cargo = "test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(read(cargo), some(4, 1));
        assert_eq!(read("=========== 2 failed, 31 passed, 1 error in 12.30s ==========="), some(31, 3));
        assert_eq!(read("ℹ pass 7"), some(7, 0));
        assert_eq!(read("# fail 2"), some(0, 2));
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in [
            "",
            "3 passed",
            "test a::b ... ok",
            "    test result: FAILED. 0 passed; 1 failed",
            "ℹ tests 9",
            "ℹ pass",
            "# passing by",
            "== starting ==",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
