//! `--draft FILE`: which model a draft is for hangs on where it stands.
//!
//! Invariant: a model has one draft at most, and each draft a model.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};

const MODEL: &str = "model";
const DRAFT: &str = "draft";

/// Drafts, each with the place of its model among all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drafts(Vec<(usize, PathBuf)>);

impl Drafts {
    /// The draft of the model at that place.
    pub(crate) fn of(&self, place: usize) -> Option<PathBuf> {
        self.0.iter().find(|(own, _)| *own == place).map(|(_, file)| file.clone())
    }

    /// The same with the files that are meant.
    pub(crate) fn resolved(&self, file: impl Fn(&Path) -> anyhow::Result<PathBuf>) -> anyhow::Result<Self> {
        self.0.iter().map(|(place, draft)| Ok((*place, file(draft)?))).collect::<Result<_, _>>().map(Self)
    }
}

impl FromArgMatches for Drafts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut drafts = Self::default();
        drafts.update_from_arg_matches(matches)?;
        Ok(drafts)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let models: Vec<usize> = matches.indices_of(MODEL).into_iter().flatten().collect();
        let files = matches.get_many::<PathBuf>(DRAFT).into_iter().flatten();
        for (index, file) in matches.indices_of(DRAFT).into_iter().flatten().zip(files) {
            let before = models.iter().filter(|model| **model < index).count();
            let place = if models.len() == 1 { Some(0) } else { before.checked_sub(1) };
            let wrong = |what| {
                clap::Error::raw(ErrorKind::ValueValidation, format!("--draft {}: {what}\n", file.display()))
            };
            let place = place.ok_or_else(|| {
                wrong("there are several models; write it behind the --model that it is for")
            })?;
            if self.of(place).is_some() {
                return Err(wrong("the model before it has a draft already; a model can have one"));
            }
            self.0.push((place, file.clone()));
        }
        Ok(())
    }
}

impl Args for Drafts {
    fn augment_args(command: Command) -> Command {
        command.arg(
            Arg::new(DRAFT)
                .long(DRAFT)
                .value_name("DRAFT")
                .action(ArgAction::Append)
                .value_parser(value_parser!(PathBuf))
                .requires(MODEL)
                .help("A smaller model with the same vocabulary, which guesses ahead for the model named before it: the same text, sooner"),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Serve {
        #[command(flatten)]
        arguments: crate::serve::Arguments,
    }

    fn parsed(line: &str) -> Result<Drafts, String> {
        let parsed = Serve::try_parse_from(line.split(' '));
        parsed.map(|parsed| parsed.arguments.drafts).map_err(|error| error.to_string())
    }

    #[test]
    fn a_draft_is_for_the_model_before_it() {
        let drafts = parsed("serve --model a --draft x --model b --model c --draft=y").unwrap();
        let of = |place| drafts.of(place).and_then(|file| file.to_str().map(str::to_owned));
        assert_eq!([of(0), of(1), of(2)], [Some("x".to_owned()), None, Some("y".to_owned())]);
        assert_eq!(parsed("serve --draft x --model a").unwrap().of(0), Some("x".into()), "there is only one");
        assert_eq!(parsed("serve"), Ok(Drafts::default()));
    }

    #[test]
    fn a_draft_for_nobody_is_an_error() {
        for (line, what) in [
            ("serve --draft x", "--model"),
            ("serve --draft x --model a --model b", "--draft x: there are several models"),
            ("serve --model a --draft x --draft y", "--draft y: the model before it has a draft already"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }
}
