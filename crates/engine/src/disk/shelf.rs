//! The directory: one file for each page, a salt, and nothing else of ours.
//!
//! The files are of prompts, so nobody else may read them: the directory is made with mode 0700 and what is in
//! it with 0600. A directory that others can write to is refused, since the kernels believe what they load.
//!
//! Several processes may share it, with the same model or with others. A file appears whole, by a rename, under
//! a name that says what it holds; whoever finds one gone computes instead. What is used last is a file's time
//! of change, so the bound and who goes first hold for all of them together; two that write in the same moment
//! may exceed it by a file each.
//!
//! The salt keys the hashes of tenants' names. It is drawn once and stays: so a tenant finds its own after a
//! restart, and no other can name a tenant that has the same hash.
//!
//! Invariant: nothing here fails a request; what goes wrong is said once in the log, until it goes well again.

use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

use firsttoken_logic::engine::shelf::{self, Page, PageName};
use serde::{Deserialize, Serialize};

use super::{PAGES_MAX, page};

/// Most bytes of a directory, unless said otherwise.
pub const BYTES_MAX: u64 = 8 << 30;
/// Length of the salt.
const SALT_BYTES: usize = 32;
const SALT: &str = "salt";
/// Endings of our files, and of those that are being written.
const ENDING: &str = "kv";
const UNFINISHED: &str = "tmp";

/// What keys the hashes of tenants' names.
pub type Salt = [u8; SALT_BYTES];

/// Where prefixes are kept, and how much of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvDir {
    /// The directory; it is made where there is none.
    pub path: PathBuf,
    /// Most bytes of all its files.
    pub bytes_max: u64,
}

/// Why a directory cannot keep prefixes.
#[derive(Debug, thiserror::Error)]
#[error("--kv-dir {}: {what}", path.display())]
pub struct ShelfError {
    /// Which directory.
    pub path: PathBuf,
    /// What is wrong, and what to do.
    pub what: String,
}

/// An open directory.
#[derive(Debug)]
pub struct Shelf {
    dir: KvDir,
    salt: Salt,
    /// The last write failed, and that was said.
    failed: AtomicBool,
}

/// A file that was found.
struct Found {
    path: PathBuf,
    file: shelf::File<SystemTime>,
}

impl Shelf {
    /// Opens a directory, or makes it.
    ///
    /// # Errors
    /// When it cannot be made or read, is no directory, or others can write to it.
    pub fn open(dir: KvDir) -> Result<Self, ShelfError> {
        let wrong = |what: String| ShelfError { path: dir.path.clone(), what };
        private_dir(&dir.path).map_err(|error| wrong(format!("cannot be made: {error}")))?;
        let mode = mode(&dir.path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        if mode & 0o022 != 0 {
            return Err(wrong(format!(
                "others can write to it (mode {:o}), and what is loaded from there is believed: chmod 700 it",
                mode & 0o777
            )));
        }
        let salt = salt(&dir.path).map_err(|error| wrong(format!("its salt cannot be had: {error}")))?;
        Ok(Self { dir, salt, failed: AtomicBool::new(false) })
    }

    /// What keys the hashes of tenants' names: secret, and the same as long as the directory is.
    #[must_use]
    pub const fn salt(&self) -> &Salt {
        &self.salt
    }

    /// The pages of kernels with this fingerprint, the last used first. Only their heads are read; a file that
    /// is none goes, and those of other kernels are left to age.
    #[must_use]
    pub fn index(&self, fingerprint: u64) -> Vec<Page> {
        let mut files = self.files().unwrap_or_else(|error| {
            tracing::warn!(dir = %self.dir.path.display(), %error, "prefixes on disk cannot be read");
            Vec::new()
        });
        files.retain(|found| found.path.extension().is_some_and(|ending| ending == ENDING));
        files.sort_by_key(|found| std::cmp::Reverse(found.file.used));
        let ours = format!("{fingerprint:016x}-");
        let (ours, others): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|found| text(&found.path).starts_with(&ours));
        let (mut pages, mut damaged) = (Vec::new(), 0);
        for found in ours.into_iter().take(PAGES_MAX) {
            // One that has gone meanwhile is nobody's.
            let Ok(mut file) = File::open(&found.path) else { continue };
            match head(&mut file, fingerprint) {
                Some((page, _)) => pages.push(page),
                None => {
                    damaged += 1;
                    let _ = std::fs::remove_file(&found.path);
                }
            }
        }
        let (dir, sound, foreign) = (self.dir.path.display(), pages.len(), others.len());
        if damaged > 0 {
            tracing::warn!(%dir, damaged, "damaged prefixes on disk were thrown away");
        }
        tracing::info!(%dir, sound, foreign, "prefixes on disk; foreign ones are of other models or builds");
        pages
    }

    /// Writes a page, making room for it. Whether it is there.
    #[must_use]
    pub fn write(&self, fingerprint: u64, page: &Page, bytes: &[u8]) -> bool {
        let written = self.try_write(fingerprint, page, bytes);
        let failed = self.failed.swap(written.is_err(), Relaxed);
        if let Err(error) = &written
            && !failed
        {
            let dir = self.dir.path.display();
            tracing::warn!(%dir, %error, "a prefix was not written to disk; said once until one is");
        }
        written.is_ok()
    }

    fn try_write(&self, fingerprint: u64, page: &Page, bytes: &[u8]) -> io::Result<()> {
        let head = page::head(fingerprint, page, bytes.len());
        let files = self.files()?;
        let sizes: Vec<_> = files.iter().map(|found| found.file).collect();
        let room = (head.len() + bytes.len()) as u64;
        let victims = shelf::victims(&sizes, room, self.dir.bytes_max).ok_or_else(|| {
            io::Error::other(format!("{room} bytes are more than the directory may have in all"))
        })?;
        for victim in victims {
            // Another process may have been quicker.
            let _ = std::fs::remove_file(&files[victim].path);
        }
        let unfinished = self.unfinished();
        let written = private_file(&unfinished).and_then(|mut file| {
            file.write_all(&head)?;
            file.write_all(bytes)?;
            std::fs::rename(&unfinished, self.path(fingerprint, &page.name))
        });
        written.inspect_err(|_| _ = std::fs::remove_file(&unfinished))
    }

    /// Reads a page whose bytes are `sound`. None where it has gone; one that is damaged goes now.
    #[must_use]
    pub fn read(
        &self,
        fingerprint: u64,
        name: &PageName,
        sound: impl Fn(&[u8]) -> bool,
    ) -> Option<(Page, Vec<u8>)> {
        let path = self.path(fingerprint, name);
        let mut file = File::open(&path).ok()?;
        let read = head(&mut file, fingerprint).and_then(|(page, len)| {
            let mut bytes = Vec::with_capacity(usize::try_from(len).ok()?);
            file.read_to_end(&mut bytes).ok()?;
            // Where the file is not ours to touch, it ages.
            let _ = file.set_modified(now());
            (page.name == *name && sound(&bytes)).then_some((page, bytes))
        });
        if read.is_none() {
            tracing::warn!(file = %path.display(), "a damaged prefix on disk was thrown away");
            let _ = std::fs::remove_file(&path);
        }
        read
    }

    /// A page has been of use.
    pub fn touch(&self, fingerprint: u64, name: &PageName) {
        // One that has gone is found out when it is read.
        let _ = File::open(self.path(fingerprint, name)).and_then(|file| file.set_modified(now()));
    }

    fn path(&self, fingerprint: u64, name: &PageName) -> PathBuf {
        let PageName { digest, range } = name;
        let name = format!("{fingerprint:016x}-{:016x}-{}-{}.{ENDING}", digest.0, range.start, range.end);
        self.dir.path.join(name)
    }

    /// A name that nobody else has.
    fn unfinished(&self) -> PathBuf {
        unique(&self.dir.path)
    }

    /// Our files, those that are being written too.
    fn files(&self) -> io::Result<Vec<Found>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.dir.path)? {
            let path = entry?.path();
            let ours = path.extension().is_some_and(|ending| ending == ENDING || ending == UNFINISHED);
            // One that has gone meanwhile takes no room.
            let Some(data) = ours.then(|| std::fs::symlink_metadata(&path).ok()).flatten() else { continue };
            let used = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let start = text(&path).split('-').nth(2).and_then(|start| start.parse().ok()).unwrap_or(0);
            files.push(Found { path, file: shelf::File { used, start, bytes: data.len() } });
        }
        Ok(files)
    }
}

/// A page, read up to its bytes, and their length.
fn head(file: &mut File, fingerprint: u64) -> Option<(Page, u64)> {
    let file_bytes = file.metadata().ok()?.len();
    page::read(file, file_bytes, fingerprint)
}

fn text(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_stem().unwrap_or_default().to_string_lossy()
}

/// Now, as files are stamped.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

fn unique(dir: &Path) -> PathBuf {
    dir.join(format!("{:016x}.{UNFINISHED}", RandomState::new().build_hasher().finish()))
}

/// A salt of no directory.
///
/// # Errors
/// When the system has no random bytes.
pub fn draw_salt() -> io::Result<Salt> {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(salt)
}

/// The salt of a directory, drawn where there is none.
fn salt(dir: &Path) -> io::Result<Salt> {
    let path = dir.join(SALT);
    let read = || {
        let salt = std::fs::read(&path)?;
        let length = || io::Error::new(ErrorKind::InvalidData, format!("{} is cut", path.display()));
        salt.try_into().map_err(|_| length())
    };
    match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let salt = draw_salt()?;
            // Linked when it is whole: of two processes at the same time both have the first one's.
            let unfinished = unique(dir);
            let linked = private_file(&unfinished).and_then(|mut file| {
                file.write_all(&salt)?;
                file.sync_all()?;
                std::fs::hard_link(&unfinished, &path)
            });
            let _ = std::fs::remove_file(&unfinished);
            match linked {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                Ok(()) | Err(_) => read(),
            }
        }
        read => read,
    }
}

#[cfg(unix)]
fn private_dir(path: &Path) -> io::Result<()> {
    std::os::unix::fs::DirBuilderExt::mode(&mut DirBuilder::new(), 0o700).recursive(true).create(path)
}

#[cfg(not(unix))]
fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

/// Who may do what with a directory; where there are no such modes, its owner alone.
#[cfg(unix)]
fn mode(path: &Path) -> io::Result<u32> {
    std::fs::metadata(path).map(|data| std::os::unix::fs::MetadataExt::mode(&data))
}

#[cfg(not(unix))]
fn mode(path: &Path) -> io::Result<u32> {
    std::fs::metadata(path).map(|_| 0o700)
}

/// A new file that only we can read.
fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
