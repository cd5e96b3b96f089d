//! Writes what the fuzz targets begin with: the golden files of `wire` as their corpus, and all words in
//! them as a dictionary. Run it in `fuzz/`: `cargo run --release --example seed`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;

/// The folder of golden files of each dialect, in the order in which the targets choose.
const FOLDERS: [&str; 5] = ["openai_chat", "openai_responses", "anthropic", "typed", "openai_completions"];
/// The same of bodies of requests and whole answers: `golden/requests/<name>.json`.
const ASKED: [&str; 5] = ["openai_chat", "openai_responses", "anthropic", "typed", "ui"];

fn main() -> io::Result<()> {
    let golden = Path::new("../crates/wire/tests/golden");
    let mut words = BTreeSet::new();
    for (choice, folder) in (0_u8..).zip(FOLDERS) {
        for path in files(&golden.join(folder), "sse")? {
            let stream = fs::read(&path)?;
            lines(&stream).for_each(|value| gather(&value, &mut words));
            seed("streams", &path, &[choice, 85, 128, 170], &stream)?;
            seed("sse", &path, &[255, 85, 128, 170], &stream)?;
        }
    }
    for (kind, head) in [("requests", [0_u8, 0].as_slice()), ("answers", &[0, 1, 244])] {
        for path in files(&golden.join(kind), "json")? {
            let body = fs::read(&path)?;
            gather(&serde_json::from_slice(&body).unwrap_or_default(), &mut words);
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let place = ASKED.iter().position(|dialect| name.starts_with(dialect)).unwrap_or_default();
            let head = [&[u8::try_from(place).unwrap_or_default()], &head[1..]].concat();
            seed(kind, &path, &head, &body)?;
        }
    }
    fs::write("corpus/words.dict", words.into_iter().map(|word| word + "\n").collect::<String>())
}

fn files(folder: &Path, end: &str) -> io::Result<Vec<PathBuf>> {
    let all: io::Result<Vec<PathBuf>> = fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect();
    Ok(all?.into_iter().filter(|path| path.extension().is_some_and(|known| known == end)).collect())
}

/// One input: the choices of the target, and what it reads.
fn seed(target: &str, path: &Path, head: &[u8], body: &[u8]) -> io::Result<()> {
    let folder = Path::new("corpus").join(target);
    fs::create_dir_all(&folder)?;
    let name = path.iter().rev().take(2).map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("-");
    fs::write(folder.join(name), [head, body].concat())
}

/// The JSON in the data of a stream.
fn lines(stream: &[u8]) -> impl Iterator<Item = Value> {
    let data = stream.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    data.filter_map(|data| serde_json::from_slice(data).ok())
}

/// Every key and every short word, as libFuzzer's dictionaries have them.
fn gather(value: &Value, words: &mut BTreeSet<String>) {
    let plain = |word: &str| word.len() < 48 && word.bytes().all(|b| b.is_ascii_graphic() && !b"\"\\".contains(&b));
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if plain(key) {
                    words.insert(format!("\"\\\"{key}\\\":\""));
                }
                gather(value, words);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| gather(value, words)),
        Value::String(word) if plain(word) => {
            words.insert(format!("\"\\\"{word}\\\"\""));
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
