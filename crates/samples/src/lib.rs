//! The sample documents, as they lie in `samples/`: what the demo model answers from, and what its
//! citations lead to. They are part of the binary, so that the first run needs nothing but it.
//!
//! A page is a title, `# …`, and paragraphs, one line each. `models/demo/train/samples.py` reads them alike.
//!
//! Invariant: every page of `samples/` is here, once.

use std::fmt::Write as _;

/// One page.
#[derive(Debug)]
pub struct Page {
    /// The folder that it is in.
    pub set: &'static str,
    /// Its file, without ending.
    pub name: &'static str,
    text: &'static str,
}

macro_rules! page {
    ($set:literal, $name:literal) => {
        Page {
            set: $set,
            name: $name,
            text: include_str!(concat!("../../../samples/", $set, "/", $name, ".md")),
        }
    };
}

/// Every page, by folder and name.
pub const PAGES: &[Page] = &[
    page!("billing", "account-credit"),
    page!("billing", "adding-seats"),
    page!("billing", "after-you-cancel"),
    page!("billing", "automatic-renewal"),
    page!("billing", "billing-contacts-and-owners"),
    page!("billing", "cancelling-a-subscription"),
    page!("billing", "changing-the-details-on-an-invoice"),
    page!("billing", "changing-your-card"),
    page!("billing", "chargebacks-and-disputes"),
    page!("billing", "contacting-billing-support"),
    page!("billing", "coupons"),
    page!("billing", "currencies"),
    page!("billing", "deleting-a-workspace"),
    page!("billing", "discounts-for-schools-and-charities"),
    page!("billing", "downgrading-your-plan"),
    page!("billing", "ending-a-pause-early"),
    page!("billing", "failed-payments"),
    page!("billing", "finding-your-invoices"),
    page!("billing", "free-trial"),
    page!("billing", "gift-cards"),
    page!("billing", "late-payment-of-invoices"),
    page!("billing", "moving-a-subscription-to-someone-else"),
    page!("billing", "pausing-a-subscription"),
    page!("billing", "paying-by-bank-transfer"),
    page!("billing", "payment-methods"),
    page!("billing", "plans-and-prices"),
    page!("billing", "receipts"),
    page!("billing", "refunds-for-annual-plans"),
    page!("billing", "refunds-for-monthly-plans"),
    page!("billing", "removing-seats"),
    page!("billing", "sales-tax-in-the-united-states"),
    page!("billing", "security-of-payments"),
    page!("billing", "sending-invoices-to-your-accountant"),
    page!("billing", "spending-limits"),
    page!("billing", "student-discount"),
    page!("billing", "switching-between-monthly-and-yearly-billing"),
    page!("billing", "taxes-and-vat"),
    page!("billing", "terms-of-the-annual-contract"),
    page!("billing", "upgrading-your-plan"),
    page!("billing", "using-tidewell-on-your-phone"),
    page!("unseen", "borrowing-books"),
    page!("unseen", "computers-and-printing"),
    page!("unseen", "events-and-clubs"),
    page!("unseen", "joining-the-library"),
    page!("unseen", "late-returns"),
    page!("unseen", "making-an-appointment"),
    page!("unseen", "repeat-prescriptions"),
    page!("unseen", "study-rooms"),
    page!("unseen", "test-results"),
    page!("unseen", "your-first-visit"),
];

impl Page {
    /// What it is called.
    #[must_use]
    pub fn title(&self) -> &'static str {
        self.text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default()
    }

    /// Its paragraphs, each as its sentences.
    pub fn paragraphs(&self) -> impl Iterator<Item = impl Iterator<Item = &'static str>> {
        self.text.lines().skip(1).filter(|line| !line.is_empty()).map(sentences)
    }

    /// All its sentences, in order.
    pub fn sentences(&self) -> impl Iterator<Item = &'static str> {
        self.paragraphs().flatten()
    }

    /// Where the gateway shows it.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/samples/{}/{}", self.set, self.name)
    }

    /// The page that is shown at `path`.
    #[must_use]
    pub fn at(path: &str) -> Option<&'static Self> {
        let (set, name) = path.strip_prefix("/samples/")?.split_once('/')?;
        PAGES.iter().find(|page| page.set == set && page.name == name)
    }

    /// The page as HTML: sentences with the ids `s1`, `s2`, …, by which citations find them.
    #[must_use]
    pub fn html(&self) -> String {
        let mut html = format!("<h1>{}</h1>\n", escaped(self.title()));
        let mut number = 0;
        for paragraph in self.paragraphs() {
            html.push_str("<p>");
            for sentence in paragraph {
                number += 1;
                let space = if number > 1 { " " } else { "" };
                // Writing to a String cannot fail.
                let _ = write!(html, "{space}<span id=\"s{number}\">{}</span>", escaped(sentence));
            }
            html.push_str("</p>\n");
        }
        html
    }
}

/// A line, cut behind `.`, `?` or `!` where a space and a capital, a digit or a quote follow.
fn sentences(line: &'static str) -> impl Iterator<Item = &'static str> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let ends = |at: &usize| {
            let (before, after) = line.split_at(*at);
            let begins = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || matches!(c, '"' | '\'');
            before.ends_with(['.', '?', '!']) && after[1..].starts_with(begins)
        };
        let end = line.match_indices(' ').map(|(at, _)| at).find(ends);
        rest = end.map(|end| &line[end + 1..]);
        Some(&line[..end.unwrap_or(line.len())])
    })
}

/// Text as HTML has it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_page_is_here() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples");
        let mut there = BTreeSet::new();
        for set in std::fs::read_dir(folder).unwrap().map(|set| set.unwrap()) {
            for file in std::fs::read_dir(set.path()).unwrap().map(|file| file.unwrap().path()) {
                let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
                if file.extension().is_some_and(|ending| ending == "md") && name != "README" {
                    there.insert(format!("/samples/{}/{name}", set.file_name().to_str().unwrap()));
                }
            }
        }
        assert_eq!(PAGES.iter().map(Page::path).collect::<BTreeSet<_>>(), there);
        for page in PAGES {
            assert!(!page.title().is_empty() && page.sentences().count() >= 2, "{page:?}");
            assert_eq!(Page::at(&page.path()).unwrap().text, page.text);
        }
        assert!(Page::at("/samples/billing/README").is_none() && Page::at("/samples/").is_none());
    }

    #[test]
    fn a_sentence_ends_before_a_space_and_a_beginning() {
        let cut: Vec<&str> =
            sentences("Open Billing > Plan at 5 p.m. sharp. It costs $2.50. 3 days? \"Yes!\" e.g. this")
                .collect();
        assert_eq!(
            cut,
            ["Open Billing > Plan at 5 p.m. sharp.", "It costs $2.50.", "3 days?", "\"Yes!\" e.g. this"]
        );
    }

    #[test]
    fn every_sample_answer_is_a_sentence() {
        for (set, questions) in [
            ("billing", include_str!("../../../samples/billing/questions.jsonl")),
            ("unseen", include_str!("../../../samples/unseen/questions.jsonl")),
        ] {
            for sentence in questions.split("\"sentence\": \"").skip(1) {
                let sentence = sentence.split("\"}").next().unwrap().replace("\\\"", "\"");
                let mut pages = PAGES.iter().filter(|page| page.set == set);
                assert!(pages.any(|page| page.sentences().any(|s| s == sentence)), "{sentence}");
            }
        }
    }

    #[test]
    fn html_escapes() {
        let page = Page { set: "a", name: "b", text: "# A & B\n\nOne < two. Three \"four\".\n" };
        assert_eq!(
            page.html(),
            "<h1>A &amp; B</h1>\n<p><span id=\"s1\">One &lt; two.</span> \
             <span id=\"s2\">Three &quot;four&quot;.</span></p>\n"
        );
    }
}
