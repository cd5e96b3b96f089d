//! The folder of models that were fetched: where one lies, how it is named, and what is there.
//!
//! A model's name is the path of its file in the folder, without the ending: `user/repo/file`. The file
//! beside it, `….gguf.json`, says where it came from. Any other way to put a GGUF file into the folder is
//! as good.
//!
//! Invariant: no name leads out of the folder, and only what lies in it is ever removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::figures::{size, table, weights, whole};
use crate::kv;
use crate::pull::State;

/// Folders within folders that are looked through.
const DEPTH_MAX: usize = 16;
/// Models that are looked at.
const MODELS_MAX: usize = 10_000;
/// Longest part of a path in bytes; endings of ours still fit into the 255 of file systems.
const PART_BYTES_MAX: usize = 200;

/// Ends the name of a model file.
pub(crate) const GGUF: &str = ".gguf";
/// Ends the name of one that is being fetched.
pub(crate) const PARTIAL: &str = ".gguf.part";

/// The folder.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// A model file in the folder, whole or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is called.
    pub name: String,
    /// Where it lies.
    pub file: PathBuf,
    /// Whether it is there only in part.
    pub partial: bool,
}

/// Why there is no such model.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The folder cannot be read, or a file not removed.
    #[error("{}: {error}", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Nothing is called that.
    #[error("no model in {} is called `{name}`; {there}", folder.display())]
    Missing {
        /// What was asked for.
        name: String,
        /// Where it was looked for.
        folder: PathBuf,
        /// What there is.
        there: String,
    },
    /// Several models begin like that.
    #[error("`{name}` can be {}: give more of the name", names.join(", "))]
    Several {
        /// What was asked for.
        name: String,
        /// What it can be.
        names: Vec<String>,
    },
    /// A path to somewhere else.
    #[error("`{name}` is not in the folder of models {}; nothing else is removed", folder.display())]
    Outside {
        /// What was asked for.
        name: String,
        /// The folder.
        folder: PathBuf,
    },
    /// It is being fetched.
    #[error("`{0}` is being fetched right now; end that first")]
    Busy(String),
}

/// A part of a path that stands for a name and nothing else; `None` for what could lead elsewhere, what
/// is hidden, and what a terminal would not show.
#[must_use]
pub(crate) fn part(text: &str) -> Option<&str> {
    let plain = !text.contains(['/', '\\', ':']) && !text.chars().any(char::is_control);
    let names = !text.is_empty() && !text.starts_with(['.', '-', '~']) && text.len() <= PART_BYTES_MAX;
    (plain && names).then_some(text)
}

impl Cache {
    /// The models in `folder`, which need not exist yet.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The usual folder: below `$XDG_CACHE_HOME`, or else below `.cache` at home. `None` if there is
    /// neither. As the specification wants it, a relative path counts as none
    /// (<https://specifications.freedesktop.org/basedir-spec/latest/>).
    #[must_use]
    pub fn usual(environment: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let absolute =
            |name| environment(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(Self::new(base.join("firsttoken/models")))
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every model, by name. What cannot be read is left out, unless it is the folder itself.
    ///
    /// # Errors
    /// If the folder is there and cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, CacheError> {
        let mut entries = Vec::new();
        match walk(&self.folder, &mut Vec::new(), &mut entries) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.file(&self.folder, error)),
            _ => {
                entries.sort_by(|a, b| (&a.name, a.partial).cmp(&(&b.name, b.partial)));
                Ok(entries)
            }
        }
    }

    /// The model that `name` means: all of its name, or a beginning of it or of its last part that no
    /// other has, or `user/repo:QUANT` as it was fetched.
    ///
    /// # Errors
    /// If there is none, or several.
    pub fn find(&self, name: &str) -> Result<Entry, CacheError> {
        let entries: Vec<_> = self.entries()?.into_iter().filter(|entry| !entry.partial).collect();
        let begins = |entry: &Entry| entry.name.starts_with(name) || stem(&entry.name).starts_with(name);
        match self.choose(name, &entries) {
            Err(CacheError::Missing { .. }) if !name.is_empty() => self.one(name, &entries, &begins),
            chosen => chosen,
        }
    }

    /// Removes a model that `name` means in full, and what was fetched of it in part. A path to it does,
    /// too.
    ///
    /// # Errors
    /// If there is none, or it lies elsewhere, or is being fetched.
    pub fn remove(&self, name: &str) -> Result<Entry, CacheError> {
        let entries = self.entries()?;
        let chosen = match self.choose(name, &entries) {
            Err(CacheError::Missing { .. }) if name.contains("..") || Path::new(name).exists() => {
                self.by_path(name, &entries)
            }
            chosen => chosen,
        }?;
        for entry in entries.iter().filter(|entry| entry.name == chosen.name) {
            let busy = || CacheError::Busy(entry.name.clone());
            if entry.partial && fs::File::open(&entry.file).is_ok_and(|file| file.try_lock().is_err()) {
                return Err(busy());
            }
            fs::remove_file(&entry.file).map_err(|error| self.file(&entry.file, error))?;
            // What it came from may not be known, and a folder may hold more.
            let _ = fs::remove_file(State::beside(&entry.file));
        }
        let folders = chosen.file.ancestors().skip(1);
        for folder in folders.take_while(|folder| *folder != self.folder) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(chosen)
    }

    /// What is there, in a table.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn describe(&self) -> Result<String, CacheError> {
        let entries = self.entries()?;
        let folder = self.folder.display();
        if entries.is_empty() {
            return Ok(format!("No model is in {folder}; `firsttoken pull NAME` fetches one."));
        }
        let mut rows = vec![["name", "size", "architecture", "weights", "context"].map(str::to_owned)];
        let (mut notes, mut sum) = (String::new(), 0);
        for entry in &entries {
            let bytes = fs::metadata(&entry.file).map_or(0, |file| file.len());
            sum += bytes;
            let row = |a: String, b: String, c: String| [entry.name.clone(), size(bytes), a, b, c];
            let none = || "–".to_owned();
            if entry.partial {
                rows.push(row("(in part)".to_owned(), none(), none()));
                continue;
            }
            match kv::header(&entry.file) {
                Ok(header) => rows.push(row(
                    header.architecture.clone(),
                    weights(header.tensors.parameters),
                    header.shape("context_length").map_or_else(none, whole),
                )),
                Err(error) => {
                    rows.push(row("(damaged)".to_owned(), none(), none()));
                    notes.push_str(&format!("\n{error}"));
                }
            }
        }
        Ok(format!("{}\n{} in {folder}{notes}", table(&rows), size(sum)))
    }

    /// What `name` means in full: a name, its last part, or a hub's name.
    fn choose(&self, name: &str, entries: &[Entry]) -> Result<Entry, CacheError> {
        let name = name.strip_suffix(GGUF).unwrap_or(name);
        if let Some(entry) = entries.iter().find(|entry| entry.name == name) {
            return Ok(entry.clone());
        }
        match name.split_once(':') {
            Some((repo, quant)) => self.one(name, entries, &|entry| {
                entry.name.strip_prefix(repo).is_some_and(|rest| {
                    rest.starts_with('/') && crate::pull::is_quant(&format!("{rest}{GGUF}"), quant)
                })
            }),
            None => self.one(name, entries, &|entry| stem(&entry.name) == name),
        }
    }

    /// The one entry that `fits`.
    fn one(&self, name: &str, entries: &[Entry], fits: &dyn Fn(&Entry) -> bool) -> Result<Entry, CacheError> {
        let mut fitting: Vec<&Entry> = entries.iter().filter(|entry| fits(entry)).collect();
        fitting.dedup_by(|a, b| a.name == b.name);
        match fitting[..] {
            [entry] => Ok(entry.clone()),
            [] => Err(CacheError::Missing {
                name: name.to_owned(),
                folder: self.folder.clone(),
                there: there(entries),
            }),
            _ => Err(CacheError::Several {
                name: name.to_owned(),
                names: fitting.iter().map(|entry| entry.name.clone()).collect(),
            }),
        }
    }

    /// The entry whose file lies at the path `name`.
    fn by_path(&self, name: &str, entries: &[Entry]) -> Result<Entry, CacheError> {
        let outside = || CacheError::Outside { name: name.to_owned(), folder: self.folder.clone() };
        // A link in the folder is an entry itself; where it leads to is not.
        let path = Path::new(name);
        let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new(".")).canonicalize().map_err(|_| outside())?;
        let real = |entry: &&Entry| {
            entry.file.file_name() == path.file_name()
                && entry.file.parent().and_then(|at| at.canonicalize().ok()).as_ref() == Some(&folder)
        };
        entries.iter().find(real).cloned().ok_or_else(outside)
    }

    fn file(&self, path: &Path, error: io::Error) -> CacheError {
        CacheError::File { path: path.to_owned(), error }
    }
}

/// The last part of a name.
fn stem(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Which models there are, for somebody who asked for none of them.
fn there(entries: &[Entry]) -> String {
    const SHOWN_MAX: usize = 8;
    let names: Vec<&str> =
        entries.iter().filter(|entry| !entry.partial).map(|entry| entry.name.as_str()).collect();
    match names.len() {
        0 => "none is there: `firsttoken pull NAME` fetches one".to_owned(),
        count if count <= SHOWN_MAX => format!("there is {}", names.join(", ")),
        count => format!("there are {count}: `firsttoken models list` names them"),
    }
}

/// Adds the models below `folder`, whose name is `parts`. Links to folders are not followed.
fn walk(folder: &Path, parts: &mut Vec<String>, entries: &mut Vec<Entry>) -> io::Result<()> {
    for found in fs::read_dir(folder)?.flatten() {
        let (kind, file) = (found.file_type()?, found.path());
        let name = found.file_name();
        let Some(name) = name.to_str().and_then(part) else { continue };
        if kind.is_dir() && parts.len() < DEPTH_MAX {
            parts.push(name.to_owned());
            // One folder that cannot be read hides no other.
            let _ = walk(&file, parts, entries);
            parts.pop();
        }
        let whole = name.strip_suffix(GGUF);
        let Some(stem) = whole.or_else(|| name.strip_suffix(PARTIAL)) else { continue };
        if !kind.is_dir() && entries.len() < MODELS_MAX {
            let name = [parts.as_slice(), &[stem.to_owned()]].concat().join("/");
            entries.push(Entry { name, file, partial: whole.is_none() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use firsttoken_synth::Recipe;

    use super::*;

    /// A folder with these files, whole ones with a model in them.
    fn cache(files: &[&str]) -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("models"));
        for name in files {
            let file = cache.folder().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, Recipe::default().bytes().unwrap()).unwrap();
        }
        (folder, cache)
    }

    fn names(cache: &Cache) -> Vec<String> {
        cache.entries().unwrap().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn a_name_or_an_unambiguous_beginning_finds_a_model() {
        let (_folder, cache) = cache(&[
            "u/r/big-Q4_0.gguf",
            "u/r/big-Q8_0.gguf",
            "v/s/small.gguf",
            "small-2.gguf",
            "u/r/new.gguf.part",
        ]);
        let found = |name: &str| cache.find(name).map(|entry| entry.name);
        assert_eq!(found("u/r/big-Q4_0").unwrap(), "u/r/big-Q4_0");
        assert_eq!(found("big-Q8_0.gguf").unwrap(), "u/r/big-Q8_0");
        assert_eq!(found("u/r:q4_0").unwrap(), "u/r/big-Q4_0");
        assert_eq!(found("v/").unwrap(), "v/s/small");
        assert_eq!(found("big-Q4").unwrap(), "u/r/big-Q4_0");
        // All of a last part is more than a beginning.
        assert_eq!(found("small").unwrap(), "v/s/small");
        for several in ["big", "u/r/big", "u"] {
            assert!(matches!(found(several), Err(CacheError::Several { .. })), "{several}");
        }
        for none in ["", "q", "new", "u/r:Q5", "../models/small-2", "/", "ig-Q4_0", "u/r:"] {
            assert!(matches!(found(none), Err(CacheError::Missing { .. })), "{none}");
        }
        assert!(found("q").unwrap_err().to_string().contains("there is small-2, u/r/big-Q4_0"));
        let empty = Cache::new(cache.folder().join("nowhere"));
        assert!(empty.find("x").unwrap_err().to_string().contains("firsttoken pull"));
    }

    #[test]
    fn removing_takes_a_whole_name_and_what_belongs_to_it() {
        let (_folder, cache) = cache(&["u/r/a.gguf", "u/r/a.gguf.part", "u/r/ab.gguf", "v/b.gguf"]);
        fs::write(cache.folder().join("u/r/a.gguf.json"), "{}").unwrap();
        assert!(matches!(cache.remove("v"), Err(CacheError::Missing { .. })));
        assert_eq!(cache.remove("a").unwrap().name, "u/r/a");
        assert_eq!(names(&cache), ["u/r/ab", "v/b"]);
        assert_eq!(fs::read_dir(cache.folder().join("u/r")).unwrap().count(), 1);
        // Folders that nothing is left in go, too; a path is as good as a name.
        let path = cache.folder().join("v/../v/b.gguf");
        assert_eq!(cache.remove(path.to_str().unwrap()).unwrap().name, "v/b");
        assert!(!cache.folder().join("v").exists());
        assert!(cache.folder().exists());
    }

    #[test]
    fn nothing_outside_is_removed() {
        let (folder, cache) = cache(&["u/a.gguf", "../outside.gguf", "../other/a.gguf"]);
        std::os::unix::fs::symlink(folder.path().join("other"), cache.folder().join("linked")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("outside.gguf"), cache.folder().join("link.gguf"))
            .unwrap();
        let absolute = folder.path().join("outside.gguf");
        for name in [
            "../outside.gguf",
            "../outside",
            "u/../../outside.gguf",
            absolute.to_str().unwrap(),
            cache.folder().join("../other/a.gguf").to_str().unwrap(),
            cache.folder().join("linked/a.gguf").to_str().unwrap(),
            "..",
            "/",
            cache.folder().to_str().unwrap(),
        ] {
            assert!(matches!(cache.remove(name), Err(CacheError::Outside { .. })), "{name}");
        }
        assert_eq!(names(&cache), ["link", "u/a"]);
        // Of a link, the link goes.
        cache.remove("link").unwrap();
        assert!(absolute.exists() && folder.path().join("other/a.gguf").exists());
        assert_eq!(names(&cache), ["u/a"]);
    }

    #[test]
    fn the_usual_folder() {
        let usual = |cache: Option<&str>, home: Option<&str>| {
            let folder = Cache::usual(|name| {
                let value = if name == "HOME" { home } else { cache };
                value.map(str::to_owned)
            });
            folder.map(|cache| cache.folder().display().to_string())
        };
        assert_eq!(usual(Some("/c"), Some("/h")).unwrap(), "/c/firsttoken/models");
        assert_eq!(usual(Some("relative"), Some("/h")).unwrap(), "/h/.cache/firsttoken/models");
        assert_eq!(usual(None, Some("/h")).unwrap(), "/h/.cache/firsttoken/models");
        assert_eq!(usual(None, None), None);
    }

    #[test]
    fn the_table() {
        let (_folder, cache) = cache(&["u/r/m-F16.gguf", "u/r/cut.gguf", "v/half.gguf.part"]);
        fs::write(cache.folder().join("u/r/cut.gguf"), b"GGUF\x03").unwrap();
        let shown = |cache: &Cache| {
            cache.describe().unwrap().replace(&cache.folder().display().to_string(), "FOLDER")
        };
        insta::assert_snapshot!(shown(&cache));
        let empty = Cache::new(cache.folder().join("nowhere"));
        assert_eq!(shown(&empty), "No model is in FOLDER; `firsttoken pull NAME` fetches one.");
    }
}
