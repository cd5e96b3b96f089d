//! A file that is not whole yet, and what is known about where it comes from.
//!
//! It lies beside where the model will, under a name that no reader of models takes for one. It is
//! hashed as it grows; what was there before is hashed first.
//!
//! Invariant: one process at a time writes to it. The model's own name appears by a rename, when all of
//! it is on the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Checksum, Error};
use crate::figures::size;

/// What a file begins with if it is a model's.
const MAGIC: &[u8; 4] = b"GGUF";
/// Longest file that says where another came from.
const STATE_BYTES_MAX: u64 = 1 << 16;

/// Where a file came from; kept beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The address that was asked for.
    pub(super) address: String,
    /// What the server calls this version of it, if it promises to name another one differently.
    pub(super) etag: Option<String>,
    /// Its length.
    pub(super) bytes: u64,
    /// The checksum that it must have, or has.
    pub(super) sha256: Option<String>,
}

impl State {
    /// Where the state of `file` is kept.
    pub(crate) fn beside(file: &Path) -> PathBuf {
        let mut name = file.as_os_str().to_owned();
        name.push(".json");
        name.into()
    }

    /// What is known of `file`; nothing if that cannot be read.
    pub(super) fn read(file: &Path) -> Option<Self> {
        let mut text = Vec::new();
        File::open(Self::beside(file)).ok()?.take(STATE_BYTES_MAX).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn write(&self, file: &Path) -> io::Result<()> {
        fs::write(Self::beside(file), serde_json::to_vec(self)?)
    }
}

/// The file.
pub(super) struct Partial {
    path: PathBuf,
    file: File,
    bytes: u64,
    hash: Sha256,
    /// Where it comes from, as far as that is known.
    pub(super) state: State,
}

impl Partial {
    /// Opens what there is of `path`, or begins it. It goes on only if it came from `address`.
    pub(super) fn open(path: PathBuf, address: &str) -> Result<Self, Error> {
        let wrong = |error| Error::File { path: path.clone(), error };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(wrong)?;
        }
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = options.map_err(wrong)?;
        // Who had the lock until now may have given the file its own name.
        let is_same = |there: fs::Metadata| {
            file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        if file.try_lock().is_err() || !fs::metadata(&path).is_ok_and(is_same) {
            return Err(Error::Busy(path));
        }
        let state = State::read(&path).filter(|state| state.address == address).unwrap_or_default();
        let mut partial = Self { path, file, bytes: 0, hash: Sha256::new(), state };
        if partial.state.address.is_empty() {
            partial.restart()?;
        }
        if let Err(error) = partial.hash_what_is_there() {
            return Err(partial.wrong(error));
        }
        if partial.bytes > partial.state.bytes {
            partial.restart()?;
        }
        partial.state.address = address.to_owned();
        Ok(partial)
    }

    /// How much of it is there.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether all of it is there.
    pub(super) const fn is_whole(&self) -> bool {
        self.bytes > 0 && self.bytes == self.state.bytes
    }

    /// Begins anew.
    pub(super) fn restart(&mut self) -> Result<(), Error> {
        if self.file.metadata().is_ok_and(|file| file.len() > 0) {
            self.file.set_len(0).map_err(|error| self.wrong(error))?;
        }
        self.file.rewind().map_err(|error| self.wrong(error))?;
        (self.bytes, self.hash) = (0, Sha256::new());
        self.state = State { address: std::mem::take(&mut self.state.address), ..State::default() };
        Ok(())
    }

    /// What the server says of the file. Room for what is missing must be on the disk.
    pub(super) fn promise(&mut self, state: State) -> Result<(), Error> {
        let missing = state.bytes.saturating_sub(self.bytes);
        // A system that does not say how much there is will say when there is none.
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        if let Ok(disk) = rustix::fs::statvfs(folder) {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            if missing > free {
                let why = format!("{} more are needed and {} are free", size(missing), size(free));
                return Err(Error::Full { path: self.path.clone(), why });
            }
        }
        self.state = state;
        self.state.write(&self.path).map_err(|error| self.wrong(error))
    }

    /// Adds to it. The first bytes must be those of a model: nobody waits an hour for a page of errors.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.bytes.saturating_add(bytes.len() as u64) > self.state.bytes {
            let why = format!("it sends more than the {} bytes that it announced", self.state.bytes);
            return Err(Error::Answer { address: self.address(), why });
        }
        let checks = self.bytes < MAGIC.len() as u64;
        self.file.write_all(bytes).map_err(|error| self.wrong(error))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        let mut first = [0; MAGIC.len()];
        if checks && self.file.read_exact_at(&mut first, 0).is_ok() && first != *MAGIC {
            self.remove();
            let hint = "no GGUF file; a page about a file, or a pointer to one, has another address";
            return Err(Error::NoModel { address: self.address(), why: hint.to_owned() });
        }
        Ok(())
    }

    /// The checksum of all that is there.
    pub(super) fn checksum(&self) -> Checksum {
        Checksum(self.hash.clone().finalize().into())
    }

    /// Where it comes from, for a person.
    pub(super) fn address(&self) -> String {
        self.state.address.split('?').next().unwrap_or_default().to_owned()
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its own name, when all of it has reached the disk.
    pub(super) fn finish(self, whole: &Path) -> Result<(), Error> {
        let kept = || -> io::Result<()> {
            self.file.sync_all()?;
            self.state.write(&self.path)?;
            fs::rename(&self.path, whole)?;
            fs::rename(State::beside(&self.path), State::beside(whole))?;
            whole.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        };
        kept().map_err(|error| self.wrong(error))
    }

    /// Gives up what is there.
    pub(super) fn remove(&self) {
        // What stays is begun anew next time, or refused again.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(State::beside(&self.path));
    }

    fn hash_what_is_there(&mut self) -> io::Result<()> {
        let mut left = self.file.metadata()?.len();
        let mut piece = vec![0; 1 << 20];
        while left > 0 {
            let wanted = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
            self.file.read_exact(&mut piece[..wanted])?;
            self.hash.update(&piece[..wanted]);
            self.bytes += wanted as u64;
            left -= wanted as u64;
        }
        Ok(())
    }

    fn wrong(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Error::Full { path: self.path.clone(), why: error.to_string() }
            }
            _ => Error::File { path: self.path.clone(), error },
        }
    }
}
