//! Networks such as `10.0.0.0/8`: read, and asked whether an address belongs to them.
//!
//! Invariant: the bits of an [`IpNet`] beyond its prefix are zero, so that a slip such as
//! `10.1.2.3/8` cannot silently trust more than was written.

use std::net::IpAddr;

use super::IpNet;
use super::env::Text;
use super::problems::Complaint;

impl IpNet {
    /// Whether `addr` is in this network. An IPv4 address mapped into IPv6 counts as IPv4.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        let addr = addr.to_canonical();
        addr.is_ipv4() == self.addr.is_ipv4() && masked(addr, self.prefix) == self.addr
    }

    /// Reads `addr/prefix`, or a single address.
    pub(super) fn parse(text: &Text) -> Result<Self, Complaint> {
        let (value, shown) = (text.value.trim(), &text.shown);
        let (addr, prefix) = value.split_once('/').map_or((value, None), |(addr, bits)| (addr, Some(bits)));
        let Ok(addr) = addr.parse::<IpAddr>() else {
            return Err(Complaint::new(format!("`{shown}` is neither an address nor a network"))
                .hint("write 10.0.0.0/8, 192.0.2.7 or fd00::/8"));
        };
        let bits = if addr.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix.map(str::parse::<u8>) {
            None => bits,
            Some(Ok(prefix)) if prefix <= bits => prefix,
            Some(_) => {
                return Err(Complaint::new(format!("`{shown}` has a prefix that is not 0 to {bits}")));
            }
        };
        let network = masked(addr, prefix);
        if network != addr {
            return Err(Complaint::new(format!("`{shown}` is an address with a prefix, not a network"))
                .hint(format!("write {network}/{prefix}, or the address alone")));
        }
        Ok(Self { addr, prefix })
    }
}

fn masked(addr: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match addr {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & u32::MAX.checked_shl(32 - prefix).unwrap_or(0)).into()),
        IpAddr::V6(v6) => {
            IpAddr::V6((v6.to_bits() & u128::MAX.checked_shl(128 - prefix).unwrap_or(0)).into())
        }
    }
}
