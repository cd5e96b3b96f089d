//! What is to be fetched: a hub's name or an address, and where it comes to lie.
//!
//! Names, addresses and redirects come from outside. Each is taken apart here, and what could lead out
//! of the cache's folder, to an unencrypted connection, or a token to a stranger, is refused.
//!
//! Invariant: a path that leaves this module has only plain names for parts; an address is HTTPS, or HTTP
//! to this machine.

use std::path::PathBuf;

use http::Uri;

use super::Error;
use crate::cache::{GGUF, part};

/// Most parts of a path.
const PARTS_MAX: usize = 16;

/// What somebody asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// `user/repo`, and which of its files.
    Hub { repo: String, quant: Option<String> },
    /// A file anywhere.
    Address(Uri),
}

impl Wanted {
    /// Reads `text`: an address if it has a scheme, else a hub's name.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        if text.contains("://") {
            return Ok(Self::Address(address(text)?));
        }
        let wrong = |why| Error::Name { name: text.to_owned(), why };
        let (repo, quant) = text.split_once(':').map_or((text, None), |(repo, quant)| (repo, Some(quant)));
        let parts: Vec<&str> = repo.split('/').collect();
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        if parts.len() != 2 || !parts.iter().all(|text| plain(text) && part(text).is_some()) {
            return Err(wrong("give `user/repo:QUANT`, or an address that begins with https://"));
        }
        if quant.is_some_and(|quant| !plain(quant) || part(quant).is_none()) {
            return Err(wrong("what follows the colon names a quantisation, such as Q4_K_M, or a file"));
        }
        Ok(Self::Hub { repo: repo.to_owned(), quant: quant.map(str::to_owned) })
    }
}

/// Reads an address to fetch from.
pub(super) fn address(text: &str) -> Result<Uri, Error> {
    let wrong = |why| Error::Address { address: text.split(['?', '#']).next().unwrap_or("").to_owned(), why };
    // What follows `#` is for browsers.
    let text = text.split('#').next().unwrap_or_default();
    let uri: Uri = text.parse().map_err(|_| wrong("this is no address; blanks are written %20"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(wrong("this is no address; it begins with https://"));
    };
    if authority.as_str().contains('@') {
        return Err(wrong("it has a name or a password in it, which would end up in logs"));
    }
    match scheme {
        "https" => Ok(uri),
        "http" if is_this_machine(authority.host()) => Ok(uri),
        "http" => Err(wrong("only this machine is asked without encryption; use https://")),
        _ => Err(wrong("only https:// is spoken")),
    }
}

/// Where the redirect of `from` to `location` leads.
pub(super) fn redirected(from: &Uri, location: &str) -> Result<Uri, Error> {
    let scheme = from.scheme_str().unwrap_or("https");
    let wrong = |why| Error::Address { address: shown(from), why };
    let to = match location {
        absolute if absolute.contains("://") && !absolute.starts_with('/') => address(absolute)?,
        other if other.starts_with("//") => address(&format!("{scheme}:{other}"))?,
        path if path.starts_with('/') => {
            let authority = from.authority().map_or("", |authority| authority.as_str());
            address(&format!("{scheme}://{authority}{path}"))?
        }
        _ => return Err(wrong("it redirects to a place that is no address")),
    };
    if scheme == "https" && to.scheme_str() != Some("https") {
        return Err(wrong("it redirects to an address without encryption"));
    }
    Ok(to)
}

/// A hub's page about a file, which is what a browser shows, has the file beside it.
pub(super) fn without_page(uri: Uri, hub: &Uri) -> Result<Uri, Error> {
    let parts: Vec<&str> = uri.path().split('/').collect();
    match parts[..] {
        ["", user, repo, "blob", ref file @ ..] if is_one_server(&uri, hub) => {
            let authority = uri.authority().map_or("", |authority| authority.as_str());
            let scheme = uri.scheme_str().unwrap_or("https");
            address(&format!("{scheme}://{authority}/{user}/{repo}/resolve/{}", file.join("/")))
        }
        _ => Ok(uri),
    }
}

/// Whether two addresses are of one server, to which a secret of one may be told for the other.
pub(super) fn is_one_server(a: &Uri, b: &Uri) -> bool {
    let usual = |uri: &Uri| if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let port = |uri: &Uri| uri.port_u16().unwrap_or_else(|| usual(uri));
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme() == b.scheme() && host(a).is_some() && host(a) == host(b) && port(a) == port(b)
}

/// An address for a person, without a query, which may hold a signature.
pub(super) fn shown(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    format!("{scheme}://{}{}", uri.authority().map_or("", |authority| authority.as_str()), uri.path())
}

/// Where the file of an address lies in the cache: below its server's name.
pub(super) fn place_of(uri: &Uri) -> Result<PathBuf, Error> {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let server = authority.replace(['[', ']'], "").replace(':', "_");
    place(&server, uri.path()).map_err(|why| Error::Address { address: shown(uri), why })
}

/// Where a file lies in the cache: the parts of `path`, a percent-encoded one, below those of `base`.
pub(super) fn place(base: &str, path: &str) -> Result<PathBuf, &'static str> {
    let mut place = PathBuf::new();
    let mut parts = 0;
    for text in base.split('/').chain(path.trim_start_matches('/').split('/')) {
        let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
        let decoded = decoded.map_err(|_| "its path is no UTF-8")?;
        place.push(part(&decoded).ok_or("a part of its path is no plain name")?);
        parts += 1;
    }
    if parts > PARTS_MAX {
        return Err("its path has more than 16 parts");
    }
    match place.file_name().and_then(|name| name.to_str()) {
        Some(name) if name.ends_with(GGUF) => Ok(place),
        _ => Err("it names no file that ends in .gguf"),
    }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses() {
        let hub = |repo: &str, quant: Option<&str>| Wanted::Hub {
            repo: repo.to_owned(),
            quant: quant.map(str::to_owned),
        };
        assert_eq!(Wanted::parse("a/b").unwrap(), hub("a/b", None));
        assert_eq!(Wanted::parse("a/b-GGUF:Q4_K_M").unwrap(), hub("a/b-GGUF", Some("Q4_K_M")));
        let wrong = [
            "",
            "a",
            "a/b/c",
            "/a/b",
            "../b",
            "a/..",
            "a/b:",
            "a/b:..",
            "a/b:x/y",
            "a/b:../x",
            "~/b",
            "a /b",
            "a/b%2e",
            "a\\b/c",
            "./b",
            "a/b:%2e%2e",
        ];
        for text in wrong {
            assert!(matches!(Wanted::parse(text), Err(Error::Name { .. })), "{text}");
        }
        for text in
            ["https://h.example/m.gguf", "http://127.0.0.1:8/m.gguf", "http://[::1]/x", "http://localhost/x"]
        {
            assert!(matches!(Wanted::parse(text), Ok(Wanted::Address(_))), "{text}");
        }
        for text in [
            "http://h.example/m.gguf",
            "http://127.0.0.1.example/x",
            "ftp://127.0.0.1/x",
            "file:///etc/passwd",
            "https://me:secret@h.example/x",
            "https:///x",
            "https://h.example/a b",
        ] {
            assert!(matches!(Wanted::parse(text), Err(Error::Address { .. })), "{text}");
        }
    }

    #[test]
    fn no_path_leads_out() {
        let place = |text: &str| place_of(&text.parse().unwrap());
        assert_eq!(place("https://h.example/a/m.gguf?x=1").unwrap().to_str(), Some("h.example/a/m.gguf"));
        assert_eq!(place("http://[::1]:80/my%20m.gguf").unwrap().to_str(), Some("__1_80/my m.gguf"));
        for path in [
            "../m.gguf",
            "a/../../m.gguf",
            "%2e%2e/m.gguf",
            "%2E./m.gguf",
            "a/%2e%2e/m.gguf",
            "a%2fb.gguf",
            "..%2fm.gguf",
            "a//m.gguf",
            "a\\..\\m.gguf",
            "m.gguf%00",
            "%00m.gguf",
            "a%0am.gguf",
            ".hidden.gguf",
            ".gguf",
            "m.bin",
            "",
            "a/",
            "%ff.gguf",
            "-rf.gguf",
            "~/m.gguf",
        ] {
            assert!(super::place("user/repo", &format!("/{path}")).is_err(), "{path}");
            assert!(super::place("..", path).is_err(), "{path}");
        }
        // A leading slash begins no path of its own.
        assert_eq!(super::place("u/r", "/abs/m.gguf").unwrap().to_str(), Some("u/r/abs/m.gguf"));
        assert!(super::place("u/r", &format!("{}.gguf", "x".repeat(250))).is_err());
        assert!(super::place("u/r", &format!("{}m.gguf", "a/".repeat(20))).is_err());
    }

    #[test]
    fn a_page_of_the_hub_leads_to_its_file() {
        let hub: Uri = "https://hub.example".parse().unwrap();
        let file = |text: &str| without_page(text.parse().unwrap(), &hub).unwrap().to_string();
        let there = "https://hub.example/u/r/resolve/main/a/m.gguf";
        assert_eq!(file("https://hub.example/u/r/blob/main/a/m.gguf?x=1"), there);
        assert_eq!(file(there), there);
        let elsewhere = "https://other.example/u/r/blob/main/m.gguf";
        assert_eq!(file(elsewhere), elsewhere);
    }

    #[test]
    fn redirects() {
        let from: Uri = "https://hub.example/a/m.gguf".parse().unwrap();
        let to = |location: &str| redirected(&from, location).map(|uri| uri.to_string());
        assert_eq!(to("/b?c=d").unwrap(), "https://hub.example/b?c=d");
        assert_eq!(to("//cdn.example/b").unwrap(), "https://cdn.example/b");
        assert_eq!(to("https://cdn.example/b?u=http://x").unwrap(), "https://cdn.example/b?u=http://x");
        for location in ["http://127.0.0.1/b", "http://hub.example/b", "b", "", "file:///b", "https://a@b/"] {
            assert!(to(location).is_err(), "{location}");
        }
    }

    #[test]
    fn one_server_is_scheme_host_and_port() {
        let same = |a: &str, b: &str| is_one_server(&a.parse().unwrap(), &b.parse().unwrap());
        assert!(same("https://Hub.example/a", "https://hub.example:443/b"));
        assert!(!same("https://hub.example/a", "https://hub.example:444/a"));
        assert!(!same("https://hub.example/a", "https://cdn.hub.example/a"));
        assert!(!same("http://hub.example/a", "https://hub.example/a"));
    }
}
