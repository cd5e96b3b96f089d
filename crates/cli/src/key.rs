//! `firsttoken key new`: a key is shown once, its hash is what the configuration keeps.

use clap::Subcommand;
use firsttoken_gateway::keys;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Print a new random 256-bit key once, and the lines for firsttoken.toml.
    New {
        /// Whose key it is: a name for logs, metrics and the tenant.
        #[arg(long, default_value = "default")]
        name: String,
    },
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let What::New { name } = &arguments.what;
    firsttoken_gateway::config::check_name(name).map_err(|e| anyhow::anyhow!("--name {name:?}: {e}"))?;
    let key = keys::generate()?;
    crate::say(&format!(
        "Key, shown only this once. Give it to the caller:\n\n  {}\n\nAdd to firsttoken.toml:\n\n{}",
        key.secret,
        key.toml(name)
    ));
    Ok(())
}
