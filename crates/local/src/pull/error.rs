//! Why a file could not be fetched, and what to do.
//!
//! Invariant: no error tells a token, or the query of an address, which may be signed.

use std::io;
use std::path::PathBuf;

use super::Checksum;
use crate::figures::whole;

/// Why a file could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for is no name.
    #[error("`{name}` names nothing to fetch: {why}")]
    Name {
        /// What was asked for.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// An address that is not asked, or not stored under.
    #[error("{address}: {why}")]
    Address {
        /// It, without its query.
        address: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A checksum that is none.
    #[error("`{0}` is no SHA-256 sum, which has 64 hexadecimal digits")]
    NoChecksum(String),
    /// A token that is none.
    #[error("the token in HF_TOKEN has a character that no token has, such as a line end")]
    Token,
    /// Nothing to check a server's identity with.
    #[error("this system has no root certificates ({0}); install the package ca-certificates")]
    Roots(#[source] io::Error),
    /// A hub's repository does not have the one file that was meant.
    #[error("{repo}: {why} (there: {there})")]
    Choice {
        /// The repository.
        repo: String,
        /// What is wrong.
        why: &'static str,
        /// What it has.
        there: String,
    },
    /// Nobody is there.
    #[error("{server} cannot be reached: {why}")]
    Unreachable {
        /// Name and port.
        server: String,
        /// The innermost cause.
        why: String,
    },
    /// Somebody is there and says nothing.
    #[error("{server} has said nothing for {seconds} s; what came so far is kept, run this again to go on")]
    Silent {
        /// Name and port.
        server: String,
        /// For how long.
        seconds: u64,
    },
    /// An answer that is no success.
    #[error("{address} answers {status}{hint}")]
    Status {
        /// Which address.
        address: String,
        /// What it answers.
        status: http::StatusCode,
        /// What to do.
        hint: &'static str,
    },
    /// An endless chain.
    #[error("{0} redirects too often")]
    Redirects(String),
    /// A server that breaks the rules.
    #[error("{address}: {why}")]
    Answer {
        /// Which address.
        address: String,
        /// What it did.
        why: String,
    },
    /// It broke off.
    #[error(
        "{address} broke off after {} of {} bytes ({why}); run this again to go on",
        whole(*done),
        whole(*total)
    )]
    Cut {
        /// Which address.
        address: String,
        /// How much has come.
        done: u64,
        /// How much there is.
        total: u64,
        /// The innermost cause.
        why: String,
    },
    /// Two checksums before anything was fetched.
    #[error("the file that is offered has the checksum {named}, not {wanted}: it is another one")]
    Disagreement {
        /// What the file must have.
        wanted: Checksum,
        /// What its server says.
        named: Checksum,
    },
    /// The file is not what it should be.
    #[error("the file has the checksum {got}, not {wanted}; it was thrown away: fetch it again")]
    Checksum {
        /// What it must have.
        wanted: Checksum,
        /// What it has.
        got: Checksum,
    },
    /// It is whole, and no model that we could run.
    #[error("what {address} sends is no model that can be run: {why}")]
    NoModel {
        /// Which address.
        address: String,
        /// What is wrong.
        why: String,
    },
    /// No room on the disk.
    #[error("no room for {}: {why}; free some, or choose another folder with --dir", path.display())]
    Full {
        /// Which file.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// The disk says something else.
    #[error("{}: {error}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Somebody else fetches it.
    #[error("{} is being fetched by another process; wait for it or end it", .0.display())]
    Busy(PathBuf),
}
