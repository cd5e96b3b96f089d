//! Which file of a hub's repository is meant by `user/repo:QUANT`, and what its checksum is.
//!
//! The hub lists a repository's files with the checksums of the large ones
//! (<https://huggingface.co/docs/hub/api>, `GET /api/models/{repo}?blobs=true`).
//!
//! Invariant: exactly one file is chosen, or the choice is left to the person who asked.

use http::Uri;
use serde::Deserialize;

use super::address::{address, place, shown};
use super::fetch::Web;
use super::{Checksum, Error, Target};
use crate::cache::GGUF;

/// Longest answer about a repository.
const LISTING_BYTES_MAX: usize = 16 << 20;
/// What is taken where nobody said, and several files are there: what most take.
const USUAL: &str = "Q4_K_M";
/// Files that an error names.
const SHOWN_MAX: usize = 40;
/// Words in the names of files that accompany a model.
const ACCOMPANY: [&str; 2] = ["mmproj", "imatrix"];

/// What a hub says of a repository.
#[derive(Deserialize)]
struct Listing {
    siblings: Vec<File>,
}

/// A file of it.
#[derive(Deserialize)]
struct File {
    rfilename: String,
    lfs: Option<Large>,
}

/// What is said of a large file.
#[derive(Deserialize)]
struct Large {
    sha256: Option<String>,
}

/// Asks the hub at `base` for the file of `repo` that `quant` names.
pub(super) async fn target(web: &Web, base: &str, repo: &str, quant: Option<&str>) -> Result<Target, Error> {
    let uri = address(&format!("{base}/api/models/{repo}?blobs=true"))?;
    let body = web.read(&uri, LISTING_BYTES_MAX).await?;
    let wrong = |why: String| Error::Answer { address: shown(&uri), why };
    let listing: Listing =
        serde_json::from_slice(&body).map_err(|error| wrong(format!("it lists no files ({error})")))?;
    let file = choose(repo, &listing.siblings, quant)?;
    let path = encoded(&file.rfilename);
    let place = place(repo, &path).map_err(|why| wrong(format!("`{}`: {why}", file.rfilename)))?;
    let uri: Uri = address(&format!("{base}/{repo}/resolve/main/{path}"))?;
    let sha256 = file.lfs.as_ref().and_then(|large| large.sha256.as_deref());
    let checksum = sha256.map(str::parse).transpose().map_err(|error: Error| wrong(error.to_string()))?;
    Ok(Target { uri, place, checksum })
}

/// The one file that is meant.
fn choose<'a>(repo: &str, files: &'a [File], quant: Option<&str>) -> Result<&'a File, Error> {
    let is_model = |file: &&File| {
        file.rfilename.ends_with(GGUF) && !ACCOMPANY.iter().any(|word| file.rfilename.contains(word))
    };
    let models: Vec<&File> = files.iter().filter(is_model).collect();
    let fitting: Vec<&File> = match (quant, &models[..]) {
        (None, [only]) => vec![only],
        _ => {
            let quant = quant.unwrap_or(USUAL);
            models.iter().filter(|file| is_quant(&file.rfilename, quant)).copied().collect()
        }
    };
    let choice = |why: &'static str| {
        let names = models.iter().map(|file| file.rfilename.as_str());
        let mut there: Vec<_> = names.clone().take(SHOWN_MAX).collect();
        if names.len() > SHOWN_MAX {
            there.push("…");
        }
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        Err(Error::Choice { repo: repo.to_owned(), why, there })
    };
    match fitting[..] {
        [file] if unsplit(&file.rfilename).is_none() => Ok(file),
        [] if models.is_empty() => choice("it has no GGUF file"),
        [] if quant.is_none() => choice("it has several; say which with `:QUANT`"),
        [] => choice("it has no such file"),
        _ if fitting.iter().all(|file| unsplit(&file.rfilename).is_some()) => {
            choice("that model is split into several files, which is not fetched; take one in one file")
        }
        _ => choice("several fit; give a file's whole name after the colon"),
    }
}

/// Whether `path` is the file, or holds the quantisation, that `quant` names: the last word of its name.
pub(crate) fn is_quant(path: &str, quant: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    if file.eq_ignore_ascii_case(quant) {
        return true;
    }
    let Some(stem) = file.strip_suffix(GGUF) else { return false };
    let stem = unsplit(path).unwrap_or(stem);
    let Some(at) = stem.len().checked_sub(quant.len()) else { return false };
    let (Some(before), Some(last)) = (stem.get(..at), stem.get(at..)) else { return false };
    !quant.is_empty()
        && last.eq_ignore_ascii_case(quant)
        && (before.is_empty() || before.ends_with(['-', '.', '_']))
}

/// The stem of a part of a model, `m` of `m-00001-of-00003.gguf`; `None` for a model in one file.
fn unsplit(path: &str) -> Option<&str> {
    let stem = path.rsplit('/').next()?.strip_suffix(GGUF)?;
    let (before, count) = stem.rsplit_once("-of-")?;
    let (name, number) = before.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(count) && digits(number)).then_some(name)
}

/// A file's path for an address: what is not plain is percent-encoded, part by part.
fn encoded(path: &str) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'/');
    utf8_percent_encode(path, PLAIN).to_string()
}

impl std::str::FromStr for Checksum {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::NoChecksum(text.chars().take(80).collect());
        let text = text.strip_prefix("sha256:").unwrap_or(text);
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let digits = &text[2 * at..2 * at + 2];
            // `from_str_radix` takes a sign, too.
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hex).ok_or_else(wrong)?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Vec<File> {
        names.iter().map(|name| File { rfilename: (*name).to_owned(), lfs: None }).collect()
    }

    fn chosen(names: &[&str], quant: Option<&str>) -> Result<String, String> {
        let files = files(names);
        choose("u/r", &files, quant).map(|file| file.rfilename.clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn one_file_is_chosen_or_none() {
        let repo = ["README.md", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "sub/m.q8_0.gguf", "mmproj-m-Q8_0.gguf"];
        assert_eq!(chosen(&repo, None).unwrap(), "m-Q4_K_M.gguf");
        assert_eq!(chosen(&repo, Some("q4_k_s")).unwrap(), "m-Q4_K_S.gguf");
        assert_eq!(chosen(&repo, Some("Q8_0")).unwrap(), "sub/m.q8_0.gguf");
        assert_eq!(chosen(&repo, Some("m-Q4_K_M.gguf")).unwrap(), "m-Q4_K_M.gguf");
        assert_eq!(chosen(&["only-F16.gguf"], None).unwrap(), "only-F16.gguf");
        assert!(chosen(&repo, Some("Q4_K")).unwrap_err().contains("no such file"));
        assert!(chosen(&repo, Some("8_0")).unwrap_err().contains("no such file"));
        assert!(chosen(&["README.md"], None).unwrap_err().contains("no GGUF file"));
        assert!(chosen(&["a-F16.gguf", "b-F16.gguf"], None).unwrap_err().contains("say which"));
        assert!(chosen(&["a-F16.gguf", "b-F16.gguf"], Some("F16")).unwrap_err().contains("several fit"));
        let split = ["a-F16-00001-of-00002.gguf", "a-F16-00002-of-00002.gguf"];
        assert!(chosen(&split, Some("F16")).unwrap_err().contains("split"));
        assert!(chosen(&split[..1], None).unwrap_err().contains("split"));
    }

    #[test]
    fn a_checksum_is_64_digits() {
        let hex = "0123456789abcdefABCDEF".repeat(3)[..64].to_owned();
        let checksum: Checksum = hex.parse().unwrap();
        assert_eq!(checksum.to_string(), hex.to_lowercase());
        assert_eq!(format!("sha256:{hex}").parse::<Checksum>().unwrap(), checksum);
        for text in ["", "0", &hex[1..], &format!("{hex}0"), &hex.replace('0', "g"), &hex.replace("01", "+1")]
        {
            assert!(text.parse::<Checksum>().is_err(), "{text}");
        }
    }

    #[test]
    fn paths_are_encoded_part_by_part() {
        assert_eq!(encoded("a b/ü#?.gguf"), "a%20b/%C3%BC%23%3F.gguf");
        assert_eq!(encoded("../%2e%2e/m.gguf"), "../%252e%252e/m.gguf");
    }
}
