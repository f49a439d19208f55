//! A latency histogram with bounded error: 64 buckets of equal width in every octave.
//!
//! | value | bucket width | error of the middle |
//! |---|---|---|
//! | below 128 ns | 1 ns | none |
//! | 2^k .. 2^(k+1) ns | 2^(k-6) ns | at most 1/128 |
//! | 2^42 ns (73 min) and above | counted in the last bucket | total and maximum stay exact |
//!
//! Sixty-four, not sixteen, because 1000 is 125 x 8: with this width every power of two of a
//! *microsecond* is a border between two buckets, so the tables that Oracle's reports print
//! (`< 8 us`, `< 16 us`, ...) are exact.
//!
//! Octaves that hold nothing take no memory. Not here: atomics (`shard.rs` has the same shape in
//! atomics).

/// Bits of a value that choose the bucket within its octave.
const SUB_BITS: u32 = 6;
/// Buckets in an octave.
pub(crate) const SUBS: usize = 1 << SUB_BITS;
/// The largest power of two that has a bucket of its own.
const TOP_BIT: u32 = 41;
/// Octaves: values below 64, then one per power of two up to `TOP_BIT`.
pub(crate) const OCTAVES: usize = (TOP_BIT - SUB_BITS) as usize + 2;
/// The largest value that is not moved into the last bucket.
pub(crate) const MAX_VALUE_NS: u64 = (1 << (TOP_BIT + 1)) - 1;

/// Octave and bucket of a value.
#[inline]
pub(crate) fn place(value_ns: u64) -> (usize, usize) {
    let value = value_ns.min(MAX_VALUE_NS);
    if value < SUBS as u64 {
        return (0, value as usize);
    }
    let shift = value.ilog2() - SUB_BITS;
    (shift as usize + 1, (value >> shift) as usize - SUBS)
}

/// First value of a bucket, and how many values it holds.
fn bounds(octave: usize, sub: usize) -> (u64, u64) {
    match octave {
        0 => (sub as u64, 1),
        _ => (((SUBS + sub) as u64) << (octave - 1), 1 << (octave - 1)),
    }
}

/// One bucket that holds something: `count` values from `low_ns` up to, not including, `end_ns`.
///
/// The last bucket of the range also holds every larger value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest value that falls into the bucket.
    pub low_ns: u64,
    /// The first value that does not.
    pub end_ns: u64,
    /// Values in it.
    pub count: u64,
}

/// Why a histogram could not be put together from parts that were read somewhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistogramError {
    /// The first value of a bucket is not one of this histogram's borders.
    #[error(
        "{low_ns} ns is not the lower border of a histogram bucket; the nearest is {border_ns} ns: \
         the data is damaged or was written with another bucket width"
    )]
    NotABorder {
        /// What was given.
        low_ns: u64,
        /// The border of the bucket the value falls into.
        border_ns: u64,
    },
    /// The counts do not fit 64 bits.
    #[error("the counts of the histogram add up to more than 64 bits hold: the data is damaged")]
    TooMany,
}

/// Counts of values by size, with their exact sum and maximum.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    octaves: Vec<Option<Box<[u64; SUBS]>>>,
    total_ns: u64,
    max_ns: u64,
}

impl Histogram {
    /// A histogram that holds nothing and has allocated nothing.
    pub const fn new() -> Histogram {
        Histogram { octaves: Vec::new(), total_ns: 0, max_ns: 0 }
    }

    /// Counts one value.
    pub fn record(&mut self, value_ns: u64) {
        let (octave, sub) = place(value_ns);
        self.octave_mut(octave)[sub] += 1;
        self.total_ns = self.total_ns.saturating_add(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// Puts a histogram together from what [`Histogram::buckets`] gave, for instance after reading
    /// it from a file.
    ///
    /// # Errors
    /// If a bucket does not begin at a border of this histogram, or the counts overflow.
    pub fn from_buckets(
        buckets: impl IntoIterator<Item = (u64, u64)>,
        total_ns: u64,
        max_ns: u64,
    ) -> Result<Histogram, HistogramError> {
        let mut histogram = Histogram { octaves: Vec::new(), total_ns, max_ns };
        let mut all = 0u64;
        for (low_ns, count) in buckets {
            let (octave, sub) = place(low_ns);
            let border_ns = bounds(octave, sub).0;
            if border_ns != low_ns {
                return Err(HistogramError::NotABorder { low_ns, border_ns });
            }
            all = all.checked_add(count).ok_or(HistogramError::TooMany)?;
            if count > 0 {
                histogram.octave_mut(octave)[sub] += count;
            }
        }
        Ok(histogram)
    }

    fn octave_mut(&mut self, octave: usize) -> &mut [u64; SUBS] {
        if self.octaves.len() <= octave {
            self.octaves.resize_with(octave + 1, || None);
        }
        self.octaves[octave].get_or_insert_with(|| Box::new([0; SUBS]))
    }

    /// Adds the counts of one octave, its share of the sum, and a candidate for the maximum.
    pub(crate) fn add_octave(&mut self, octave: usize, count_of: impl Fn(usize) -> u64) {
        let counts = self.octave_mut(octave);
        for (sub, count) in counts.iter_mut().enumerate() {
            *count += count_of(sub);
        }
    }

    /// Adds to the sum and raises the maximum, for counts added by `add_octave`.
    pub(crate) fn add_summary(&mut self, total_ns: u64, max_ns: u64) {
        self.total_ns = self.total_ns.saturating_add(total_ns);
        self.max_ns = self.max_ns.max(max_ns);
    }

    /// Adds another histogram to this one.
    pub fn merge(&mut self, other: &Histogram) {
        for (octave, counts) in other.octaves.iter().enumerate() {
            if let Some(counts) = counts {
                self.add_octave(octave, |sub| counts[sub]);
            }
        }
        self.add_summary(other.total_ns, other.max_ns);
    }

    /// What was added since `earlier`, a copy of this histogram taken before.
    ///
    /// The maximum of the difference is the end of its highest bucket, or the maximum of all if
    /// that is less: which of the values in that bucket came after `earlier` is not known.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut difference = Histogram::new();
        for (octave, counts) in self.octaves.iter().enumerate() {
            let Some(counts) = counts else { continue };
            let before = earlier.octaves.get(octave).and_then(Option::as_ref);
            let grown =
                |sub: usize| counts[sub].saturating_sub(before.map_or(0, |before| before[sub]));
            if (0..SUBS).any(|sub| grown(sub) > 0) {
                difference.add_octave(octave, grown);
            }
        }
        difference.total_ns = self.total_ns.saturating_sub(earlier.total_ns);
        let highest = difference.buckets().last();
        difference.max_ns = match highest {
            None => 0,
            Some(bucket) if bucket.end_ns > MAX_VALUE_NS => self.max_ns,
            Some(bucket) => self.max_ns.min(bucket.end_ns - 1),
        };
        difference
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.octaves.iter().flatten().flat_map(|counts| counts.iter()).sum()
    }

    /// The exact sum of all values.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// The exact mean, or nothing if nothing was counted.
    pub fn mean_ns(&self) -> Option<f64> {
        match self.count() {
            0 => None,
            count => Some(self.total_ns as f64 / count as f64),
        }
    }

    /// The lower border of the smallest value's bucket: at most 1/64 below it.
    pub fn min_ns(&self) -> Option<u64> {
        self.buckets().next().map(|bucket| bucket.low_ns)
    }

    /// The largest value: exact in a reading, see [`Histogram::since`] for a difference.
    pub fn max_ns(&self) -> Option<u64> {
        self.buckets().next().map(|_| self.max_ns)
    }

    /// The value that a share `q` (0 to 1) of all values does not exceed, within 1/128; nothing if
    /// nothing was counted.
    ///
    /// It is the middle of the bucket that holds the value of that rank (nearest rank). `q` outside
    /// 0 to 1 counts as the nearer end.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for bucket in self.buckets() {
            seen += bucket.count;
            if seen >= rank {
                if bucket.end_ns > MAX_VALUE_NS {
                    return Some(self.max_ns.max(bucket.low_ns));
                }
                let middle_ns = bucket.low_ns + (bucket.end_ns - bucket.low_ns) / 2;
                return Some(middle_ns.min(self.max_ns.max(bucket.low_ns)));
            }
        }
        None
    }

    /// The buckets that hold something, smallest values first.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.octaves.iter().enumerate().flat_map(|(octave, counts)| {
            counts.iter().flat_map(move |counts| {
                counts.iter().enumerate().filter(|(_, count)| **count > 0).map(
                    move |(sub, count)| {
                        let (low_ns, width_ns) = bounds(octave, sub);
                        Bucket { low_ns, end_ns: low_ns + width_ns, count: *count }
                    },
                )
            })
        })
    }

    /// Counts by powers of two of a microsecond, as workload reports print them: item `k` counts
    /// the values below `2^k` us that are not in an item before it. Exact; ends with the last item
    /// that is not zero.
    pub fn powers_of_two_us(&self) -> Vec<u64> {
        let mut rows = Vec::new();
        for bucket in self.buckets() {
            let row = match bucket.low_ns / 1_000 {
                0 => 0,
                us => us.ilog2() as usize + 1,
            };
            if rows.len() <= row {
                rows.resize(row + 1, 0);
            }
            rows[row] += bucket.count;
        }
        rows
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Histogram) -> bool {
        self.total_ns == other.total_ns
            && self.max_ns == other.max_ns
            && self.buckets().eq(other.buckets())
    }
}

impl Eq for Histogram {}
