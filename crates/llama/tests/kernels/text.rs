//! Text to tokens and back.

use firsttoken_llama::{Markup, Model};
use firsttoken_synth::{BEGIN, MESSAGE_END, MESSAGE_START, Recipe, TEMPLATE};

use crate::rig::{TempFile, model, random, replaced, with_key};

fn back(model: &Model, tokens: &[u32], markup: Markup) -> Vec<u8> {
    let mut text = Vec::new();
    for token in tokens {
        model.piece(*token, markup, &mut text).expect("the vocabulary has it");
    }
    text
}

#[test]
fn text_comes_back() {
    let model = random();
    let texts = [
        "",
        " ",
        "hello",
        "a\u{0}b",
        "naïve – 日本語 🦀\r\n\t",
        "<|im_end|> said the user",
        "  lots   of   space  \n\n",
    ];
    for text in texts {
        let tokens = model.tokenize(text, Markup::Text).expect("short");
        assert_eq!(back(&model, &tokens, Markup::Text), text.as_bytes(), "{text:?}");
        assert_eq!(tokens.len(), text.len(), "one byte is one token in {text:?}");
    }
}

#[test]
fn pieces_of_letters_are_bytes() {
    let model = random();
    let tokens = model.tokenize("é", Markup::Text).expect("short");
    assert_eq!(tokens.len(), 2);
    assert_eq!(back(&model, &tokens[..1], Markup::Text), [0xc3]);
    assert_eq!(back(&model, &tokens[1..], Markup::Text), [0xa9]);
}

#[test]
fn control_tokens_are_the_templates_alone() {
    let model = random();
    let rendered = "<|im_start|>user\nhi<|im_end|>";
    let as_control = model.tokenize(rendered, Markup::Control).expect("short");
    assert_eq!((as_control[0], as_control.last()), (MESSAGE_START, Some(&MESSAGE_END)));
    let as_text = model.tokenize(rendered, Markup::Text).expect("short");
    assert!(as_text.iter().all(|token| *token < BEGIN));
    assert_eq!(back(&model, &as_control, Markup::Control), rendered.as_bytes());
    assert_eq!(back(&model, &as_control, Markup::Text), b"user\nhi");
    assert!(model.ends(MESSAGE_END).expect("known"));
    assert!(!model.ends(65).expect("known"));
}

#[test]
fn a_text_begins_once() {
    let plain = random();
    let mut tokens = vec![65];
    plain.begin(&mut tokens);
    assert_eq!(tokens, [65], "this model wants no beginning");
    let marked = model(&Recipe { adds_bos: true, ..Recipe::default() });
    assert!(marked.specials().adds_bos);
    for _ in 0..2 {
        marked.begin(&mut tokens);
        assert_eq!(tokens, [BEGIN, 65]);
    }
    let mut empty = Vec::new();
    marked.begin(&mut empty);
    assert_eq!(empty, [BEGIN]);
}

#[test]
fn unknown_tokens_are_errors() {
    let model = random();
    for token in [320, 1 << 31, u32::MAX] {
        assert!(model.piece(token, Markup::Text, &mut Vec::new()).is_err());
        assert!(model.ends(token).is_err());
    }
}

#[test]
fn a_long_text_of_one_letter_is_read() {
    // Patterns that recurse for each letter would end here: a test's stack is 2 MiB.
    for family in ["llama-bpe", "qwen2", "deepseek-v3", "tekken", "gpt-4o", "default"] {
        let file = Recipe::default().bytes().expect("the recipe is sound");
        let file = replaced(file, b"tokenizer.ggml.pre", b"tokenizer.ggml.old");
        let name =
            [&8_u32.to_le_bytes()[..], &(family.len() as u64).to_le_bytes(), family.as_bytes()].concat();
        let model = TempFile::new(&with_key(file, "tokenizer.ggml.pre", &name)).load().expect(family);
        for letter in ["a", " ", "\n", "é", "1"] {
            let text = letter.repeat((1 << 15) / letter.len());
            let tokens = model.tokenize(&text, Markup::Text).expect("below 2 GiB");
            assert_eq!(tokens.len(), text.len(), "{letter:?} for {family}");
        }
    }
}

#[test]
fn tokens_of_segments_are_those_of_the_whole() {
    // The first family is split in segments, the second is not; both take a byte for a token.
    let text = "Some words, 12 numbers;\n\tand a line: naïve – 日本語 🦀\n".repeat(1000);
    let file = Recipe::default().bytes().expect("the recipe is sound");
    let segmented = TempFile::new(&replaced(file, b"gpt-2", b"bloom")).load().expect("sound");
    let tokens = segmented.tokenize(&text, Markup::Control).expect("short");
    assert_eq!(tokens, random().tokenize(&text, Markup::Control).expect("short"));
    assert_eq!(back(&segmented, &tokens, Markup::Text), text.as_bytes());
}

#[test]
fn a_model_says_what_it_is() {
    let model = random();
    let header = model.header();
    assert_eq!(header.architecture, "llama");
    assert_eq!(model.name(), Some("synthetic"));
    assert_eq!(model.template(), Some(TEMPLATE));
    assert_eq!((model.vocabulary(), model.context_length(), header.layers()), (320, 32_768, 2));
    let special = model.specials();
    assert_eq!((special.bos, special.eos, special.adds_bos), (Some(BEGIN), Some(MESSAGE_END), false));
    // 2 layers, 1 shared head of 32 values, for keys and for values.
    assert_eq!(header.kv_values_per_token(), (64, 64));
    assert_eq!(crate::rig::context(&model).capabilities().bytes_per_token, 256);
    // Embeddings and output 320 × 64 each, and 2 × (2 × 64 × 64 + 2 × 64 × 32 + 3 × 64 × 128), and norms.
    assert_eq!(header.tensors.parameters, 2 * 320 * 64 + 2 * 36_864 + 5 * 64);
}
