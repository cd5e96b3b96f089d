//! `firsttoken pull`: a model file from a hub or an address, with a bar that shows how far it is.
//!
//! Invariant: the token comes from the environment alone; a command line is everybody's to read.

use firsttoken_local::pull::{self, Checksum, Options, Progress, Pulled};
use indicatif::{ProgressBar, ProgressStyle};

use crate::models::Folder;

/// On the terminal, while it runs.
const BAR: &str = "{bar:30} {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `user/repo:QUANT` of the hub, such as :Q4_K_M, or the address of a GGUF file. For repositories
    /// that need a token it is taken from HF_TOKEN.
    model: String,
    #[command(flatten)]
    folder: Folder,
    /// The hub.
    #[arg(long, env = "HF_ENDPOINT", default_value = pull::HUB)]
    hub: String,
    /// The checksum that the file must have; the hub's own if not said.
    #[arg(long)]
    sha256: Option<Checksum>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { model, folder, hub, sha256 } = arguments;
    let pulled = fetch(model, folder, hub.clone(), *sha256)?;
    crate::say(&pulled.describe());
    crate::say(&format!("hint: firsttoken serve --model {}", pulled.name));
    Ok(())
}

/// Fetches an address that somebody gave for a model, as the environment says.
pub(crate) fn address(text: &str) -> anyhow::Result<Pulled> {
    let hub = crate::models::environment("HF_ENDPOINT").unwrap_or_else(|| pull::HUB.to_owned());
    fetch(text, &Folder::default(), hub, None)
}

fn fetch(model: &str, folder: &Folder, hub: String, checksum: Option<Checksum>) -> anyhow::Result<Pulled> {
    let options = Options {
        cache: folder.cache()?,
        hub,
        token: crate::models::environment("HF_TOKEN"),
        checksum,
        patience: pull::PATIENCE,
    };
    // Shown on a terminal and nowhere else.
    let bar = ProgressBar::no_length().with_style(ProgressStyle::with_template(BAR)?);
    let progress = |Progress { done, total }| {
        let is_first = bar.length().is_none();
        bar.set_length(total);
        bar.set_position(done);
        if is_first {
            // What was there before says nothing about the pace.
            bar.reset_eta();
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pulled = runtime.block_on(Box::pin(pull::pull(&options, model, progress)));
    bar.finish_and_clear();
    Ok(pulled?)
}
