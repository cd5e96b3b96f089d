//! The figures of docs/engine.md, drawn from what the scheduler does on the modelled machine.
//!
//! Invariant: the page shows what this draws. After a change write it with `UPDATE_DOCS=1`.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use firsttoken_logic::engine::ids::RequestId;
use firsttoken_logic::engine::scheduler::{Limits, Operation};

use crate::rig::{Engine, ms, prompt};

const PAGE: &str = "../../docs/engine.md";

/// Two readers, and a prompt that comes while they read: each step as a line.
fn timeline() -> String {
    let mut engine = Engine::new(Limits::default());
    for reader in 0..2 {
        engine.ask(ms(0), prompt(reader, 128), 400);
    }
    engine.ask(ms(1000), prompt(9, 600), 3);
    let mut out = String::from("   time    took  rows  readers  prompt\n");
    let mut shown = 0;
    while shown < 16 {
        engine.arrive();
        let before = engine.now();
        let step = engine.step();
        let took = engine.now() - before;
        let rows = |id: u64| {
            step.runs.iter().find(|run| run.request == RequestId(id)).map_or(0, |run| run.tokens.len())
        };
        if before < ms(970) {
            continue;
        }
        shown += 1;
        let readers = rows(0) + rows(1);
        let bar = "█".repeat(rows(2).div_ceil(4));
        let _ = writeln!(
            out,
            "{:>5} ms {:>4} ms  {:>4}  {readers:>7}  {:>4} {bar}",
            before.as_millis(),
            took.as_millis(),
            step.rows(),
            rows(2),
        );
    }
    trimmed(&out)
}

/// Who holds which cells, when four requests share a system prompt: a letter for each block of 64.
fn blocks() -> String {
    let mut engine = Engine::new(Limits { cells: 2048, ..Limits::default() });
    for own in 0..4 {
        engine.ask(
            ms(100 * own),
            [prompt(1, 512), prompt(10 + u32::try_from(own).unwrap_or(0), 100)].concat(),
            60,
        );
    }
    let mut out = String::new();
    for (after, what) in [(400, "the first computes"), (2000, "all decode"), (5000, "nobody is left")] {
        while engine.now() < ms(after) {
            engine.arrive();
            if engine.step().is_empty() {
                break;
            }
        }
        let _ = writeln!(out, "{}  {what}", map(&engine));
    }
    trimmed(&out)
}

/// A character for each 64 cells: how many sequences at work hold them, `k` for kept, `.` for free.
fn map(engine: &Engine) -> String {
    let pool = engine.scheduler.pool();
    let mut cells = vec!['.'; (pool.cells().total() / 64) as usize];
    for block in pool.blocks() {
        let mark = if block.live == 0 { 'k' } else { char::from_digit(block.live, 10).unwrap_or('+') };
        cells[(block.cell / 64) as usize] = mark;
    }
    cells.into_iter().collect()
}

/// What moves between the tiers while three conversations take turns in memory for two.
fn tiers() -> String {
    let mut engine = Engine::new(Limits { cells: 1792, ..Limits::default() });
    let turns = [(0, "A"), (1, "B"), (2, "C"), (0, "A again")];
    let mut out = String::new();
    for (turn, (who, name)) in (0..).zip(turns) {
        let long = [prompt(who, 640), prompt(50 + turn, 64)].concat();
        let at = Duration::from_secs(10 * u64::from(turn));
        engine.ask(at, long, 8);
        let rows = engine.scheduler.counters().rows;
        let (mut moved, mut loaded) = (0, 0);
        while engine.scheduler.running() + engine.scheduler.waiting() > 0 || !engine.script.is_empty() {
            engine.arrive();
            let step = engine.step();
            for operation in &step.operations {
                match operation {
                    Operation::Save { range, .. } => moved += range.len(),
                    Operation::Load { .. } => loaded += 1,
                    Operation::Share { .. }
                    | Operation::Truncate { .. }
                    | Operation::Drop { .. }
                    | Operation::Forget { .. }
                    | Operation::Write { .. }
                    | Operation::Read { .. }
                    | Operation::Touch { .. } => {}
                }
            }
            if step.is_empty() {
                engine.rest_until(at);
            }
        }
        let rows = engine.scheduler.counters().rows - rows;
        let idle = engine.scheduler.pool().idle();
        let _ = writeln!(
            out,
            "{name:<8} {rows:>4} rows computed, {moved:>4} tokens saved, {loaded} piece(s) loaded, {idle:>4} idle in the cells"
        );
    }
    trimmed(&out)
}

fn trimmed(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[test]
fn the_page_shows_what_the_scheduler_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let mut drawn = page.clone();
    for (name, figure) in [("timeline", timeline()), ("blocks", blocks()), ("tiers", tiers())] {
        let begin = format!("<!-- figure:{name} -->\n```text\n");
        let from = drawn.find(&begin).unwrap_or_else(|| panic!("a place for {name}")) + begin.len();
        let to = from + drawn[from..].find("```").expect("its end");
        drawn.replace_range(from..to, &figure);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &drawn).expect("the page can be written");
    } else {
        assert_eq!(page, drawn, "write the page with UPDATE_DOCS=1");
    }
}
