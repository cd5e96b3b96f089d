//! The engine's thread, over modelled kernels: what answers hear, and what becomes of those who leave,
//! lag behind or cannot be answered. Steps are taken by hand, so nothing depends on time.

#![cfg(test)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use firsttoken_engine::backend::Failed;
use firsttoken_engine::draft::Draft;
use firsttoken_engine::driver::{
    Answer, Driver, Engine, Flow, Job, NotTaken, Refused, Status, Stepped, Ticket,
};
use firsttoken_engine::fake::{Fake, Language, Machine, text};
use firsttoken_logic::engine::cost::StepCost;
use firsttoken_logic::engine::ids::{RequestId, Tenant, Token};
use firsttoken_logic::engine::scheduler::{Limits, Refusal, Scheduler};
use firsttoken_logic::engine::sequence::{Priority, Request};
use firsttoken_logic::time::Instant;

#[derive(Clone, Default)]
struct Heard {
    tokens: Arc<Mutex<Vec<Token>>>,
    ended: Arc<Mutex<Option<Result<(), Refused>>>>,
    pause_at: Option<usize>,
    end_at: Option<usize>,
}

impl Answer for Heard {
    fn on_start(&mut self, _cached: u32) {}

    fn choose(&mut self, logits: &[f32]) -> Token {
        let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        Token::try_from(best.expect("logits of something").0).expect("a token")
    }

    fn guess(&mut self, logits: &[f32], _ahead: u32) -> Token {
        self.choose(logits)
    }

    fn on_token(&mut self, token: Token, last: bool) -> Flow {
        let mut tokens = self.tokens.lock().expect("nobody panics");
        tokens.push(token);
        if last || self.end_at == Some(tokens.len()) {
            *self.ended.lock().expect("nobody panics") = Some(Ok(()));
            return Flow::End;
        }
        if self.pause_at == Some(tokens.len()) { Flow::Pause } else { Flow::More }
    }

    fn on_refused(&mut self, why: Refused) {
        *self.ended.lock().expect("nobody panics") = Some(Err(why));
    }
}

impl Heard {
    fn said(&self) -> Vec<Token> {
        self.tokens.lock().expect("nobody panics").clone()
    }

    fn ended(&self) -> Option<Result<(), Refused>> {
        self.ended.lock().expect("nobody panics").clone()
    }
}

fn engine(limits: Limits, language: Language) -> (Engine, Driver<Fake, impl FnMut() -> Instant>) {
    engine_by(&Arc::default(), Machine::default(), limits, language)
}

/// An engine whose time is what kernels have worked by that clock.
fn engine_by(
    clock: &Arc<AtomicU64>,
    machine: Machine,
    limits: Limits,
    language: Language,
) -> (Engine, Driver<Fake, impl FnMut() -> Instant + use<>>) {
    let fake = Fake::new(limits.cells, limits.ids, language, machine).moving(clock);
    let scheduler = Scheduler::new(limits, StepCost::default());
    let clock = Arc::clone(clock);
    let clock = move || Instant::from_ns(clock.load(Relaxed));
    let (engine, seat) = Engine::new();
    let driver = seat.driver(fake, scheduler, || {}, clock);
    (engine, driver)
}

fn request(prompt: &[Token], output_max: u32) -> Request {
    Request {
        id: RequestId(0),
        tenant: Tenant(0),
        prompt: prompt.to_vec(),
        output_max,
        priority: Priority::Interactive,
        itl_target: None,
        deadline: None,
    }
}

fn ask(engine: &Engine, prompt: &[Token], output_max: u32, guesses_max: u32, heard: &Heard) -> Ticket {
    let request = request(prompt, output_max);
    let job = Job { request, answer: Box::new(heard.clone()), guesses_max };
    engine.generate(job).unwrap_or_else(|_| panic!("there is room for a job"))
}

fn work<C: FnMut() -> Instant>(driver: &mut Driver<Fake, C>) -> Result<(), Failed> {
    while driver.step()? == Stepped::Worked {}
    Ok(())
}

const PROMPT: [Token; 5] = [7, 1, 2, 3, 7];

#[test]
fn each_answer_hears_its_text_to_its_end() {
    let (engine, mut driver) = engine(Limits::default(), Language::Hashed);
    let heard: Vec<Heard> = (0..5).map(|_| Heard::default()).collect();
    let _tickets: Vec<Ticket> =
        (0..).zip(&heard).map(|(own, heard)| ask(&engine, &[own; 100], 20 + own, 0, heard)).collect();
    work(&mut driver).expect("the kernels do not fail");
    for (own, heard) in (0..).zip(&heard) {
        assert_eq!(heard.said(), text(Language::Hashed, &[own; 100], 20 + own as usize));
        assert_eq!(heard.ended(), Some(Ok(())));
    }
    assert_eq!((engine.status().running, engine.status().waiting), (0, 0));
}

#[test]
fn guesses_change_nothing_but_the_number_of_steps() {
    let language = Language::Looping(20);
    let steps = |guesses_max| {
        let (engine, mut driver) = engine(Limits::default(), language);
        let heard = Heard::default();
        let _ticket = ask(&engine, &PROMPT, 200, guesses_max, &heard);
        work(&mut driver).expect("the kernels do not fail");
        assert_eq!(heard.said(), text(language, &PROMPT, 200));
        engine.status().counters.steps
    };
    let (plain, guessed) = (steps(0), steps(16));
    assert_eq!(plain, 200);
    assert!(guessed < 60, "{guessed} steps with guesses");
}

/// A draft that is wrong in so many of a hundred places.
fn draft(clock: &Arc<AtomicU64>, cells: u32, astray_percent: u64) -> Draft<Fake> {
    let kernels = Fake::new(cells, 64, Language::Hashed, Machine::DRAFT).astray(astray_percent);
    Draft::new(kernels.moving(clock), StepCost::default())
}

/// Five readers of 200 tokens each, with a draft of so many cells that is so often wrong or without: how
/// long it takes, and what was done.
fn five(drafting: Option<(u32, u64)>, guesses_max: u32) -> (Duration, Status) {
    let clock = Arc::default();
    // Weights are what a step reads longest: rows more are cheap.
    let machine = Machine { step_ns: 20_000_000, row_ns: 400_000, ..Machine::default() };
    let (engine, mut driver) = engine_by(&clock, machine, Limits::default(), Language::Hashed);
    if let Some((cells, astray_percent)) = drafting {
        driver = driver.with_draft(draft(&clock, cells, astray_percent), |failed| panic!("{failed}"));
    }
    let heard: Vec<Heard> = (0..5).map(|_| Heard::default()).collect();
    let prompt = |own| [vec![9; 100], vec![own; 5]].concat();
    let _tickets: Vec<Ticket> =
        (0..).zip(&heard).map(|(own, heard)| ask(&engine, &prompt(own), 200, guesses_max, heard)).collect();
    work(&mut driver).expect("the kernels do not fail");
    for (own, heard) in (0..).zip(&heard) {
        assert_eq!(heard.said(), text(Language::Hashed, &prompt(own), 200));
    }
    let status = engine.status();
    assert_eq!(status.draft.1, 0, "nobody reads, and nothing is held");
    (Duration::from_nanos(clock.load(Relaxed)), status)
}

#[test]
fn a_draft_changes_nothing_but_the_time() {
    let (plain, _) = five(None, 0);
    for guesses_max in [0, 8] {
        let (took, status) = five(Some((4096, 5)), guesses_max);
        let (done, _) = status.draft;
        assert!(took < plain * 8 / 10, "{took:?} instead of {plain:?}");
        assert!(done.accepted * 2 > done.drafted, "{done:?}");
        assert!(status.counters.drafted >= done.drafted && status.counters.accepted >= done.accepted);
    }
}

#[test]
fn a_useless_draft_is_soon_silent() {
    let (plain, _) = five(None, 0);
    let (took, status) = five(Some((4096, 100)), 0);
    let (done, _) = status.draft;
    assert!(took < plain * 103 / 100 && done.accepted == 0, "{took:?} instead of {plain:?}");
    assert!(done.drafted > 0 && done.drafted * 100 < 3 * status.counters.rows, "{done:?}");
}

#[test]
fn a_draft_without_room_and_one_that_breaks_harm_nobody() {
    let (_, status) = five(Some((64, 0)), 0);
    assert_eq!(status.draft.0.drafted, 0, "no answer fits into 64 cells");
    let (engine, driver) = engine(Limits::default(), Language::Hashed);
    let mut broken = draft(&Arc::default(), 4096, 0);
    broken.backend().abort_after(3);
    let told = Arc::new(AtomicU32::new(0));
    let tell = Arc::clone(&told);
    let mut driver = driver.with_draft(broken, move |_| _ = tell.fetch_add(1, Relaxed));
    let heard = Heard::default();
    let _ticket = ask(&engine, &PROMPT, 50, 0, &heard);
    work(&mut driver).expect("the kernels do not fail");
    assert_eq!(heard.said(), text(Language::Hashed, &PROMPT, 50));
    assert_eq!(told.load(Relaxed), 1);
}

#[test]
fn an_answer_that_ends_early_leaves_nothing_behind() {
    let (engine, mut driver) = engine(Limits::default(), Language::Looping(9));
    let heard = Heard { end_at: Some(33), ..Heard::default() };
    let _ticket = ask(&engine, &PROMPT, 1000, 8, &heard);
    work(&mut driver).expect("the kernels do not fail");
    assert_eq!(heard.said().len(), 33);
    let status = engine.status();
    assert_eq!((status.running, status.cells_used), (0, status.cells_idle));
}

#[test]
fn who_leaves_hears_no_more_and_holds_nothing() {
    let (engine, mut driver) = engine(Limits::default(), Language::Hashed);
    let (stays, leaves) = (Heard::default(), Heard::default());
    let _ticket = ask(&engine, &PROMPT, 50, 0, &stays);
    let ticket = ask(&engine, &[3; 30], 5000, 0, &leaves);
    for _ in 0..10 {
        driver.step().expect("the kernels do not fail");
    }
    drop(ticket);
    let said = leaves.said();
    work(&mut driver).expect("the kernels do not fail");
    assert_eq!((leaves.said(), leaves.ended()), (said, None));
    assert_eq!(stays.said().len(), 50);
    assert_eq!(engine.status().running, 0);
    // Even one who leaves before it was taken up.
    drop(ask(&engine, &PROMPT, 50, 0, &leaves));
    work(&mut driver).expect("the kernels do not fail");
    assert_eq!((engine.status().running, engine.status().waiting), (0, 0));
}

#[test]
fn a_slow_reader_waits_alone() {
    let (engine, mut driver) = engine(Limits::default(), Language::Hashed);
    let (slow, other) = (Heard { pause_at: Some(5), ..Heard::default() }, Heard::default());
    let ticket = ask(&engine, &PROMPT, 50, 0, &slow);
    let _other = ask(&engine, &[1, 2], 50, 0, &other);
    work(&mut driver).expect("the kernels do not fail");
    assert_eq!((slow.said().len(), other.said().len()), (5, 50));
    ticket.resume();
    work(&mut driver).expect("the kernels do not fail");
    assert_eq!(slow.said(), text(Language::Hashed, &PROMPT, 50));
}

#[test]
fn what_cannot_be_answered_is_told() {
    let (engine, mut driver) = engine(Limits { cells: 100, ..Limits::default() }, Language::Hashed);
    let (long, full) = (Heard::default(), Heard::default());
    let _long = ask(&engine, &[1; 100], 1, 0, &long);
    let _full = ask(&engine, &[1; 90], 1000, 0, &full);
    work(&mut driver).expect("the kernels do not fail");
    let refusal = Refusal::TooLong { tokens: 101, cells: 100 };
    assert_eq!(long.ended(), Some(Err(Refused::Scheduler(refusal))));
    assert_eq!((full.said().len(), full.ended()), (10, Some(Ok(()))), "as many as there is room for");
}

#[test]
fn whatever_ends_a_driver_nobody_waits_for_it() {
    let (engine, driver) = engine(Limits::default(), Language::Hashed);
    let heard = Heard::default();
    let _ticket = ask(&engine, &PROMPT, 50, 0, &heard);
    drop(driver);
    assert_eq!(heard.ended(), Some(Err(Refused::Failed("the engine has ended".to_owned()))));
    let job = Job { request: request(&PROMPT, 50), answer: Box::new(heard), guesses_max: 0 };
    assert_eq!(engine.generate(job).err(), Some(NotTaken::Failed));
}

#[test]
fn the_thread_ends_with_its_last_owner() {
    let (engine, driver) = engine(Limits::default(), Language::Hashed);
    let thread = std::thread::spawn(move || driver.run());
    let heard = Heard { pause_at: Some(3), ..Heard::default() };
    let ticket = ask(&engine, &PROMPT, 50, 0, &heard);
    drop(ticket);
    drop(engine);
    assert!(thread.join().expect("it does not panic").is_ok());
}
