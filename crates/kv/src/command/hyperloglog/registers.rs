//! The registers of a HyperLogLog, and the bytes in which Redis keeps them.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `HYLL` |
//! | 4 | 0: dense, 1: sparse |
//! | 5..8 | nothing |
//! | 8..16 | a cached count, little-endian; the highest bit: there is none |
//! | 16.. | dense: 16384 registers of 6 bits, the lowest bits first; sparse: runs of registers |
//!
//! | run | registers |
//! |---|---|
//! | `00nnnnnn` | n + 1 that are zero |
//! | `01nnnnnn nnnnnnnn` | n + 1 that are zero |
//! | `1vvvvvnn` | n + 1 that are v + 1 |
//!
//! **Invariants**: any bytes are read, or refused: no bytes make it panic. What is dense stays
//! dense, as in Redis. Where the runs could be cut in several ways, each of which Redis reads, they
//! are written in the shortest one; so the bytes may differ from those that Redis would write.

const COUNT: usize = 16384;
const HEAD: usize = 16;
const DENSE: usize = HEAD + COUNT * 6 / 8;
/// Beyond that many bytes Redis (`hll-sparse-max-bytes`) makes it dense.
const SPARSE_MAX: usize = 3000;
/// The highest value that a run can have.
const RUN_VALUE_MAX: u8 = 32;
/// The longest there is: runs of one register each.
pub(super) const BYTES_MAX: usize = HEAD + 2 * COUNT;
/// Bits of a hash that choose the register's value.
const Q: u32 = 50;

/// Why bytes are no HyperLogLog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    /// They are something else.
    Other,
    /// They begin like one.
    Corrupt,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    all: [u8; COUNT],
    dense: bool,
}

impl Default for Registers {
    fn default() -> Registers {
        Registers { all: [0; COUNT], dense: false }
    }
}

impl Registers {
    pub(super) fn decode(bytes: &[u8]) -> Result<Box<Registers>, Invalid> {
        if bytes.len() < HEAD || !bytes.starts_with(b"HYLL") {
            return Err(Invalid::Other);
        }
        let mut registers = Box::<Registers>::default();
        match bytes[4] {
            0 if bytes.len() == DENSE => {
                registers.dense = true;
                let triples = bytes[HEAD..].chunks_exact(3);
                for (four, three) in registers.all.chunks_exact_mut(4).zip(triples) {
                    let bits = u32::from_le_bytes([three[0], three[1], three[2], 0]);
                    for (n, register) in (0..).zip(four) {
                        *register = (bits >> (6 * n)) as u8 & 63;
                    }
                }
            }
            1 => registers.read_runs(&bytes[HEAD..])?,
            _ => return Err(Invalid::Other),
        }
        Ok(registers)
    }

    fn read_runs(&mut self, mut runs: &[u8]) -> Result<(), Invalid> {
        let mut at = 0;
        loop {
            let (value, count) = match *runs {
                [] => break,
                [run, ..] if run & 0x80 != 0 => (1 + (run >> 2 & 31), 1 + usize::from(run & 3)),
                [run, ..] if run & 0x40 == 0 => (0, 1 + usize::from(run)),
                [run, low, ..] => (0, 1 + (usize::from(run & 63) << 8 | usize::from(low))),
                [_] => return Err(Invalid::Corrupt),
            };
            runs = &runs[if runs[0] & 0xc0 == 0x40 { 2 } else { 1 }..];
            self.all.get_mut(at..at + count).ok_or(Invalid::Corrupt)?.fill(value);
            at += count;
        }
        if at == COUNT { Ok(()) } else { Err(Invalid::Corrupt) }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let sparse = if self.dense { None } else { self.runs() };
        let mut bytes = Vec::with_capacity(DENSE);
        bytes.extend(b"HYLL");
        bytes.push(u8::from(sparse.is_some()));
        bytes.extend([0, 0, 0]);
        bytes.extend((1_u64 << 63).to_le_bytes());
        match sparse {
            Some(runs) => bytes.extend(runs),
            None => {
                for four in self.all.chunks_exact(4) {
                    let bits = four
                        .iter()
                        .rev()
                        .fold(0, |bits, register| bits << 6 | u32::from(*register));
                    bytes.extend(&bits.to_le_bytes()[..3]);
                }
            }
        }
        bytes
    }

    /// The runs, if they are short enough and can have the values.
    fn runs(&self) -> Option<Vec<u8>> {
        let mut runs = Vec::new();
        for run in self.all.chunk_by(|a, b| a == b) {
            let (value, count) = (run[0], run.len());
            match (value, count) {
                (0, 1..=64) => runs.push((count - 1) as u8),
                (0, _) => runs.extend([0x40 | ((count - 1) >> 8) as u8, (count - 1) as u8]),
                (1..=RUN_VALUE_MAX, _) => {
                    runs.extend(
                        run.chunks(4).map(|part| 0x80 | (value - 1) << 2 | (part.len() - 1) as u8),
                    );
                }
                _ => return None,
            }
            if HEAD + runs.len() > SPARSE_MAX {
                return None;
            }
        }
        Some(runs)
    }

    /// Adds an element, and returns whether that changed a register.
    pub(super) fn add(&mut self, element: &[u8]) -> bool {
        let hash = murmur64a(element);
        let register = &mut self.all[hash as usize % COUNT];
        let value = (hash >> 14 | 1 << Q).trailing_zeros() as u8 + 1;
        let grows = value > *register;
        *register = value.max(*register);
        grows
    }

    pub(super) fn merge(&mut self, other: &Registers) {
        self.dense |= other.dense;
        for (register, other) in self.all.iter_mut().zip(&other.all) {
            *register = (*register).max(*other);
        }
    }

    /// How many different elements were added, by the estimator of Otmar Ertl ("New cardinality
    /// estimation algorithms for HyperLogLog sketches", 2017), which Redis uses.
    pub(super) fn count(&self) -> u64 {
        let mut how_many = [0_u32; 64];
        for register in &self.all {
            how_many[usize::from(*register & 63)] += 1;
        }
        let m = COUNT as f64;
        let mut z = m * tau((m - f64::from(how_many[Q as usize + 1])) / m);
        for count in how_many[1..=Q as usize].iter().rev() {
            z = (z + f64::from(*count)) * 0.5;
        }
        z += m * sigma(f64::from(how_many[0]) / m);
        (0.5 / std::f64::consts::LN_2 * m * m / z).round() as u64
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// MurmurHash64A with Redis's seed.
fn murmur64a(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = 0xadc8_3b19 ^ (bytes.len() as u64).wrapping_mul(M);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 47;
        hash = (hash ^ k.wrapping_mul(M)).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(M);
    }
    hash ^= hash >> 47;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 47
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_come_back_from_their_bytes_sparse_and_dense() {
        let mut registers = Registers::default();
        let mut sparse = 0;
        for n in 0..5000_u32 {
            registers.add(&n.to_le_bytes());
            if n.is_power_of_two() || n % 500 == 0 {
                let bytes = registers.encode();
                let back = Registers::decode(&bytes).unwrap();
                assert_eq!(back.all, registers.all);
                assert_eq!(back.dense, bytes[4] == 0);
                sparse += u32::from(!back.dense);
                // What is dense stays dense.
                assert_eq!(back.encode(), bytes);
            }
        }
        assert!(sparse > 8 && registers.encode().len() == DENSE);
        // A value that no run can have.
        let mut high = Registers::default();
        high.all[7] = RUN_VALUE_MAX + 1;
        assert_eq!(Registers::decode(&high.encode()).unwrap().all, high.all);
    }

    #[test]
    fn any_bytes_are_registers_or_refused() {
        let mut random = fastrand::Rng::with_seed(31);
        let mut registers = Registers::default();
        (0..300_u32).for_each(|n| _ = registers.add(&n.to_le_bytes()));
        let good = registers.encode();
        let (mut read, mut corrupt) = (0, 0);
        for _ in 0..3000 {
            let mut bytes = good.clone();
            for _ in 0..random.u8(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            bytes.truncate(random.usize(..=bytes.len()).max(random.usize(..=bytes.len())));
            match Registers::decode(&bytes) {
                Ok(registers) => _ = (registers.count(), read += 1),
                Err(Invalid::Corrupt) => corrupt += 1,
                Err(Invalid::Other) => {}
            }
        }
        assert!(corrupt > 100, "{read} {corrupt}");
        let mut dense = vec![0xff; DENSE];
        dense[..5].copy_from_slice(b"HYLL\0");
        Registers::decode(&dense).unwrap().count();
        assert_eq!(Registers::decode(&dense[..DENSE - 1]), Err(Invalid::Other));
    }
}
