//! What the environment says: `${NAME}` in strings of the file, and the providers that are there
//! when the usual variables are set and there is no file.
//!
//! The environment is an argument everywhere, so that tests give their own and only `cli` reads
//! the real one. A value that came from a variable may be a secret: [`Text::shown`] is the spelling
//! that messages may repeat.

use super::problems::{Complaint, Place, Problems, Report};
use super::proxy::EnvProxy;
use super::{Auth, Config, ModelRule, Provider, UpstreamConfig, url};

/// Finds the value of an environment variable.
pub(super) type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// A string with everything filled in, and the way it was spelled.
pub(super) struct Text {
    /// What is meant.
    pub(super) value: String,
    /// What messages may repeat: as the file spells it, before `${…}` was filled in.
    pub(super) shown: String,
}

/// Fills in `${NAME}`; `$${` stands for a literal `${`. Reports every name that is not set.
pub(super) fn expand(raw: &str, env: &Lookup<'_>) -> Result<Text, Vec<Complaint>> {
    const ESCAPE: &str = "write `$${` for a literal `${`";
    let mut value = String::with_capacity(raw.len());
    let mut complaints = Vec::new();
    let mut filled_in = false;
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            value.push_str(before);
            value.push_str("${");
            rest = after;
            continue;
        }
        value.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            complaints.push(Complaint::new("`${` has no closing `}`").hint(ESCAPE));
            break;
        };
        rest = after;
        filled_in = true;
        if !is_variable_name(name) {
            let message = format!("`${{{name}}}` does not name an environment variable");
            complaints.push(Complaint::new(message).hint(ESCAPE));
        } else if let Some(found) = env(name) {
            value.push_str(&found);
        } else {
            let hint = format!("export {name}=… before starting, or {ESCAPE}");
            complaints.push(Complaint::new(format!("environment variable `{name}` is not set")).hint(hint));
        }
    }
    if !complaints.is_empty() {
        return Err(complaints);
    }
    value.push_str(rest);
    let shown = if filled_in { raw.to_owned() } else { value.clone() };
    Ok(Text { value, shown })
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A provider that its key in the environment switches on.
struct Known {
    provider: Provider,
    /// Variable that says where it is.
    base_url: &'static str,
    /// Names that its models have.
    models: &'static [&'static str],
}

const KNOWN: [Known; 2] = [
    Known { provider: Provider::Anthropic, base_url: "ANTHROPIC_BASE_URL", models: &["claude-*"] },
    Known {
        provider: Provider::OpenAi,
        base_url: "OPENAI_BASE_URL",
        models: &["gpt-*", "o1*", "o3*", "o4*", "text-embedding-*", "chatgpt-*", "ft:*"],
    },
];

/// The configuration without a file; see [`Config::from_env`].
pub(super) fn config(env: &Lookup<'_>) -> Result<Option<Config>, Problems> {
    let mut report = Report::default();
    let proxy = EnvProxy::read(env);
    let mut config = Config::bare();
    for known in KNOWN {
        let set = |name: &str| env(name).filter(|value| !value.trim().is_empty());
        let Some(api_key) = set(known.provider.key_variable()) else { continue };
        let api_key = understand(known.provider.key_variable(), api_key, url::api_key, &mut report);
        let elsewhere = set(known.base_url);
        // Another server behind OpenAI's dialect has models of any name.
        let models = match (known.provider, &elsewhere) {
            (Provider::OpenAi, Some(_)) => &["*"],
            (Provider::OpenAi, None) | (Provider::Anthropic, _) => known.models,
        };
        let base_url = elsewhere
            .and_then(|text| understand(known.base_url, text, url::base_url, &mut report))
            .unwrap_or_else(|| known.provider.official_base_url());
        let upstream = config.upstreams.len();
        config.models.extend(models.iter().map(|&pattern| ModelRule::new(pattern, upstream)));
        config.upstreams.push(UpstreamConfig {
            name: known.provider.name().to_owned(),
            provider: known.provider,
            proxy: proxy.toward(&base_url, &mut report),
            base_url,
            auth: Auth::Key(api_key.unwrap_or_default()),
            h2c: false,
            responses: true,
            local: false,
            concurrency: None,
        });
    }
    if config.upstreams.is_empty() {
        return Ok(None);
    }
    report.finish(Some(config), "environment", "")
}

/// The value of a variable as `f` understands it.
pub(super) fn understand<T>(
    name: &str,
    value: String,
    f: impl FnOnce(&Text) -> Result<T, Complaint>,
    report: &mut Report,
) -> Option<T> {
    let text = Text { shown: format!("${name}"), value };
    f(&text).map_err(|complaint| report.add(&Place::Variable(name.to_owned()), complaint)).ok()
}
