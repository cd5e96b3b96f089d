//! `firsttoken models`: what was pulled, and which file is meant by a model's name.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use firsttoken_local::cache::Cache;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    folder: Folder,
}

#[derive(Subcommand)]
enum What {
    /// List the models that were pulled.
    List,
    /// Remove one, with what was fetched of it in part.
    Rm {
        /// Its whole name, or the last part of it.
        name: String,
    },
}

/// Where pulled models are.
#[derive(Default, clap::Args)]
pub(crate) struct Folder {
    /// Folder of models; without it firsttoken/models below XDG_CACHE_HOME or ~/.cache.
    #[arg(long, env = "FIRSTTOKEN_MODELS", global = true)]
    dir: Option<PathBuf>,
}

impl Folder {
    /// What was said, what the environment says, or the usual one.
    pub(crate) fn cache(&self) -> anyhow::Result<Cache> {
        match self.dir.clone().or_else(|| environment("FIRSTTOKEN_MODELS").map(PathBuf::from)) {
            Some(folder) => Ok(Cache::new(folder)),
            None => Cache::usual(environment)
                .context("no folder for models: neither HOME nor XDG_CACHE_HOME is set; give --dir"),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let cache = arguments.folder.cache()?;
    match &arguments.what {
        What::List => crate::say(&cache.describe()?),
        What::Rm { name } => crate::say(&format!("{} is removed.", cache.remove(name)?.name)),
    }
    Ok(())
}

/// The file of a model that is named by a file, a pulled name, or an address; this is pulled first.
pub(crate) fn resolve(model: &Path) -> anyhow::Result<PathBuf> {
    match model.to_str().filter(|text| text.contains("://")) {
        Some(address) => Ok(crate::pull::address(address)?.file),
        None => on_disk(model),
    }
}

/// The file of a model that is named by a file or a pulled name.
pub(crate) fn on_disk(model: &Path) -> anyhow::Result<PathBuf> {
    found(model, &Folder::default())
}

fn found(model: &Path, folder: &Folder) -> anyhow::Result<PathBuf> {
    if model.is_file() {
        return Ok(model.to_owned());
    }
    let shown = model.display();
    if model.is_dir() {
        bail!("{shown} is a folder; give a GGUF file in it");
    }
    let name = model.to_str().with_context(|| format!("there is no file {shown}"))?;
    match folder.cache()?.find(name) {
        Ok(found) => Ok(found.file),
        Err(error) => bail!("there is no file {shown}, and {error}"),
    }
}

/// A variable of the environment, unless it is empty.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_or_a_pulled_name() {
        let place = std::env::temp_dir().join(format!("firsttoken-models-{}", std::process::id()));
        let pulled = place.join("u/r/m-Q4_0.gguf");
        std::fs::create_dir_all(pulled.parent().unwrap()).unwrap();
        std::fs::write(&pulled, "").unwrap();
        let folder = Folder { dir: Some(place.clone()) };
        let found = |model: &Path| found(model, &folder).map_err(|error| error.to_string());
        for name in [pulled.to_str().unwrap(), "u/r:Q4_0", "u/r", "m-"] {
            assert_eq!(found(Path::new(name)).as_ref(), Ok(&pulled), "{name}");
        }
        assert!(found(&place).unwrap_err().contains("is a folder"));
        let missing = found(Path::new("missing.gguf")).unwrap_err();
        assert!(
            missing.contains("no file missing.gguf") && missing.contains("there is u/r/m-Q4_0"),
            "{missing}"
        );
        std::fs::remove_dir_all(&place).unwrap();
    }
}
