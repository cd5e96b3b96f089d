//! `firsttoken kv`: what a model would need of this machine's memory, before it is loaded.

use anyhow::Context as _;
use firsttoken_local::kv::{self, Memory, Sizing};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The model: a GGUF file, or one that was pulled.
    model: std::path::PathBuf,
    /// Tokens of each sequence, prompt and answer together; what the model was made for if not said.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    context: Option<u64>,
    /// Sequences at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let file = crate::models::on_disk(&arguments.model)?;
    let header = kv::header(&file)?;
    let sizing = Sizing::new(&header, arguments.context, arguments.batch)?;
    let memory = Memory::now().context("this system does not say how much memory it has")?;
    crate::say(&sizing.describe(&firsttoken_local::model::name_of(&file), &header, memory));
    Ok(())
}
