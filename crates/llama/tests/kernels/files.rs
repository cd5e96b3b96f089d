//! Files that are no model, or no longer one: errors, and the process lives.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use firsttoken_llama::gguf::Kind;
use firsttoken_llama::{Context, Embedder, Error, Level, Load, Markup, Model, set_log};
use firsttoken_synth::Recipe;

use crate::rig::{TempFile, replaced, rows, settings, with_key};

fn kind(outcome: Result<Model, Error>) -> Kind {
    match outcome {
        Err(Error::File { problem, .. }) => problem.kind,
        other => panic!("{other:?}"),
    }
}

fn nano() -> Vec<u8> {
    Recipe::default().bytes().expect("the recipe is sound")
}

#[test]
fn what_is_missing_or_something_else() {
    let missing = Model::load(Path::new("no/such/file.gguf"), Load::default(), |_| true);
    let said = missing.expect_err("there is no such file").to_string();
    assert!(said.starts_with("no/such/file.gguf: "), "{said}");
    assert!(Model::load(&std::env::temp_dir(), Load::default(), |_| true).is_err(), "a folder");
    for bytes in [&b""[..], b"GG", b"hello, world, this is no model", &[0; 4096]] {
        assert_eq!(kind(TempFile::new(bytes).load()), Kind::NotGguf);
    }
}

#[test]
fn a_file_that_was_cut_anywhere() {
    let whole = nano();
    for part in 1..64 {
        let cut = &whole[..whole.len() * part / 64];
        assert_eq!(kind(TempFile::new(cut).load()), Kind::Truncated, "at {part}/64");
    }
    assert_eq!(kind(TempFile::new(&whole[..whole.len() - 1]).load()), Kind::Truncated);
    TempFile::new(&whole).load().expect("the whole file is sound");
}

#[test]
fn a_model_with_one_other_tensor_is_another_model() {
    let whole = nano();
    let model = TempFile::new(&whole).load().expect("the model is sound");
    assert_eq!(TempFile::new(&whole).load().expect("the same").fingerprint(), model.fingerprint());
    for start in &model.header().starts {
        let mut other = whole.clone();
        other[usize::try_from(*start).expect("a small file")] ^= 1;
        let other = TempFile::new(&other).load().expect("the model is sound");
        assert_ne!(other.fingerprint(), model.fingerprint(), "the tensor at {start}");
    }
    assert_eq!(model.header().starts.len() as u64, model.header().tensors.count);
}

#[test]
fn a_model_of_an_unknown_kind() {
    let said = |bytes: &[u8]| TempFile::new(bytes).load().expect_err("unknown").to_string();
    let unknown = said(&replaced(nano(), b"llama", b"klama"));
    assert!(unknown.contains("unknown model architecture: 'klama'"), "{unknown}");
    let renamed = said(&replaced(nano(), b"blk.1.attn_q.weight", b"blk.1.attn_z.weight"));
    assert!(renamed.contains("blk.1.attn_q.weight"), "{renamed}");
    let tokenizer = said(&replaced(nano(), b"gpt-2", b"gpt-9"));
    assert!(tokenizer.contains("gpt-9"), "{tokenizer}");
}

#[test]
fn the_log_goes_where_it_is_sent() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    let hook = |level, line: &str| {
        assert!(!line.ends_with('\n'));
        if level == Level::Error {
            SEEN.fetch_add(1, Ordering::Relaxed);
        }
    };
    assert!(set_log(hook));
    assert!(!set_log(hook), "the first stays");
    TempFile::new(&replaced(nano(), b"llama", b"klama")).load().expect_err("unknown");
    assert!(SEEN.load(Ordering::Relaxed) > 0);
}

#[test]
fn models_that_do_not_write() {
    let refused = |file: Vec<u8>| TempFile::new(&file).load().expect_err("it is refused").to_string();
    let text =
        |text: &str| [&8_u32.to_le_bytes()[..], &(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    assert!(refused(with_key(nano(), "general.type", &text("adapter"))).contains("accompanies a model"));
    let number = |number: u32| [4_u32.to_le_bytes(), number.to_le_bytes()].concat();
    assert!(refused(with_key(nano(), "split.count", &number(2))).contains("gguf-split --merge"));
    assert!(refused(with_key(nano(), "llama.expert_count", &number(8))).contains("experts"));
    // One that reads a text whole loads, makes embeddings, and writes nothing.
    let whole = with_key(nano(), "llama.attention.causal", &[7, 0, 0, 0, 0]);
    let model = TempFile::new(&whole).load().expect("sound");
    let made = Context::new(&model, settings());
    assert!(matches!(made, Err(Error::Unable(_))), "{made:?}");
    let mut embedder = Embedder::new(&model, 64, settings().threads).expect("small");
    assert!(embedder.embed(&[65; 64]).expect("sound").is_some());
}

#[test]
fn loading_can_be_watched_and_stopped() {
    let file = TempFile::new(&nano());
    let mut seen = Vec::new();
    Model::load(&file.0, Load::default(), |part| {
        seen.push(part);
        true
    })
    .expect("sound");
    assert!(seen.is_sorted() && seen.last() == Some(&1.0), "{seen:?}");
    let stopped = Model::load(&file.0, Load::default(), |_| false);
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    let panicked =
        Model::load(&file.0, Load { mmap: false, ..Load::default() }, |_| panic!("a watcher's fault"));
    assert!(matches!(panicked, Err(Error::Refused { .. })), "{panicked:?}");
}

#[test]
#[expect(clippy::print_stderr, reason = "should the process die, the last line names the place")]
fn any_changed_byte_of_the_header_is_survived() {
    let whole = nano();
    let weights = 2 * (2 * 320 * 64 + 2 * 36_864) + 4 * 5 * 64;
    let header = whole.len() - weights;
    // The tokens' own bytes are most of the header and matter least: some of them do.
    let tokens = whole.windows(21).position(|w| w == b"tokenizer.ggml.tokens").expect("it has tokens") + 300;
    let merges = whole.windows(21).position(|w| w == b"tokenizer.ggml.merges").expect("it has merges") - 64;
    let (mut refused, mut taken) = (0, 0);
    for at in (0..header).filter(|at| !(tokens..merges).contains(at) || at % 37 == 0) {
        for flip in [0x01, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            eprintln!("byte {at} changed by {flip:#x}");
            let Ok(model) = TempFile::new(&bytes).load() else {
                refused += 1;
                continue;
            };
            taken += 1;
            let text = model.tokenize("some text\n", Markup::Control).expect("short");
            let mut context = Context::new(&model, settings()).expect("a model that loads can be used");
            let computed = context.decode(&rows(0, 0, &text));
            assert!(computed.is_ok(), "{computed:?}");
        }
    }
    assert!(refused > 500 && taken > 500, "{refused} refused, {taken} taken");
}
