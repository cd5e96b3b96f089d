//! The proxy that the environment asks for: `HTTPS_PROXY`, except where `NO_PROXY` says otherwise.
//!
//! The small letters win over the capitals, as with curl. Only upstreams reached over TLS are
//! meant by `HTTPS_PROXY`, and never this machine itself. What is in `NO_PROXY` and makes no sense is
//! passed over, as other programs do: the variable is rarely written for us.

use std::net::IpAddr;

use http::Uri;
use http::uri::Scheme;

use super::env::{Lookup, Text, understand};
use super::problems::Report;
use super::{IpNet, url};

/// What the environment says about proxies.
pub(super) struct EnvProxy {
    https: Option<Uri>,
    direct: Vec<Direct>,
}

/// One entry of `NO_PROXY`.
enum Direct {
    Everything,
    Net(IpNet),
    /// This host and every host below it.
    Domain { name: String, port: Option<u16> },
}

impl EnvProxy {
    /// Reads the variables; a proxy that makes no sense is a problem.
    pub(super) fn read(env: &Lookup<'_>, report: &mut Report) -> Self {
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| env(name).filter(|v| !v.trim().is_empty()).map(|v| (name, v)))
        };
        let https = first(["https_proxy", "HTTPS_PROXY"])
            .and_then(|(name, value)| understand(name, value.trim().to_owned(), url::proxy, report).flatten());
        let direct = first(["no_proxy", "NO_PROXY"])
            .map(|(_, list)| list.split(',').filter_map(Direct::parse).collect())
            .unwrap_or_default();
        Self { https, direct }
    }

    /// The proxy to go through toward `base_url`.
    pub(super) fn toward(&self, base_url: &Uri) -> Option<Uri> {
        let host = base_url.host()?.to_lowercase();
        let port = base_url.port_u16().unwrap_or(443);
        let addr = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let here = host == "localhost" || addr.is_some_and(|addr| addr.is_loopback());
        let direct = here || self.direct.iter().any(|entry| entry.matches(&host, addr, port));
        if base_url.scheme() == Some(&Scheme::HTTPS) && !direct { self.https.clone() } else { None }
    }
}

impl Direct {
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.trim().to_lowercase();
        if entry == "*" {
            return Some(Self::Everything);
        }
        if let Ok(net) = IpNet::parse(&Text { value: entry.clone(), shown: String::new() }) {
            return Some(Self::Net(net));
        }
        let (name, port) = match entry.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.parse().ok()?)),
            None => (entry.as_str(), None),
        };
        let name = name.trim_start_matches("*.").trim_start_matches('.');
        (!name.is_empty()).then(|| Self::Domain { name: name.to_owned(), port })
    }

    fn matches(&self, host: &str, addr: Option<IpAddr>, port: u16) -> bool {
        match self {
            Self::Everything => true,
            Self::Net(net) => addr.is_some_and(|addr| net.contains(addr)),
            Self::Domain { name, port: wanted } => {
                wanted.is_none_or(|wanted| wanted == port)
                    && host
                        .strip_suffix(name.as_str())
                        .is_some_and(|before| before.is_empty() || before.ends_with('.'))
            }
        }
    }
}
