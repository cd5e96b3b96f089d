//! What holds for all texts, and that the documents say what the reader does.

use proptest::prelude::*;

use super::read;
use crate::config::{Config, Limits, Policy, resolve};

const EXAMPLE: &str = include_str!("../../../../../docs/firsttoken.example.toml");
const GUIDE: &str = include_str!("../../../../../docs/configuration.md");

#[test]
fn the_example_is_good_and_says_the_defaults() {
    let config = read(EXAMPLE, &[("OPENAI_API_KEY", "sk-1")]).unwrap();
    assert_eq!(format!("{:?}", config.defaults), format!("{:?}", Policy::default()));
    assert_eq!(format!("{:?}", config.limits), format!("{:?}", Limits::default()));
    assert_eq!((config.listen, config.drain), (Config::bare().listen, Config::bare().drain));
    let found = |model| config.resolve(model, None).map(|found| (found.upstream, found.model.into_owned()));
    assert_eq!(found("fast"), Some((0, "gpt-5-mini-2025-08-07".into())));
    assert_eq!(found("local/llama-3.2"), Some((2, "llama-3.2".into())));
}

/// Every key that the reader knows, found by asking it for one that it does not know.
#[test]
fn the_example_and_the_guide_name_every_key() {
    let sections = [
        "",
        "[[keys]]",
        "[[upstreams]]",
        "[[engines]]",
        "[[models]]",
        "[clocks]",
        "[stream]",
        "[retry]",
        "[hedge]",
        "[limits]",
        "[[routes]]",
    ];
    let mut count = 0;
    for section in sections {
        let problems = read(&format!("{section}\nqqqqqqqqqqqqqqqqqqqqq = 1\n"), &[]).unwrap_err();
        let (_, rest) = problems.split_once("unknown key; hint: one of ").unwrap();
        for key in rest.lines().next().unwrap().split(", ") {
            let table =
                [format!("[{key}]"), format!("[[{key}]]")].iter().any(|header| EXAMPLE.contains(header));
            let nested = EXAMPLE.contains(&format!("[routes.{key}]"));
            let value = EXAMPLE.lines().any(|line| line.starts_with(&format!("{key} = ")));
            assert!(table || nested || value, "{section} {key} is not in the example");
            assert!(
                GUIDE.contains(&format!("`{key}`")) || GUIDE.contains(&format!("[{key}]")),
                "{section} {key} is not in the guide"
            );
            count += 1;
        }
    }
    assert_eq!(count, 86, "keys of the configuration");
}

/// Pieces from which texts are made that get further into the reader than noise does.
const PIECES: [&str; 30] = [
    "[",
    "]",
    "[[keys]]\n",
    "[[upstreams]]\n",
    "[[engines]]\n",
    "file = ",
    "[[models]]\n",
    "[clocks]\n",
    "[stream]\n",
    "[limits]\n",
    "[[routes]]\n",
    "[routes.clocks]\n",
    "name = ",
    "upstream = ",
    "aliases = [",
    "base_url = ",
    "sha256 = ",
    "provider = ",
    "total_ms = ",
    "body_bytes_max = ",
    "\"*\"\n",
    "\"a*b\"\n",
    "\"http://h/v1\"\n",
    "\"${A}$${\"\n",
    "1\n",
    "0x7fffffffffffffffffff\n",
    "\"openai\"\n",
    "\"off\"\n",
    "ü = {}\n",
    "'",
];

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>(), value in any::<Option<String>>()) {
        let _ = Config::from_toml(&text, "f.toml", &|_| value.clone()).map_err(|problems| problems.to_string());
        let _ = Config::from_env(&|_| value.clone()).map_err(|problems| problems.to_string());
    }

    #[test]
    fn likely_text_never_panics(pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..40), value in any::<Option<String>>()) {
        let text = pieces.concat();
        let _ = Config::from_toml(&text, "f.toml", &|_| value.clone()).map_err(|problems| problems.to_string());
    }

    #[test]
    fn matching_agrees_with_its_definition(pattern in "[ab*]{0,7}", text in "[ab]{0,9}") {
        fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
            match pattern.split_first() {
                None => text.is_empty(),
                Some((b'*', rest)) => (0..=text.len()).any(|at| by_definition(rest, &text[at..])),
                Some((wanted, rest)) => text.split_first().is_some_and(|(found, more)| found == wanted && by_definition(rest, more)),
            }
        }
        prop_assert_eq!(resolve::matches(&pattern, &text), by_definition(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn a_hidden_rule_could_never_apply(wide in "[ab*]{0,6}", narrow in "[ab*]{0,6}", text in "[abc]{0,8}") {
        use crate::config::resolve::matches;
        if matches(&wide, &narrow) && matches(&narrow, &text) {
            prop_assert!(matches(&wide, &text));
        }
    }
}
