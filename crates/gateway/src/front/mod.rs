//! The side that callers see.
//!
//! [`server`]: sockets, threads, shutdown; [`client`]: one accepted connection;
//! [`delivery`]: when an answer went out; [`streams`]: each stream of HTTP/2. [`service`]: the order
//! in which a request is judged, by [`endpoint`], [`inbound`], [`headers`], [`forwarded`], [`models`] and
//! [`cors`]; [`plan`]: what is then sent, and in which dialect.
//! [`engines`]: what those of this machine say of themselves. [`body`]: what is written back;
//! [`page`]: what a browser sees; [`openapi`]: all of that, described.
//!
//! Invariant: nothing leaves for an upstream before every check has passed.

pub(crate) mod body;
pub(crate) mod client;
mod cors;
pub(crate) mod delivery;
mod endpoint;
mod engines;
mod forwarded;
pub(crate) mod headers;
mod inbound;
mod models;
mod openapi;
mod page;
mod plan;
pub mod server;
mod service;
pub(crate) mod streams;
