//! `firsttoken-synth OUT.gguf`: writes a model file with made-up weights.
//!
//! For measurements, where the file must lie on the disk; tests call the library.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use firsttoken_synth::{Mind, Recipe, Shape, Weights};

#[derive(Parser)]
#[command(about = "Write a model file with made-up weights")]
struct Args {
    /// Where to
    out: PathBuf,
    /// How large: nano 0.1 million weights, draft 17, medium 125, large 500
    #[arg(long, value_enum, default_value_t = Size::Nano)]
    size: Size,
    /// How weights are stored
    #[arg(long, value_enum, default_value_t = Stored::Q8_0)]
    weights: Stored,
    /// Make each token's successor known
    #[arg(long)]
    peaked: bool,
    /// Length of the rings in which a peaked model's tokens follow each other; 0 for one ring
    #[arg(long, default_value_t = 0)]
    ring: u32,
    /// Part of a peaked model's tokens with another successor, 0 to 1
    #[arg(long, default_value_t = 0.0)]
    astray: f64,
    /// Another seed is another model
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The longest context that it says it was made for, in tokens
    #[arg(long, default_value_t = 32_768)]
    context: u32,
    /// How it pools embeddings, as GGUF numbers it (1 is the mean); one that writes if not said
    #[arg(long)]
    pooling: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Size {
    Nano,
    Draft,
    Medium,
    Large,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Stored {
    F32,
    F16,
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let recipe = Recipe {
        shape: match args.size {
            Size::Nano => Shape::NANO,
            Size::Draft => Shape::DRAFT,
            Size::Medium => Shape::MEDIUM,
            Size::Large => Shape::LARGE,
        },
        weights: match args.weights {
            Stored::F32 => Weights::F32,
            Stored::F16 => Weights::F16,
            Stored::Q8_0 => Weights::Q8_0,
            Stored::Q4_0 => Weights::Q4_0,
        },
        mind: match args.peaked {
            true => Mind::Peaked { ring: args.ring, astray: args.astray },
            false => Mind::Random,
        },
        seed: args.seed,
        context: args.context,
        adds_bos: false,
        pooling: args.pooling,
    };
    recipe.write(&mut BufWriter::new(File::create(&args.out)?))
}
