//! How much the store keeps. What is beyond is refused, with the limit in the refusal.
//!
//! Invariant: what was accepted is never refused its result for lack of room in the totals; they are asked when
//! a job comes.

/// Texts by which jobs are found or told (tenant, idempotency key, webhook URL, event id), at most so long.
pub const TEXT_BYTES_MAX: u64 = 2048;

/// The bounds of a store.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The request of a job.
    pub request_bytes_max: u64,
    /// What a job has produced: its result, and before that what was saved of it.
    pub output_bytes_max: u64,
    /// Jobs of one tenant that are kept, in whatever state.
    pub jobs_per_tenant_max: u64,
    /// Jobs of all tenants that are kept, in whatever state.
    pub jobs_max: u64,
    /// Requests and outputs together. No new job is accepted beyond; outputs of those that were may still exceed
    /// it, by [`output_bytes_max`](Self::output_bytes_max) each.
    pub bytes_max: u64,
    /// How often a job is begun. One whose process has died so many times is `interrupted`: it may well be
    /// the cause.
    pub attempts_max: u32,
    /// How often a webhook is tried.
    pub webhook_attempts_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes_max: 8 << 20,
            output_bytes_max: 8 << 20,
            jobs_per_tenant_max: 10_000,
            jobs_max: 100_000,
            bytes_max: 8 << 30,
            attempts_max: 32,
            webhook_attempts_max: 12,
        }
    }
}
