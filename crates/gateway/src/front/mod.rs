//! The side that callers see.
//!
//! [`server`]: sockets, threads, shutdown; [`client`]: one accepted connection;
//! [`delivery`]: when an answer went out; [`streams`]: each stream of HTTP/2. [`service`]: the order
//! in which a request is judged, by [`endpoint`], [`inbound`], [`headers`], [`forwarded`], [`models`] and
//! [`cors`]; [`plan`]: what is then sent, and in which dialect.
//! [`body`]: what is written back; [`openapi`]: all of that, described; [`page`]: what a browser sees.
//!
//! Invariant: nothing leaves for an upstream before every check has passed.

pub(crate) mod body;
pub(crate) mod client;
mod cors;
pub(crate) mod delivery;
mod endpoint;
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
