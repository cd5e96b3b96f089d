//! The gateway over real sockets, met by clients and upstreams that mean no good.
//!
//! Every test starts its own gateway and its own upstream on loopback ports: a scripted provider
//! (`firsttoken_sim`) where answers matter, a hand-written one where bytes do. Nothing is judged by
//! how long it took, except against bounds that a busy machine keeps too.
//!
//! - `rig`: a gateway and a provider to talk to. `client`, `upstream`: either side, byte by byte;
//!   `h2`: a client of HTTP/2.
//! - `requests`, `framing`, `keys`, `passing`, `translation`: what comes in, and what of it goes up.
//! - `transport`, `secure`: the way to the upstream and back.
//! - `leaving`, `pressure`, `crowd`, `drain`, `reload`, `blocked`, `evidence`: clients that go, stall or come in
//!   masses; the end; a new configuration; what the gateway says of itself.

#[cfg(test)]
mod client;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod upstream;

#[cfg(test)]
mod h2;

#[cfg(test)]
mod blocked;
#[cfg(test)]
mod crowd;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod evidence;
#[cfg(test)]
mod framing;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod leaving;
#[cfg(test)]
mod passing;
#[cfg(test)]
mod pressure;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod secure;
#[cfg(test)]
mod translation;
#[cfg(test)]
mod transport;
