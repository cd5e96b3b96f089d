//! The head of a GGUF file: keys, the vocabulary, and where each tensor lies.
//!
//! Format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>, version 3.
//!
//! Invariant: the head ends where the first tensor begins, aligned.

use crate::weights::Tensor;
use crate::{BEGIN, FIRST_WORD, MESSAGE_END, PAD, Recipe, TEMPLATE};

/// Where tensors begin, in bytes.
pub(crate) const ALIGNMENT: u64 = 32;

/// `bytes`, up to the next aligned place.
pub(crate) const fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}

/// A head in the making.
#[derive(Default)]
struct Head {
    bytes: Vec<u8>,
    keys: u64,
}

impl Head {
    fn text(&mut self, text: &str) {
        self.bytes.extend((text.len() as u64).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    fn key(&mut self, key: &str, of: u32) {
        self.keys += 1;
        self.text(key);
        self.bytes.extend(of.to_le_bytes());
    }

    fn put_text(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        self.text(value);
    }

    fn put_number(&mut self, key: &str, value: u32) {
        self.key(key, 4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn put_float(&mut self, key: &str, value: f32) {
        self.key(key, 6);
        self.bytes.extend(value.to_le_bytes());
    }

    fn put_bool(&mut self, key: &str, value: bool) {
        self.key(key, 7);
        self.bytes.push(u8::from(value));
    }

    fn array(&mut self, key: &str, of: u32, elements: usize) {
        self.key(key, 9);
        self.bytes.extend(of.to_le_bytes());
        self.bytes.extend((elements as u64).to_le_bytes());
    }

    fn put_texts(&mut self, key: &str, texts: &[String]) {
        self.array(key, 8, texts.len());
        texts.iter().for_each(|text| self.text(text));
    }
}

/// Everything in front of the first tensor's data.
pub(crate) fn head(recipe: &Recipe, tensors: &[Tensor]) -> Vec<u8> {
    let mut head = Head::default();
    shape(&mut head, recipe);
    vocabulary(&mut head, recipe);
    let mut file = b"GGUF".to_vec();
    file.extend(3_u32.to_le_bytes());
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend(head.keys.to_le_bytes());
    let mut offset = 0_u64;
    for tensor in tensors {
        head.text(&tensor.name);
        let dimensions: &[u32] = if tensor.rows == 1 { &[tensor.row] } else { &[tensor.row, tensor.rows] };
        head.bytes.extend(u32::to_le_bytes(if tensor.rows == 1 { 1 } else { 2 }));
        dimensions.iter().for_each(|size| head.bytes.extend(u64::from(*size).to_le_bytes()));
        head.bytes.extend(tensor.stored.gguf().to_le_bytes());
        head.bytes.extend(offset.to_le_bytes());
        offset += aligned(tensor.bytes());
    }
    file.extend(head.bytes);
    while !(file.len() as u64).is_multiple_of(ALIGNMENT) {
        file.push(0);
    }
    file
}

fn shape(head: &mut Head, recipe: &Recipe) {
    let shape = recipe.shape;
    head.put_text("general.architecture", "llama");
    head.put_text("general.name", "synthetic");
    head.put_number("general.file_type", recipe.weights.file_type());
    head.put_number("llama.context_length", recipe.context);
    head.put_number("llama.embedding_length", shape.width);
    head.put_number("llama.block_count", shape.layers);
    head.put_number("llama.feed_forward_length", shape.inner);
    head.put_number("llama.attention.head_count", shape.heads);
    head.put_number("llama.attention.head_count_kv", shape.shared_heads);
    head.put_float("llama.attention.layer_norm_rms_epsilon", 1e-5);
    head.put_number("llama.rope.dimension_count", shape.width / shape.heads);
    head.put_float("llama.rope.freq_base", 500_000.0);
    head.put_number("llama.vocab_size", shape.vocabulary);
    if let Some(pooling) = recipe.pooling {
        head.put_number("llama.pooling_type", pooling);
    }
}

/// Bytes, four control tokens, and words that only the model says.
fn vocabulary(head: &mut Head, recipe: &Recipe) {
    let letters = byte_letters();
    let control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"].map(str::to_owned);
    let words = (0..recipe.shape.vocabulary - FIRST_WORD).map(|word| format!("\u{120}w{word}"));
    let tokens: Vec<String> = letters.iter().map(char::to_string).chain(control).chain(words).collect();
    head.put_text("tokenizer.ggml.model", "gpt2");
    head.put_text("tokenizer.ggml.pre", "gpt-2");
    head.put_texts("tokenizer.ggml.tokens", &tokens);
    head.array("tokenizer.ggml.token_type", 5, tokens.len());
    for id in (0_u32..).take(tokens.len()) {
        let (normal, control) = (1_i32, 3_i32);
        let kind = if (BEGIN..FIRST_WORD).contains(&id) { control } else { normal };
        head.bytes.extend(kind.to_le_bytes());
    }
    // The kernels want a merge; this one makes no token and so never happens.
    head.put_texts("tokenizer.ggml.merges", &[format!("{} {}", letters[0], letters[1])]);
    head.put_number("tokenizer.ggml.bos_token_id", BEGIN);
    head.put_number("tokenizer.ggml.eos_token_id", MESSAGE_END);
    head.put_number("tokenizer.ggml.padding_token_id", PAD);
    head.put_bool("tokenizer.ggml.add_bos_token", recipe.adds_bos);
    head.put_bool("tokenizer.ggml.add_eos_token", false);
    head.put_text("tokenizer.chat_template", TEMPLATE);
}

/// The letter that stands for each byte in byte-level vocabularies: printable Latin-1 as itself, the
/// rest from U+0100 on (GPT-2's `bytes_to_unicode`).
fn byte_letters() -> [char; 256] {
    let printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = '\u{100}'..;
    std::array::from_fn(|byte| {
        let byte = u8::try_from(byte).unwrap_or_default();
        if printable(byte) { char::from(byte) } else { others.next().unwrap_or(' ') }
    })
}
