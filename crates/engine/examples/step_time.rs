//! What one step takes at a depth: so many streams that decode, and rows of a prompt.
//!
//! `step_time MODEL DEPTHS STREAMS ROWS`, three lists with commas; a line of JSON with an entry for each
//! combination: `depth`, `streams`, `rows` of the prompt, and `ms`, the median of [`TRIALS`] steps.
//!
//! Invariant: the kernels alone are timed, and each step leaves everything as it was.

#![expect(clippy::print_stdout, reason = "it reports")]

use std::num::NonZeroU32;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

use firsttoken_engine::backend::{Backend as _, Row};
use firsttoken_engine::native::{self, KvType, Native, Setup};
use firsttoken_logic::engine::ids::SeqId;
use tokio::time::Instant;

/// Steps of each kind that are timed.
const TRIALS: usize = 5;
/// Tokens of a stream that decodes.
const STREAM: u32 = 64;
/// Rows of the steps that fill the cells.
const TILE: u32 = 64;
const CELLS: u32 = 16_384;
const TOKEN: u32 = 300;
const PROMPT: SeqId = SeqId(0);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [model, lists @ ..] = words.as_slice() else {
        return Err("step_time MODEL DEPTHS STREAMS ROWS".into());
    };
    let lists: Vec<Vec<u32>> = lists.iter().map(|list| numbers(list)).collect::<Result<_, _>>()?;
    let [depths, streams, rows] = lists.as_slice() else {
        return Err("step_time MODEL DEPTHS STREAMS ROWS".into());
    };
    let model = native::open(Path::new(model), None)?;
    let threads = NonZeroU32::try_from(u32::try_from(available_parallelism()?.get())?)?;
    let setup = Setup { cells: CELLS, ids: 64, rows_max: 512, kv: KvType::F16, threads };
    let mut kernels = Native::new(&model, setup)?;
    let most = streams.iter().copied().max().unwrap_or(0);
    for stream in 1..=most {
        prefill(&mut kernels, seq(stream)?, 0, STREAM)?;
    }
    let (mut entries, mut held) = (Vec::new(), 0);
    for depth in depths {
        prefill(&mut kernels, PROMPT, held, *depth)?;
        held = *depth;
        for count in streams {
            for rows in rows {
                let ms = median_ms(&mut kernels, held, *count, *rows)?;
                entries.push(serde_json::json!({ "depth": depth, "streams": count, "rows": rows, "ms": ms }));
            }
        }
    }
    println!("{}", serde_json::json!({ "steps": entries }));
    Ok(())
}

fn numbers(list: &str) -> Result<Vec<u32>, std::num::ParseIntError> {
    list.split(',').map(str::parse).collect()
}

fn seq(stream: u32) -> Result<SeqId, Failure> {
    Ok(SeqId(u16::try_from(stream)?))
}

fn row(seq: SeqId, position: u32, logits: bool) -> Row {
    Row { seq, position, token: TOKEN, logits }
}

/// Fills `seq` from one position up to another, a tile at a time.
fn prefill(kernels: &mut Native, seq: SeqId, from: u32, to: u32) -> Result<(), Failure> {
    for start in (from..to).step_by(TILE as usize) {
        let end = to.min(start + TILE);
        let rows: Vec<Row> = (start..end).map(|position| row(seq, position, position + 1 == end)).collect();
        kernels.decode(&rows)?;
    }
    Ok(())
}

/// What such a step takes; everything is as before when it has been timed.
fn median_ms(kernels: &mut Native, depth: u32, streams: u32, rows: u32) -> Result<f64, Failure> {
    let mut took = Vec::new();
    for _ in 0..TRIALS {
        let mut step = Vec::new();
        for stream in 1..=streams {
            step.push(row(seq(stream)?, STREAM, true));
        }
        step.extend((depth..depth + rows).map(|position| row(PROMPT, position, false)));
        let began = Instant::now();
        kernels.decode(&step)?;
        took.push(began.elapsed());
        for stream in 1..=streams {
            kernels.truncate(seq(stream)?, STREAM)?;
        }
        kernels.truncate(PROMPT, depth)?;
    }
    took.sort_unstable();
    Ok(took.get(TRIALS / 2).map_or(0.0, Duration::as_secs_f64) * 1000.0)
}
