//! `firsttoken engine`: one engine in a process of its own, as `isolate = true` asks for. Nobody types this.
//!
//! The parent writes how the model is run as one line to standard input, and reads one line of what came of
//! it. Then the engine is served over a Unix socket in a folder that only this user can enter, until
//! standard input is closed: by the parent, or by the system when the parent is no more.
//!
//! Invariant: it never outlives its parent.

use std::io::{BufRead as _, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use firsttoken_local::{Loaded, Local, Options};
use serde::{Deserialize, Serialize};

use crate::serve;

/// Longest line of options, in bytes.
const OPTIONS_BYTES_MAX: u64 = 1 << 20;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where to listen.
    #[arg(long)]
    socket: PathBuf,
    /// How to log.
    #[arg(long, default_value = "text", value_parser = ["text", "json"])]
    log: String,
}

/// What came of the start.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Started {
    /// It listens. A line about it.
    Ready(String),
    /// What is wrong.
    Failed(String),
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let _guard = serve::start_log(arguments.log == "json")?;
    let mut line = String::new();
    std::io::stdin().lock().take(OPTIONS_BYTES_MAX).read_line(&mut line)?;
    let options: Options = serde_json::from_str(&line).context("no options on standard input")?;
    end_with_parent(arguments.socket.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let started = start(options, &arguments.socket);
    let said = match &started {
        Ok((_, _, line)) => Started::Ready(line.clone()),
        Err(error) => Started::Failed(format!("{error:#}")),
    };
    crate::say(&serde_json::to_string(&said)?);
    // The parent tells it.
    let Ok((listener, local, _)) = started else { return Ok(()) };
    runtime.block_on(async {
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(std::sync::Arc::clone(&local).serve_connection(stream));
        }
    })
}

type Ready = (tokio::net::UnixListener, std::sync::Arc<Local>, String);

fn start(options: Options, socket: &Path) -> anyhow::Result<Ready> {
    let loaded = Loaded::start(options)?;
    let line = loaded.describe();
    let listener = tokio::net::UnixListener::bind(socket)
        .with_context(|| format!("cannot listen at {}", socket.display()))?;
    Ok((listener, Local::new(vec![loaded]), line))
}

/// Ends this process, and what it has in the file system, when standard input is closed.
fn end_with_parent(socket: PathBuf) -> anyhow::Result<()> {
    let wait = move || {
        // Nothing comes any more; an error is an end too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = std::fs::remove_file(&socket);
        if let Some(folder) = socket.parent() {
            let _ = std::fs::remove_dir(folder);
        }
        end_now();
    };
    std::thread::Builder::new().name("parent".to_owned()).spawn(wait)?;
    Ok(())
}

#[expect(clippy::exit, reason = "a step that is computed shall not be waited for")]
fn end_now() {
    std::process::exit(0);
}
