//! Fetching a model file into the cache: from a hub by name, or from any address.
//!
//! What broke off goes on where it was, if the server can name the version that it began with or there
//! is a checksum to hold the whole against; else it begins anew.
//!
//! # Layout
//! - `address`: names, addresses, redirects, and where a file comes to lie; what could lead elsewhere is
//!   refused.
//! - `hub`: which file of a repository is meant.
//! - `fetch`: requests, redirects, and whom the token is told.
//! - `partial`: the file that is not whole yet.
//!
//! Invariant: a name in the cache stands for a whole file whose checksum, if there was one to know, is
//! right, and whose header is a model's.

use std::path::PathBuf;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderValue};
use http::{StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::cache::{Cache, GGUF, PARTIAL};
use crate::figures::size;
use crate::kv;

mod address;
mod error;
mod fetch;
mod hub;
mod partial;

use address::{Wanted, shown};
pub use error::Error;
use fetch::{Answer, Web};
pub(crate) use hub::is_quant;
use partial::Partial;
pub(crate) use partial::State;

/// The hub that is asked where no other is named.
pub const HUB: &str = "https://huggingface.co";
/// How long a server may say nothing.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How often a transfer may break off; each time, some of the file has come before.
const ATTEMPTS_MAX: u32 = 50;

/// A SHA-256 sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum([u8; 32]);

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// How a file is fetched.
#[derive(Clone)]
pub struct Options {
    /// Where to.
    pub cache: Cache,
    /// The hub's address, for names.
    pub hub: String,
    /// For the hub, and for nobody else.
    pub token: Option<String>,
    /// What the file must have.
    pub checksum: Option<Checksum>,
    /// How long a server may say nothing.
    pub patience: Duration,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are there.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// A model that is there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Where.
    pub file: PathBuf,
    /// What it was called in the cache.
    pub name: String,
    /// Whether it was there before, and nothing was fetched.
    pub was_there: bool,
    /// Its checksum.
    pub checksum: Checksum,
    /// Whether there was one to hold it against.
    pub verified: bool,
}

impl Pulled {
    /// What there is now, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let bytes = std::fs::metadata(&self.file).map_or(0, |file| file.len());
        let came = if self.was_there { "was there already" } else { "is there" };
        let held = if self.verified { ", as it should be" } else { "; there was none to hold it against" };
        let Self { name, checksum, .. } = self;
        format!("{name} {came}: {} in {}\nsha256 {checksum}{held}", size(bytes), self.file.display())
    }
}

/// What is to be fetched, and where to.
struct Target {
    uri: Uri,
    place: PathBuf,
    checksum: Option<Checksum>,
}

/// Fetches what `wanted` names: `user/repo:QUANT` of the hub, or an address. `progress` hears of every
/// piece.
///
/// # Errors
/// What was wrong with the name, the server, the file or the disk. What has come so far is kept where it
/// can be of use.
pub async fn pull(
    options: &Options,
    wanted: &str,
    mut progress: impl FnMut(Progress),
) -> Result<Pulled, Error> {
    let base = options.hub.trim_end_matches('/');
    let hub = address::address(base)?;
    let web = Web::new(hub.clone(), options.token.as_deref(), options.patience)?;
    let target = match Wanted::parse(wanted)? {
        Wanted::Address(uri) => {
            let uri = address::without_page(uri, &hub)?;
            Target { place: address::place_of(&uri)?, uri, checksum: None }
        }
        Wanted::Hub { repo, quant } => hub::target(&web, base, &repo, quant.as_deref()).await?,
    };
    if let Some(pulled) = there(options, &target) {
        return Ok(pulled);
    }
    let expected = agreed(options.checksum, target.checksum)?;
    let file = options.cache.folder().join(&target.place);
    let mut partial = Partial::open(file.with_extension(&PARTIAL[1..]), &target.uri.to_string())?;
    if let Err(error) = persist(&web, &target.uri, expected, &mut partial, &mut progress).await {
        if partial.bytes() == 0 {
            partial.remove();
        }
        return Err(error);
    }
    let (checksum, verified) = checked(&mut partial)?;
    partial.finish(&file)?;
    Ok(Pulled { name: name_of(&target), file, was_there: false, checksum, verified })
}

fn name_of(target: &Target) -> String {
    let place = target.place.to_string_lossy();
    place.strip_suffix(GGUF).unwrap_or(&place).to_owned()
}

/// What is in the cache already: from the same address, as long as it was, with the checksum wanted.
fn there(options: &Options, target: &Target) -> Option<Pulled> {
    let file = options.cache.folder().join(&target.place);
    let state = State::read(&file).filter(|state| state.address == target.uri.to_string())?;
    let checksum: Checksum = state.sha256.as_deref()?.parse().ok()?;
    let wanted = options.checksum.or(target.checksum);
    let is_it = wanted.is_none_or(|wanted| wanted == checksum);
    let is_whole = std::fs::metadata(&file).is_ok_and(|file| file.len() == state.bytes);
    (is_it && is_whole).then(|| Pulled {
        name: name_of(target),
        file,
        was_there: true,
        checksum,
        verified: wanted.is_some(),
    })
}

/// One checksum of what several say.
fn agreed(one: Option<Checksum>, other: Option<Checksum>) -> Result<Option<Checksum>, Error> {
    match (one, other) {
        (Some(wanted), Some(named)) if wanted != named => Err(Error::Disagreement { wanted, named }),
        _ => Ok(one.or(other)),
    }
}

/// Asks for what is missing as long as each time some of it comes.
async fn persist(
    web: &Web,
    uri: &Uri,
    expected: Option<Checksum>,
    partial: &mut Partial,
    progress: &mut impl FnMut(Progress),
) -> Result<(), Error> {
    let mut attempts = 1;
    loop {
        let before = partial.bytes();
        match transfer(web, uri, expected, partial, progress).await {
            Err(Error::Cut { .. }) if partial.bytes() > before && attempts < ATTEMPTS_MAX => attempts += 1,
            done => return done,
        }
    }
}

/// Asks once for what is missing, and takes what comes.
async fn transfer(
    web: &Web,
    uri: &Uri,
    expected: Option<Checksum>,
    partial: &mut Partial,
    progress: &mut impl FnMut(Progress),
) -> Result<(), Error> {
    if partial.is_whole() {
        return Ok(());
    }
    let mut answer = web.get(uri, &missing(partial, expected)).await?;
    if answer.response.status() == StatusCode::RANGE_NOT_SATISFIABLE && partial.bytes() > 0 {
        // The file has become shorter: it is another one.
        partial.restart()?;
        answer = web.get(uri, &HeaderMap::new()).await?;
    }
    let expected = agreed(expected, answer.linked)?;
    let total = total(web, &answer, partial)?;
    let headers = answer.response.headers();
    let etag = headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
    partial.promise(State {
        address: uri.to_string(),
        // A weak one promises too little.
        etag: etag.filter(|etag| etag.starts_with('"')).map(str::to_owned),
        bytes: total,
        sha256: expected.map(|checksum| checksum.to_string()),
    })?;
    take(web, &answer.uri, answer.response.into_body(), partial, progress).await
}

/// Asks for what is missing, if it can only be of the same file.
fn missing(partial: &mut Partial, expected: Option<Checksum>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let etag = partial.state.etag.as_deref().and_then(|etag| HeaderValue::try_from(etag).ok());
    let is_safe = etag.is_some() || expected.is_some() || partial.state.sha256.is_some();
    if partial.bytes() > 0
        && is_safe
        && let Ok(range) = HeaderValue::try_from(format!("bytes={}-", partial.bytes()))
    {
        headers.insert(header::RANGE, range);
        headers.extend(etag.map(|etag| (header::IF_RANGE, etag)));
    }
    headers
}

/// The length of the whole file, as an answer says it. A server that sends all of it is begun anew with.
fn total(web: &Web, answer: &Answer, partial: &mut Partial) -> Result<u64, Error> {
    let Answer { uri, response, .. } = answer;
    let wrong = |why: &str| Error::Answer { address: shown(uri), why: why.to_owned() };
    let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    if text(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(wrong("it sends the file compressed, which nobody asked for"));
    }
    match response.status() {
        StatusCode::OK => {
            partial.restart()?;
            let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
            length.filter(|bytes| *bytes > 0).ok_or_else(|| wrong("it does not say how long the file is"))
        }
        StatusCode::PARTIAL_CONTENT => {
            let range = text(header::CONTENT_RANGE).and_then(|range| range.strip_prefix("bytes "));
            let parts = range.and_then(|range| range.split_once('/'));
            let from = parts.and_then(|(range, _)| range.split_once('-')?.0.parse().ok());
            let total: Option<u64> = parts.and_then(|(_, total)| total.parse().ok());
            match total {
                Some(total) if from == Some(partial.bytes()) && total > partial.bytes() => Ok(total),
                _ => Err(wrong("it sends another part of the file than was asked for")),
            }
        }
        status => Err(web.refused(uri, status)),
    }
}

/// Takes the body, as it comes.
async fn take(
    web: &Web,
    uri: &Uri,
    mut body: Incoming,
    partial: &mut Partial,
    progress: &mut impl FnMut(Progress),
) -> Result<(), Error> {
    let total = partial.state.bytes;
    let cut = |partial: &Partial, why| Error::Cut { address: shown(uri), done: partial.bytes(), total, why };
    progress(Progress { done: partial.bytes(), total });
    while let Some(frame) = web.soon(uri, body.frame()).await? {
        let frame = frame.map_err(|error| cut(partial, fetch::innermost(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        partial.append(&data)?;
        progress(Progress { done: partial.bytes(), total });
    }
    if partial.is_whole() { Ok(()) } else { Err(cut(partial, "it ended early".to_owned())) }
}

/// Checks a whole file; what is wrong is given up.
fn checked(partial: &mut Partial) -> Result<(Checksum, bool), Error> {
    let got = partial.checksum();
    let wanted = partial.state.sha256.as_deref().map(str::parse::<Checksum>).transpose()?;
    if let Some(wanted) = wanted
        && wanted != got
    {
        partial.remove();
        return Err(Error::Checksum { wanted, got });
    }
    if let Err(error) = kv::header(partial.path()) {
        partial.remove();
        let why = match error {
            kv::HeaderError::Problem { problem, .. } => problem.to_string(),
            error @ kv::HeaderError::File { .. } => error.to_string(),
        };
        return Err(Error::NoModel { address: partial.address(), why });
    }
    partial.state.sha256 = Some(got.to_string());
    Ok((got, wanted.is_some()))
}
