//! Who the client is where proxies stand in between: `X-Forwarded-For`, believed from trusted peers alone.
//!
//! Invariant: what an untrusted party wrote never decides anything. Of the list only the part counts
//! that trusted proxies appended, read from its end.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

use crate::config::IpNet;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// The client's address: the peer's, or the last one that a chain of trusted proxies vouches for.
pub(crate) fn client_addr(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let mut client = peer.to_canonical();
    let lists = headers.get_all(FORWARDED_FOR).iter().rev();
    let mut hops = lists.flat_map(|list| list.to_str().unwrap_or_default().rsplit(','));
    while trusted.iter().any(|net| net.contains(client)) {
        match hops.next().and_then(|hop| address(hop.trim())) {
            Some(hop) => client = hop.to_canonical(),
            None => break,
        }
    }
    client
}

/// Whether a proxy says that it speaks for somebody else.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    [FORWARDED_FOR, "forwarded", "x-real-ip"].into_iter().any(|name| headers.contains_key(name))
}

/// An address, with or without a port.
fn address(hop: &str) -> Option<IpAddr> {
    let bare = hop.strip_prefix('[').and_then(|hop| hop.strip_suffix(']')).unwrap_or(hop);
    bare.parse().ok().or_else(|| hop.parse::<SocketAddr>().ok().map(|addr| addr.ip()))
}
