//! Prefixes that outlive the engine, over modelled kernels and a real directory: what is found again, by whom,
//! and what becomes of files that were cut, changed, lost, or are another's. Whatever the disk does, every
//! text must be what an engine without any memory would have said.

#![cfg(test)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use firsttoken_engine::disk::{KvDir, Shelf, shelf};
use firsttoken_engine::driver::{Answer, Engine, Flow, Job, Refused};
use firsttoken_engine::fake::{Fake, Language, Machine, text};
use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::ids::{RequestId, Tenant, Token};
use firsttoken_logic::engine::scheduler::{Counters, DiskLimits, Limits, Scheduler};
use firsttoken_logic::engine::sequence::{Priority, Request};
use firsttoken_logic::time::Instant;

const LANGUAGE: Language = Language::Hashed;
const OUT: u32 = 10;

/// Tells what it has heard when it is over.
struct Heard(Vec<Token>, mpsc::Sender<Vec<Token>>);

impl Answer for Heard {
    fn on_start(&mut self, _cached: u32) {}

    fn choose(&mut self, logits: &[f32]) -> Token {
        let best = logits.iter().position(|logit| *logit > 0.0);
        Token::try_from(best.expect("one is likely")).expect("a token")
    }

    fn guess(&mut self, logits: &[f32], _ahead: u32) -> Token {
        self.choose(logits)
    }

    fn on_token(&mut self, token: Token, last: bool) -> Flow {
        self.0.push(token);
        if last {
            self.1.send(std::mem::take(&mut self.0)).expect("the test waits");
        }
        if last { Flow::End } else { Flow::More }
    }

    fn on_refused(&mut self, why: Refused) {
        panic!("no disk refuses anybody: {why:?}");
    }
}

/// An engine's life over a directory.
struct Life {
    language: Language,
    /// What each look at the clock takes: a life in which a step takes half a second finds worth keeping what
    /// it has computed, and one in which it takes none still goes by what was guessed of the machine.
    look: Duration,
    bytes_max: u64,
}

const FIRST: Life = Life { language: LANGUAGE, look: Duration::from_millis(500), bytes_max: 1 << 30 };
const SECOND: Life = Life { look: Duration::from_millis(1), ..FIRST };

impl Life {
    /// Asks one after another, and ends. `meanwhile` happens when the directory has been read.
    fn of(&self, dir: &Path, asked: &[(Tenant, Vec<Token>)], meanwhile: impl FnOnce()) -> Counters {
        let limits = Limits {
            cells: 8192,
            ids: 16,
            disk: Some(DiskLimits { pages_max: 100, token_bytes: 12 }),
            ..Limits::default()
        };
        let fake = Fake::new(limits.cells, limits.ids, self.language, Machine::default());
        let (mut looks, look) = (0, self.look);
        let clock = move || {
            looks += 1;
            Instant::default() + look * looks
        };
        let shelf = Shelf::open(KvDir { path: dir.to_owned(), bytes_max: self.bytes_max });
        let shelf = Arc::new(shelf.expect("the directory is ours"));
        let (engine, seat) = Engine::new();
        let driver = seat.driver(fake, Scheduler::new(limits, StepCost::default()), || {}, clock);
        let driver = driver.with_disk(shelf);
        meanwhile();
        let thread = std::thread::spawn(move || driver.run());
        for (tenant, prompt) in asked {
            let (over, heard) = mpsc::channel();
            let request = Request {
                id: RequestId(0),
                tenant: *tenant,
                prompt: prompt.clone(),
                output_max: OUT,
                priority: Priority::Interactive,
                itl_target: None,
                deadline: None,
            };
            let job = Job { request, answer: Box::new(Heard(Vec::new(), over)), guesses_max: 0 };
            let _ticket = engine.generate(job).unwrap_or_else(|_| panic!("there is room for a job"));
            let said = heard.recv().expect("everybody is answered");
            assert_eq!(said, text(self.language, prompt, OUT as usize));
        }
        engine.stop();
        thread.join().expect("it does not panic").expect("the kernels do not fail");
        engine.status().counters
    }
}

fn tokens(seed: u32, len: u32) -> Vec<Token> {
    (0..len).map(|at| (seed.wrapping_mul(2_654_435_761) ^ at.wrapping_mul(40_503)) % 256).collect()
}

fn prompt(own: u32) -> Vec<Token> {
    [tokens(1, 2000), tokens(own, 100)].concat()
}

/// A directory in which one has asked, and its one page.
fn left_behind() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    FIRST.of(dir.path(), &[(Tenant(1), prompt(2))], || {});
    let page = pages(dir.path()).pop().expect("what took long to compute was written");
    (dir, page)
}

fn pages(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.expect("an entry").path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "kv")).collect()
}

fn change(file: &Path, with: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).expect("it is there");
    with(&mut bytes);
    std::fs::write(file, bytes).expect("it can be written");
}

#[test]
fn a_prefix_is_found_after_a_restart() {
    let (dir, _) = left_behind();
    let counters = SECOND.of(dir.path(), &[(Tenant(1), prompt(3)), (Tenant(1), prompt(4))], || {});
    assert_eq!(counters.tokens_read, 2000, "all that both begin with");
    assert!(counters.rows < 300, "{} rows were computed", counters.rows);
}

#[test]
fn another_tenant_finds_nothing() {
    let (dir, _) = left_behind();
    let counters = SECOND.of(dir.path(), &[(Tenant(2), prompt(2))], || {});
    assert_eq!((counters.tokens_read, counters.reads_failed), (0, 0));
    assert!(counters.rows >= 2100);
}

#[test]
fn other_kernels_find_nothing_and_harm_nothing() {
    let (dir, page) = left_behind();
    let other = Life { language: Language::Looping(50), ..SECOND };
    let counters = other.of(dir.path(), &[(Tenant(1), prompt(2))], || {});
    assert_eq!((counters.tokens_read, counters.reads_failed), (0, 0));
    assert!(page.exists(), "it is another's");
}

#[test]
fn a_damaged_page_goes_and_its_text_is_computed() {
    let (dir, page) = left_behind();
    change(&page, |bytes| *bytes.last_mut().expect("bytes") ^= 1);
    let counters = SECOND.of(dir.path(), &[(Tenant(1), prompt(3))], || {});
    assert_eq!((counters.tokens_read, counters.reads_failed), (0, 1));
    assert!(!page.exists());
}

#[test]
fn a_cut_page_goes_before_anybody_asks() {
    for cut in [10, 1000, 20_000] {
        let (dir, page) = left_behind();
        change(&page, |bytes| bytes.truncate(cut));
        let counters = SECOND.of(dir.path(), &[(Tenant(1), prompt(3))], || assert!(!page.exists()));
        assert_eq!((counters.tokens_read, counters.reads_failed), (0, 0), "cut at {cut}");
    }
}

#[test]
fn a_page_that_another_process_takes_away_is_computed() {
    let (dir, page) = left_behind();
    let gone = || std::fs::remove_file(&page).expect("it is there");
    let counters = SECOND.of(dir.path(), &[(Tenant(1), prompt(3))], gone);
    assert_eq!((counters.tokens_read, counters.reads_failed), (0, 1));
}

#[test]
fn what_does_not_fit_is_not_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let counters = Life { bytes_max: 1000, ..FIRST }.of(dir.path(), &[(Tenant(1), prompt(2))], || {});
    assert_eq!((counters.tokens_written, pages(dir.path()).len()), (0, 0));
}

#[test]
fn the_longest_unused_page_makes_room() {
    let (dir, page) = left_behind();
    let room = std::fs::metadata(&page).expect("it is there").len() * 3 / 2;
    let other = [(Tenant(1), tokens(7, 2000))];
    Life { bytes_max: room, ..FIRST }.of(dir.path(), &other, || {});
    assert_eq!((page.exists(), pages(dir.path()).len()), (false, 1));
}

#[test]
fn a_directory_that_fails_fails_nobody() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("kv");
    let gone = || {
        std::fs::remove_dir_all(&path).expect("it is there");
        std::fs::write(&path, "no directory").expect("a file");
    };
    let counters = FIRST.of(&path, &[(Tenant(1), prompt(2)), (Tenant(1), prompt(3))], gone);
    assert_eq!(counters.tokens_written, 0);
}

#[test]
fn two_engines_share_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| FIRST.of(dir.path(), &[(Tenant(1), prompt(2)), (Tenant(1), prompt(3))], || {}));
        }
    });
    assert!(SECOND.of(dir.path(), &[(Tenant(1), prompt(4))], || {}).tokens_read >= 2000);
}

#[test]
fn a_salt_is_drawn_once_for_a_directory() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let salt = |dir: &Path| {
        let dir = KvDir { path: dir.join("a/b"), bytes_max: shelf::BYTES_MAX };
        *Shelf::open(dir).expect("it can be made").salt()
    };
    let salts: Vec<_> = std::thread::scope(|scope| {
        let drawn: Vec<_> = (0..8).map(|_| scope.spawn(|| salt(dirs[0].path()))).collect();
        drawn.into_iter().map(|drawn| drawn.join().expect("it does not panic")).collect()
    });
    assert!(salts.iter().all(|salt| *salt == salts[0]), "of several at once the first draws it");
    assert_ne!(salt(dirs[1].path()), salts[0]);
}

#[cfg(unix)]
#[test]
fn nobody_else_reads_prompts_or_writes_what_is_believed() {
    use std::os::unix::fs::PermissionsExt;

    let (dir, page) = left_behind();
    let path = dir.path().join("made");
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let open = |path: &Path| Shelf::open(KvDir { path: path.to_owned(), bytes_max: 1000 });
    open(&path).expect("it can be made");
    assert_eq!((mode(&path), mode(&page), mode(&dir.path().join("salt"))), (0o700, 0o600, 0o600));
    // A directory that only root could write to is read all the same.
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o500)).expect("it is ours");
    assert_eq!(SECOND.of(dir.path(), &[(Tenant(1), prompt(3))], || {}).tokens_read, 2000);
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("it is ours");
    let refused = open(dir.path()).expect_err("others can write there").to_string();
    assert!(refused.contains("mode 777") && refused.contains("chmod 700"), "{refused}");
    let file = open(&page).expect_err("no directory").to_string();
    assert!(file.contains("cannot be made"), "{file}");
}
