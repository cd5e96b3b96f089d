//! The proxy that the environment asks for: `HTTPS_PROXY`, except where `NO_PROXY` says otherwise.
//!
//! The small letters win over the capitals, as with curl. Only upstreams reached over TLS are
//! meant by `HTTPS_PROXY`, and never this machine itself. What is in `NO_PROXY` and makes no sense is
//! passed over, as other programs do: the variable is rarely written for us.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

use super::env::{Lookup, understand};
use super::problems::Report;
use super::url;

/// What the environment says about proxies.
pub(super) struct EnvProxy {
    https: Option<Uri>,
    /// Knows `NO_PROXY`.
    matcher: Matcher,
}

impl EnvProxy {
    /// Reads the variables; a proxy that makes no sense is a problem.
    pub(super) fn read(env: &Lookup<'_>, report: &mut Report) -> Self {
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| {
                let value = env(name)?.trim().to_owned();
                (!value.is_empty()).then_some((name, value))
            })
        };
        let exempt = first(["no_proxy", "NO_PROXY"]).map(|(_, list)| list).unwrap_or_default();
        // The matcher takes `*` for host names only, and everyone means addresses too.
        let nothing = exempt.split(',').any(|entry| entry.trim() == "*");
        let https = first(["https_proxy", "HTTPS_PROXY"])
            .and_then(|(name, value)| understand(name, value, url::proxy, report).flatten())
            .filter(|_| !nothing);
        let proxy = https.as_ref().map(Uri::to_string).unwrap_or_default();
        Self { https, matcher: Matcher::builder().https(proxy).no(exempt).build() }
    }

    /// The proxy to go through toward `base_url`.
    pub(super) fn toward(&self, base_url: &Uri) -> Option<Uri> {
        let host = base_url.host()?.trim_start_matches('[').trim_end_matches(']');
        let here = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|addr| addr.is_loopback());
        if here { None } else { self.matcher.intercept(base_url).and_then(|_| self.https.clone()) }
    }
}
