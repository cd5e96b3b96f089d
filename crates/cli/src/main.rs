//! One binary: arguments in, a configuration out, and then the crate that does the work.
//!
//! The only user of `anyhow`, of the environment, and of the terminal.
//!
//! Invariant: nothing is decided here that a test would want to ask about.

mod chat;
mod engine;
mod engines;
mod isolate;
mod key;
mod kv;
mod log;
mod models;
mod process;
mod pull;
mod serve;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Makes LLM applications fast, from GPU to glass, and proves it.
#[derive(Parser)]
#[command(name = "firsttoken", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Start the gateway.
    Serve(serve::Arguments),
    /// Ask a question and watch the answer stream.
    Chat(chat::Arguments),
    /// Start a simulated provider: scripted answers, latencies and faults.
    Sim(sim::Arguments),
    /// Fetch a model file from a hub or an address.
    Pull(pull::Arguments),
    /// List or remove the models that were pulled.
    Models(models::Arguments),
    /// Say what a model needs of this machine's memory.
    Kv(kv::Arguments),
    /// One engine in a process of its own: what `isolate = true` starts.
    #[command(hide = true)]
    Engine(engine::Arguments),
    /// Make keys for callers of the gateway.
    Key(key::Arguments),
    /// Check a configuration file; report all problems at once.
    CheckConfig {
        /// The file.
        #[arg(default_value = "firsttoken.toml")]
        file: std::path::PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Serve(arguments) => serve::run(&arguments),
        Verb::Chat(arguments) => return chat::run(&arguments),
        Verb::Sim(arguments) => sim::run(&arguments),
        Verb::Pull(arguments) => pull::run(&arguments),
        Verb::Models(arguments) => models::run(&arguments),
        Verb::Kv(arguments) => kv::run(&arguments),
        Verb::Engine(arguments) => engine::run(&arguments),
        Verb::Key(arguments) => key::run(&arguments),
        Verb::CheckConfig { file } => serve::check(&file),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Says on standard error what went wrong.
#[expect(clippy::print_stderr, reason = "the terminal is whom this talks to")]
fn complain(message: &str) {
    eprintln!("error: {message}");
}

/// Says something on standard output.
#[expect(clippy::print_stdout, reason = "the terminal is whom this talks to")]
fn say(message: &str) {
    println!("{message}");
}
