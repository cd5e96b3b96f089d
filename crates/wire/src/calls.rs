//! Numbers the calls among the numbered blocks of an answer, as OpenAI Responses and Anthropic
//! number them: all kinds of blocks together. Blocks come in rising order, so the number of a call
//! is the number of calls before it.

/// The calls of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    /// Bit per block that is a call, for the first 64 blocks.
    blocks: u64,
    /// Number of the block of the latest call.
    latest: Option<u64>,
    count: u32,
}

impl Calls {
    /// A call begins in `block`: its number.
    pub(crate) fn begin(&mut self, block: Option<u64>) -> u32 {
        let index = self.count;
        self.count = self.count.saturating_add(1);
        self.latest = block;
        self.blocks |= block.map_or(0, bit);
        index
    }

    /// How many calls began.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// The number of the call in `block`; `None` where that block is no call.
    pub(crate) fn index(&self, block: Option<u64>) -> Option<u32> {
        if block == self.latest {
            return self.count.checked_sub(1);
        }
        let bit = bit(block?);
        (self.blocks & bit != 0).then(|| (self.blocks & (bit - 1)).count_ones())
    }
}

fn bit(block: u64) -> u64 {
    u32::try_from(block).ok().and_then(|block| 1_u64.checked_shl(block)).unwrap_or(0)
}
