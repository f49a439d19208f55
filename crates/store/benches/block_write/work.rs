//! What is written where: a random order drawn beforehand, and bytes that change with every
//! operation.

/// Blocks in a random order, each once, over and over.
pub(crate) struct Walk {
    order: Vec<u32>,
    at: usize,
}

impl Walk {
    /// The blocks of `range`, shuffled.
    pub(crate) fn new(range: std::ops::Range<u32>) -> Walk {
        let mut order: Vec<u32> = range.collect();
        fastrand::Rng::with_seed(order.len() as u64).shuffle(&mut order);
        Walk { order, at: 0 }
    }

    /// The next block.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        let block = self.order[self.at];
        self.at += 1;
        if self.at == self.order.len() {
            self.at = 0;
        }
        u64::from(block)
    }
}

/// A page-aligned buffer, as a database's buffer pool has them.
pub(crate) struct Payload {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
    count: u64,
}

impl Payload {
    pub(crate) fn new(len: usize) -> Payload {
        let bytes = crate::peers::noise(len + 4096);
        let from = bytes.as_ptr().align_offset(4096);
        Payload { bytes, from, len, count: 0 }
    }

    /// The bytes of the next write: a word at the start and one further on are new.
    #[inline]
    pub(crate) fn next(&mut self) -> &[u8] {
        self.count += 1;
        let inner = (self.count as usize * 64) % self.len;
        let bytes = &mut self.bytes[self.from..self.from + self.len];
        bytes[inner..inner + 8].copy_from_slice(&self.count.to_le_bytes());
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    /// The same memory to read into.
    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
}
