//! Why a command about a job was refused. Nothing was changed then.
//!
//! Invariant: a refusal for size or number names the limit.

use crate::error::StoreError;

/// Why a job was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Something of it is too large.
    #[error("the {what} has {bytes} bytes, at most {bytes_max} are kept")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// This tenant has as many jobs as it may.
    #[error("{jobs_max} jobs of this tenant are kept already")]
    TenantFull {
        /// The limit.
        jobs_max: u64,
    },
    /// There are as many jobs as there may be.
    #[error("{jobs_max} jobs are kept already")]
    Full {
        /// The limit.
        jobs_max: u64,
    },
    /// All jobs together take as much as they may.
    #[error("the jobs that are kept take {bytes_max} bytes already")]
    FullBytes {
        /// The limit.
        bytes_max: u64,
    },
    /// Its idempotency key came with something else before.
    #[error("this idempotency key was used for another request")]
    KeyReused,
    /// The store has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a report about a running job was refused.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The job has ended, or is another attempt's.
    #[error("this attempt no longer has the job in hand")]
    Lost,
    /// The output is too large. The job is still in hand.
    #[error("the output has {bytes} bytes, at most {bytes_max} are kept")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The store has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
