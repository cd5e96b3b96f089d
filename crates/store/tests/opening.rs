//! Whose file it is, and what is said where it cannot be had.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use firsttoken_store::jobs::{JobId, NewJob};
use firsttoken_store::{Limits, OpenError, Store, StoreError};
use tempfile::TempDir;

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    (folder, path)
}

fn open(path: &Path) -> Result<Store, OpenError> {
    Store::open(path, Limits::default(), 0)
}

fn refusal(path: &Path) -> OpenError {
    match open(path) {
        Err(error) => error,
        Ok(_) => panic!("{} was opened", path.display()),
    }
}

fn job(request: &[u8]) -> NewJob {
    NewJob {
        tenant: "acme".to_owned(),
        key: None,
        request: request.to_vec(),
        retry: true,
        webhook: None,
        ttl_ms: 0,
    }
}

async fn submit(store: &Store, request: &[u8]) -> JobId {
    store.jobs().submit(job(request), 0).await.unwrap().id()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn what_was_accepted_is_there_when_it_is_opened_again() {
    let (_folder, path) = folder();
    let store = open(&path).unwrap();
    let id = submit(&store, b"later").await;
    drop(store);
    let store = open(&path).unwrap();
    assert_eq!(store.jobs().claim(1).await.unwrap().unwrap().lease.id(), id);
}

#[tokio::test]
async fn file_log_and_directories_are_their_owners_alone() {
    let (folder, _) = folder();
    let path = folder.path().join("state").join("jobs").join("store.db");
    let store = open(&path).unwrap();
    submit(&store, b"x").await;
    let log = path.with_extension("db-wal");
    assert_eq!((mode(&path), mode(&log)), (0o600, 0o600));
    assert_eq!((mode(path.parent().unwrap()), mode(&folder.path().join("state"))), (0o700, 0o700));
    drop(store);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let store = open(&path).unwrap();
    submit(&store, b"y").await;
    assert_eq!((mode(&path), mode(&log)), (0o600, 0o600), "taken from others again");
}

#[test]
fn a_store_has_one_owner_and_is_free_when_it_has_gone() {
    let (_folder, path) = folder();
    let store = open(&path).unwrap();
    assert!(matches!(refusal(&path), OpenError::InUse { .. }));
    assert!(refusal(&path).to_string().contains("in use by another process"));
    drop(store);
    open(&path).unwrap();
}

#[test]
fn what_is_no_store_is_said_and_left_as_it_is() {
    let (_folder, path) = folder();
    let text = "not a database, but somebody's notes\n".repeat(200);
    fs::write(&path, &text).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, OpenError::Corrupt { .. }));
    let said = error.to_string();
    assert!(said.contains("store.db is damaged") && said.contains("restore it from a backup"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn a_database_of_something_else_is_left_as_it_is() {
    let (_folder, path) = folder();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);").unwrap();
    drop(other);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(refusal(&path), OpenError::Foreign { .. }));
    assert_eq!((fs::read(&path).unwrap(), mode(&path)), (before, 0o644));
}

#[test]
fn a_store_of_a_newer_firsttoken_is_refused() {
    let (_folder, path) = folder();
    drop(open(&path).unwrap());
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    drop(newer);
    assert!(matches!(refusal(&path), OpenError::Newer { found: 99, known: 1, .. }));
}

/// A store of a few hundred jobs, closed.
async fn filled(path: &Path) {
    let store = open(path).unwrap();
    for number in 0..300_u32 {
        submit(&store, &number.to_be_bytes().repeat(50)).await;
    }
}

#[tokio::test]
async fn a_file_that_was_cut_is_said_to_be_damaged() {
    let (_folder, path) = folder();
    filled(&path).await;
    let whole = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(whole / 2).unwrap();
    assert!(matches!(refusal(&path), OpenError::Corrupt { .. }));
    assert_eq!(fs::metadata(&path).unwrap().len(), whole / 2, "it is left as it is");
}

#[tokio::test]
async fn a_file_with_overwritten_pages_is_said_to_be_damaged() {
    // Thousands of syncs, of which none matters here: in memory, where there is such a disk.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().join("store.db");
    filled(&path).await;
    let whole = fs::read(&path).unwrap();
    for page in 1..whole.len() / 4096 {
        let mut damaged = whole.clone();
        damaged[page * 4096..][..4096].fill(0xaa);
        fs::write(&path, damaged).unwrap();
        // Some pages are read when it is opened, others with the job that lies there. None makes it up.
        let store = match open(&path) {
            Ok(store) => store,
            Err(error) => {
                assert!(matches!(error, OpenError::Corrupt { .. }), "page {page}: {error}");
                continue;
            }
        };
        let mut damage = None;
        for number in 0..300_u32 {
            match store.jobs().claim(0).await {
                Ok(claimed) => {
                    assert_eq!(claimed.unwrap().request, number.to_be_bytes().repeat(50), "page {page}");
                }
                Err(error) => {
                    damage = Some(error);
                    break;
                }
            }
        }
        assert!(damage.is_none_or(|error| matches!(error, StoreError::Corrupt(_))), "page {page}");
    }
}

#[test]
fn a_log_without_its_file_is_not_begun_anew() {
    let (_folder, path) = folder();
    fs::write(path.with_extension("db-wal"), "frames").unwrap();
    assert!(matches!(refusal(&path), OpenError::Corrupt { .. }));
    fs::write(&path, "").unwrap();
    assert!(matches!(refusal(&path), OpenError::Corrupt { .. }));
    assert!(path.with_extension("db-wal").exists());
}

#[test]
fn a_path_that_cannot_be_a_file_is_said() {
    let (folder, _) = folder();
    let before = mode(folder.path());
    assert!(matches!(refusal(folder.path()), OpenError::Io { .. }));
    assert_eq!(mode(folder.path()), before);
    let below_a_file = folder.path().join("file");
    fs::write(&below_a_file, "").unwrap();
    let error = refusal(&below_a_file.join("store.db"));
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
}

#[tokio::test]
async fn what_was_forgotten_is_no_longer_in_the_file() {
    let (_folder, path) = folder();
    let store = open(&path).unwrap();
    let prompt = b"a prompt that nobody shall find ".repeat(1000);
    let id = submit(&store, &prompt).await;
    store.jobs().cancel("acme", id, 1).await.unwrap();
    assert_eq!(store.jobs().sweep(2).await.unwrap().jobs, 1);
    drop(store);
    let file = fs::read(&path).unwrap();
    assert!(!file.windows(8).any(|window| window == b"a prompt"));
    assert!(!path.with_extension("db-wal").exists());
}
