//! What the kernels take for granted in a model file: where they would assert, divide by nothing, or
//! read past an array, an error here comes first.
//!
//! Each check names a line of the kernels' `load_hparams` or `llama_vocab::load` in spirit; a new
//! release of theirs is a reason to read both again.
//!
//! Invariant: only what ends their process is checked; what they answer with an error is left to them.

use std::collections::HashSet;

use super::{Header, Kind, Problem, Value, kind};

/// Most layers.
const LAYERS_MAX: u64 = 512;
/// Most experts.
const EXPERTS_MAX: u64 = 512;

fn damaged(what: impl Into<String>) -> Problem {
    Problem { kind: Kind::Damaged, at: 0, what: what.into() }
}

/// Checks the tokens and what belongs to them.
pub(super) fn vocabulary(header: &Header, tokens: &[Vec<u8>]) -> Result<(), Problem> {
    let what = "the file has no vocabulary (`tokenizer.ggml.tokens`); text cannot become tokens";
    if tokens.is_empty() || matches!(header.text("tokenizer.ggml.model"), None | Some("no_vocab" | "none")) {
        return Err(Problem { kind: Kind::Unsupported, at: 0, what: what.to_owned() });
    }
    // The kernels' tokenizer of this family asserts on runs of spaces.
    if ["tokenizer.ggml.model", "tokenizer.ggml.pre"].iter().any(|key| header.text(key) == Some("whitespace"))
    {
        let what = "a vocabulary of the family `whitespace`, which the kernels cannot read safely";
        return Err(Problem { kind: Kind::Unsupported, at: 0, what: what.to_owned() });
    }
    // The kernels read tokens up to the first zero byte, and call an empty one by its number.
    let mut seen = HashSet::with_capacity(tokens.len());
    for (id, token) in tokens.iter().enumerate() {
        let text = token.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = if text.is_empty() { format!("[EMPTY_{id}]").into_bytes() } else { text.to_vec() };
        if !seen.insert(name) {
            return Err(damaged(format!("token {id} occurs twice in the vocabulary")));
        }
    }
    if header.text("tokenizer.ggml.model") == Some("llama") {
        // Text outside of the vocabulary is spelt in bytes; each must have a token.
        let lacks =
            |byte: &u8| !seen.contains(format!("<0x{byte:02X}>").as_bytes()) && !seen.contains(&[*byte][..]);
        if let Some(byte) = (0..=255).find(lacks) {
            return Err(damaged(format!("the vocabulary has no token for the byte {byte}")));
        }
    }
    beside_tokens(header, tokens.len() as u64)
}

/// Arrays with an element for each token must have that many.
fn beside_tokens(header: &Header, tokens: u64) -> Result<(), Problem> {
    for key in ["tokenizer.ggml.scores", "tokenizer.ggml.token_type"] {
        let elements = match header.values.get(key) {
            None => continue,
            Some(Value::Array { elements, of }) if *of != kind::TEXT => *elements,
            Some(Value::Numbers(numbers)) => numbers.len() as u64,
            Some(_) => return Err(damaged(format!("`{key}` is no array of numbers"))),
        };
        if elements != tokens {
            return Err(damaged(format!("`{key}` has {elements} elements for {tokens} tokens")));
        }
    }
    Ok(())
}

/// Checks layers, heads, experts and what else shapes the computation.
pub(super) fn shape(header: &Header) -> Result<(), Problem> {
    let layers = within(header, "block_count", 1, LAYERS_MAX)?;
    within(header, "context_length", 1, 1 << 30)?;
    let width = within(header, "embedding_length", 1, 1 << 24)?;
    if header.shape("nextn_predict_layers").is_some_and(|ahead| ahead > layers) {
        return Err(damaged("more layers predict ahead than there are"));
    }
    heads(header, width)?;
    experts(header)?;
    let scaling = header.text(&format!("{}.rope.scaling.type", header.architecture));
    if !matches!(scaling, None | Some("none" | "linear" | "yarn" | "longrope")) {
        return Err(damaged(format!("`{}` is no way to scale positions", scaling.unwrap_or_default())));
    }
    for name in ["layer_norm_rms_epsilon", "layer_norm_epsilon"] {
        let key = format!("{}.attention.{name}", header.architecture);
        if let Some(Value::Float(epsilon)) = header.values.get(&key)
            && !(epsilon.is_finite() && *epsilon >= 0.0)
        {
            return Err(damaged(format!("`{key}` is {epsilon}")));
        }
    }
    if header.shape("pooling_type").is_some_and(|pooling| pooling > 4) {
        return Err(damaged("the way to pool embeddings is none that there is"));
    }
    Ok(())
}

/// A number that must be there, within bounds.
fn within(header: &Header, name: &str, least: u64, most: u64) -> Result<u64, Problem> {
    match header.shape(name) {
        Some(number) if (least..=most).contains(&number) => Ok(number),
        Some(number) => Err(damaged(format!("`{}.{name}` is {number}", header.architecture))),
        None => Err(damaged(format!("`{}.{name}` is missing", header.architecture))),
    }
}

/// Attention: heads share keys and values evenly, and positions turn pairs of values.
fn heads(header: &Header, width: u64) -> Result<(), Problem> {
    for layer in 0..header.layers() {
        let heads = header.shape_of_layer("attention.head_count", layer).unwrap_or_default();
        let shared = header.shape_of_layer("attention.head_count_kv", layer).unwrap_or(heads);
        let uneven = shared > 0 && !heads.is_multiple_of(shared);
        let one_for_all = header.shape("attention.head_count_kv").is_some();
        if heads > 1 << 16 || shared > heads || uneven || (heads > 0 && shared == 0 && one_for_all) {
            return Err(damaged(format!("{heads} heads cannot share {shared} keys in layer {layer}")));
        }
    }
    let heads = header.shape_of_layer("attention.head_count", 0).unwrap_or_default();
    if heads == 0 {
        return Ok(());
    }
    let key = header.shape("attention.key_length").unwrap_or(width / heads);
    let value = header.shape("attention.value_length").unwrap_or(width / heads);
    let turned = header.shape("rope.dimension_count").unwrap_or(key);
    if key == 0 || value == 0 || key > 1 << 16 || value > 1 << 16 || turned > key || !turned.is_multiple_of(2)
    {
        return Err(damaged(format!("heads of {key} and {value} values of which {turned} turn cannot be")));
    }
    Ok(())
}

/// Mixtures of experts: some of those that there are, in groups of one size.
fn experts(header: &Header) -> Result<(), Problem> {
    let number = |name: &str| header.shape(name).unwrap_or_default();
    let (all, groups, groups_used) =
        (number("expert_count"), number("expert_group_count"), number("expert_group_used_count"));
    let used = (0..header.layers())
        .filter_map(|layer| header.shape_of_layer("expert_used_count", layer))
        .max()
        .unwrap_or_default();
    let sound = if all == 0 {
        used == 0 && groups == 0
    } else {
        let grouped = groups <= 1 || (all % groups == 0 && (1..groups).contains(&groups_used));
        all <= EXPERTS_MAX && (1..=all).contains(&used) && groups < all && grouped
    };
    if sound {
        return Ok(());
    }
    Err(damaged(format!("{used} of {all} experts in {groups} groups cannot be")))
}
