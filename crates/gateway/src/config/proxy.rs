//! The proxy that the environment asks for: `HTTPS_PROXY`, except where `NO_PROXY` says otherwise.
//!
//! The small letters win over the capitals, as with curl. Only upstreams reached over TLS are
//! meant by `HTTPS_PROXY`, and never this machine itself. These variables are rarely written for us:
//! a proxy that makes no sense is a problem only where it would be used, and what makes no sense in
//! `NO_PROXY` is passed over, as other programs do.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

use super::env::{Lookup, Text};
use super::problems::{Complaint, Place, Report};
use super::url;

/// What the environment says about proxies.
pub(super) struct EnvProxy {
    /// Name of the variable that is set, and what it says.
    https: Option<(&'static str, Result<Option<Uri>, Complaint>)>,
    /// Knows `NO_PROXY`.
    exempt: Matcher,
}

impl EnvProxy {
    /// Reads the variables.
    pub(super) fn read(env: &Lookup<'_>) -> Self {
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| {
                let value = env(name)?.trim().to_owned();
                (!value.is_empty()).then_some((name, value))
            })
        };
        let exempt = first(["no_proxy", "NO_PROXY"]).map(|(_, list)| list).unwrap_or_default();
        // The matcher takes `*` for host names only, and everyone means addresses too.
        let nothing = exempt.split(',').any(|entry| entry.trim() == "*");
        let https = first(["https_proxy", "HTTPS_PROXY"]).filter(|_| !nothing);
        let https = https.map(|(name, value)| (name, url::proxy(&Text { shown: format!("${name}"), value })));
        // It only answers whether a host is exempt, so any proxy will do.
        let exempt = Matcher::builder().https("http://proxy.invalid").no(exempt).build();
        Self { https, exempt }
    }

    /// The proxy to go through toward `base_url`.
    pub(super) fn toward(&self, base_url: &Uri, report: &mut Report) -> Option<Uri> {
        let host = base_url.host()?.trim_start_matches('[').trim_end_matches(']');
        let here = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|addr| addr.is_loopback());
        let (name, proxy) = self.https.as_ref()?;
        if here || self.exempt.intercept(base_url).is_none() {
            return None;
        }
        match proxy {
            Ok(proxy) => proxy.clone(),
            Err(complaint) => {
                report.add(&Place::Variable((*name).to_owned()), complaint.clone());
                None
            }
        }
    }
}
