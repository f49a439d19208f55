//! The bytes on the medium, version 3: the only place that turns them into numbers and back.
//!
//! Everything is little-endian. A reference is an offset from the start of the medium, never an
//! address. Format and meaning of what is *inside* an entry are in [`entry`], of the log's records
//! in [`record`], of streams in [`stream`]; which sizes the allocator hands out in [`class`].
//!
//! # The medium
//! | from | bytes | what |
//! |---|---|---|
//! | 0 | 4096 | superblock, first copy |
//! | 4096 | 4096 | superblock, second copy |
//! | 8192 | 3840 | roots: see below |
//! | 12032 | 4096 | 16 databases of 256 bytes: see below |
//! | 16128 | 256 | the libraries of functions, in the form of a database |
//! | 16384 | 2 x `log_bytes` | two slots, each with one record of the log ([`record`]) |
//! | `table_at` | 8 x `units` | the unit table: one word for each unit of the heap |
//! | `heap_at` | 65536 x `units` | the heap, in units of 64 KiB |
//!
//! # Superblock
//! | from | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `TSMITHKV` |
//! | 8 | 4 | version: 3 |
//! | 12 | 4 | zero |
//! | 16 | 16 | random name of this medium |
//! | 32 | 8 | length of the medium |
//! | 40 | 8 | `log_bytes`: bytes of one slot of the log |
//! | 48 | 8 | `table_at` |
//! | 56 | 8 | `units` |
//! | 64 | 8 | `heap_at` |
//! | 72 | 8 | seed of the hash of keys |
//! | 80 | 4008 | zero |
//! | 4088 | 8 | checksum of the 4088 bytes before (XXH3-64, seed 0) |
//!
//! # Roots
//! | from | what |
//! |---|---|
//! | 0 | bytes of the heap in use: slots and runs, allocated and not yet freed |
//! | 8 | offset of the first node of the trash, or zero |
//! | 16 | whose data: 0 this server's own; 1 a copy of a primary's, not whole; 2 a whole one |
//! | 24 | how far the stream of commands goes: a primary's that is applied, or this server's own |
//! | 32 | the 40 letters of the stream's replication id |
//! | 72 | the database that the stream has selected there; 255: none, the next command says which |
//! | 80 | 40 letters: the id that the stream had before |
//! | 120 | the first position that it did not have under that id; 0: it had no other |
//! | 128 | own data: 1 if commands are counted in the stream, so that 24 to 127 mean something |
//! | 136 | another number after each change of the libraries |
//! | 144 | zero |
//!
//! # Database
//! A trash node has this form too: what a FLUSHDB took away, still to be freed. So has the node of
//! a hash, list, set, sorted set or stream that is not in its entry.
//!
//! | from | what |
//! |---|---|
//! | 0 | buckets of the index: 0, or 16 and more |
//! | 8 | keys |
//! | 16 | keys that expire |
//! | 24 | database with buckets: offset of its future trash node; trash: of the next node; else zero |
//! | 32 | root of the sequence of a list, a sorted set or a stream, or zero |
//! | 40 | zero, to 64; of a stream, its groups and consumers: see [`stream`] |
//! | 64 | 24 directories: offset, or zero; of a stream and so on: other words |
//!
//! A directory is one unit: 8192 offsets of chunks. A chunk is one unit: 1024 buckets. A bucket is
//! 64 bytes: seven index words, then the offset of an overflow bucket of the same form, or zero.
//! An index word is zero, or: bits 0-43 the entry's offset / 16; bit 44 the key expires; bits 45-63
//! bits 12-30 of the key's hash (XXH3-64 with the superblock's seed). A key whose hash is `h` is in
//! bucket `h % 2^(n+1)` if there is such a bucket, else `h % 2^n`, where `2^n` is the largest power
//! of two that is at most the number of buckets.
//!
//! # Sequence
//! A tree of nodes of 512 bytes, in slots of that class. A leaf's items are words: offsets of
//! entries (or of a stream's pending records). An inner node's are pairs of words: the offset of a
//! child, and the elements below it. All leaves are on one level. No node is empty; items that are
//! not used may hold anything.
//!
//! | from | what |
//! |---|---|
//! | 0 | bits 0-7 the level, 0 for a leaf; bits 8-23 the first item that is used; bits 24-39 how many are |
//! | 8 | 63 items, or 31 pairs |
//!
//! # Libraries of functions
//! The key of an entry is the name of a library, its value the library's text, which is a string.
//! None expires.
//!
//! # Unit table
//! The word of the first unit of a slab or run says it all; the others' are zero.
//!
//! | bits | what |
//! |---|---|
//! | 0-7 | 0 free; 1 a slab; 2 a run of units for one object |
//! | 8-15 | slab: its class |
//! | 32-63 | units of the run |
//!
//! # Slab
//! A bitmap of its slots, one bit each, 1 = in use, in whole words; zeros to a multiple of 64; the
//! slots.

pub mod class;
pub mod entry;
pub mod record;
pub mod stream;

use tiersmith_pmem::hash_bytes;

/// The unit of the heap.
pub const UNIT: u64 = 64 << 10;
/// Bytes of a superblock.
pub const SUPERBLOCK: usize = 4096;
/// Where the two superblocks are.
pub const SUPERBLOCKS: [u64; 2] = [0, 4096];
/// Where the roots are.
pub const ROOTS: u64 = 8192;
/// The word with the bytes in use.
pub const USED: u64 = ROOTS;
/// The word with the first node of the trash.
pub const TRASH: u64 = ROOTS + 8;
/// The word that says whose data these are.
pub const COPY: u64 = ROOTS + 16;
/// The word with the position in the primary's stream.
pub const COPY_POSITION: u64 = ROOTS + 24;
/// Where the primary's replication id is.
pub const COPY_ID: u64 = ROOTS + 32;
/// The word with the database that the stream has selected.
pub const COPY_DB: u64 = ROOTS + 72;
/// Where the id is that the stream had before.
pub const SECOND_ID: u64 = ROOTS + 80;
/// The word with the first position that the stream did not have under that id.
pub const SECOND_POSITION: u64 = ROOTS + 120;
/// The word that says whether this server's own commands are counted.
pub const FED: u64 = ROOTS + 128;
/// The word that is another one after each change of the libraries.
pub const LIBRARIES_TURN: u64 = ROOTS + 136;
/// Where the databases are.
pub const DATABASES: u64 = ROOTS + 3840;
/// Bytes of a database.
pub const DATABASE: u64 = 256;
/// How many databases there are.
pub const DATABASE_COUNT: u8 = 16;
/// The number of the one that holds the libraries of functions, behind those of keys.
pub const LIBRARIES: u8 = DATABASE_COUNT;
/// Where the log is.
pub const LOG: u64 = 16384;

const _: () = assert!(DATABASES + (DATABASE_COUNT as u64 + 1) * DATABASE == LOG);

/// Directories of a database.
pub const DIRECTORIES: u64 = 24;
/// Where they begin in it.
pub const DIRECTORIES_AT: u64 = 64;
/// Chunks of a directory.
pub const CHUNKS: u64 = UNIT / 8;
/// Buckets of a chunk.
pub const BUCKETS: u64 = UNIT / 64;
/// Index words of a bucket.
pub const WORDS: u64 = 7;
/// Buckets of a database that has its first key.
pub const FIRST_BUCKETS: u64 = 16;

/// Where a node names the root of its sequence.
pub const SEQUENCE: u64 = 32;
/// The class of a sequence's nodes: 512 bytes.
pub const TREE_NODE: u8 = 14;
/// Words for items of such a node.
pub const TREE_WORDS: u64 = 63;

const _: () = assert!(TREE_WORDS * 8 + 8 == 512);

/// The first word of a sequence's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeHead {
    /// The level, 0 for a leaf.
    pub level: u64,
    /// The first item that is used.
    pub first: u64,
    /// How many are.
    pub items: u64,
}

impl TreeHead {
    /// As a word.
    pub fn encode(self) -> u64 {
        self.level | self.first << 8 | self.items << 24
    }

    /// From a word.
    pub fn decode(word: u64) -> TreeHead {
        TreeHead { level: word & 0xff, first: word >> 8 & 0xffff, items: word >> 24 & 0xffff }
    }
}

/// The smallest log slot: a record of a few commands.
pub const LOG_MIN: u64 = 4096;

const MAGIC: [u8; 8] = *b"TSMITHKV";
pub(crate) const VERSION: u32 = 3;

/// What the superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Random name.
    pub name: [u8; 16],
    /// Length of the medium.
    pub len: u64,
    /// Bytes of one slot of the log.
    pub log_bytes: u64,
    /// Where the unit table is.
    pub table_at: u64,
    /// Units of the heap.
    pub units: u64,
    /// Where the heap is.
    pub heap_at: u64,
    /// Seed of the hash of keys.
    pub hash_seed: u64,
}

/// What is wrong with a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is all zeros.
    Empty,
    /// It is something else's.
    Foreign,
    /// Of another version.
    Version(u32),
    /// The checksum does not fit.
    Checksum,
    /// Numbers in it contradict each other.
    Numbers,
}

impl Superblock {
    /// Lays out a medium of `len` bytes; nothing if it is too small for one unit.
    pub fn plan(len: u64, log_bytes: u64, name: [u8; 16], hash_seed: u64) -> Option<Superblock> {
        let log_bytes = log_bytes.max(LOG_MIN).checked_next_multiple_of(4096)?;
        let table_at = log_bytes.checked_mul(2)?.checked_add(LOG)?;
        let mut units = len.checked_sub(table_at)? / (UNIT + 8);
        let heap_of = |units: u64| (table_at + 8 * units).next_multiple_of(UNIT);
        while units > 0 && heap_of(units) + units * UNIT > len {
            units -= 1;
        }
        let heap_at = heap_of(units);
        (units > 0).then_some(Superblock {
            name,
            len,
            log_bytes,
            table_at,
            units,
            heap_at,
            hash_seed,
        })
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; SUPERBLOCK] {
        let mut bytes = [0; SUPERBLOCK];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.name);
        let numbers =
            [self.len, self.log_bytes, self.table_at, self.units, self.heap_at, self.hash_seed];
        for (index, number) in numbers.into_iter().enumerate() {
            bytes[32 + index * 8..40 + index * 8].copy_from_slice(&number.to_le_bytes());
        }
        let checksum = hash_bytes(&bytes[..SUPERBLOCK - 8], 0);
        bytes[SUPERBLOCK - 8..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8; SUPERBLOCK]) -> Result<Superblock, Unfit> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(Unfit::Empty);
        }
        if bytes[..8] != MAGIC {
            return Err(Unfit::Foreign);
        }
        let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        if version != VERSION {
            return Err(Unfit::Version(version));
        }
        if word_of(bytes, SUPERBLOCK - 8) != hash_bytes(&bytes[..SUPERBLOCK - 8], 0) {
            return Err(Unfit::Checksum);
        }
        let mut name = [0; 16];
        name.copy_from_slice(&bytes[16..32]);
        let [len, log_bytes, hash_seed] = [32, 40, 72].map(|at| word_of(bytes, at));
        let planned = Superblock::plan(len, log_bytes, name, hash_seed).ok_or(Unfit::Numbers)?;
        let written = [40, 48, 56, 64].map(|at| word_of(bytes, at));
        if written != [planned.log_bytes, planned.table_at, planned.units, planned.heap_at] {
            return Err(Unfit::Numbers);
        }
        Ok(planned)
    }

    /// Whether these bytes can be a part of a superblock of which other words did not arrive.
    pub fn may_be_torn(bytes: &[u8; SUPERBLOCK]) -> bool {
        (bytes[..8] == MAGIC || bytes[..8] == [0; 8])
            && bytes[80..SUPERBLOCK - 8].iter().all(|byte| *byte == 0)
    }

    /// Where a slot of the log is.
    pub fn slot(&self, number: u64) -> u64 {
        LOG + (number % 2) * self.log_bytes
    }

    /// Where a unit is.
    pub fn unit_at(&self, unit: u64) -> u64 {
        self.heap_at + unit * UNIT
    }

    /// Which unit an offset is in.
    pub fn unit_of(&self, at: u64) -> u64 {
        (at - self.heap_at) / UNIT
    }

    /// Where the word of a unit is.
    pub fn unit_word_at(&self, unit: u64) -> u64 {
        self.table_at + unit * 8
    }
}

/// The little-endian word at `at`.
pub(crate) fn word_of(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Where database `number` is.
pub fn database_at(number: u8) -> u64 {
    DATABASES + u64::from(number) * DATABASE
}

/// What a unit's word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nobody uses it.
    Free,
    /// The first unit of a slab of this class.
    Slab(u8),
    /// The first of so many units of one object.
    Run(u64),
}

impl Unit {
    /// As a word. `units` of a slab are known from its class.
    pub fn encode(self) -> u64 {
        match self {
            Unit::Free => 0,
            Unit::Slab(class) => 1 | u64::from(class) << 8 | class::slab_units(class) << 32,
            Unit::Run(units) => 2 | units << 32,
        }
    }

    /// From a word; nothing if no unit has such a one.
    pub fn decode(word: u64) -> Option<Unit> {
        let unit = match word & 0xff {
            0 => Unit::Free,
            1 => Unit::Slab(u8::try_from(word >> 8 & 0xff).ok().filter(|c| *c < class::COUNT)?),
            2 if word >> 32 > 0 => Unit::Run(word >> 32),
            _ => return None,
        };
        (unit.encode() == word).then_some(unit)
    }
}

/// An index word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexWord(pub u64);

impl IndexWord {
    const OFFSET: u64 = (1 << 44) - 1;
    const EXPIRES: u64 = 1 << 44;

    /// Of an entry and its key's hash.
    pub fn new(at: u64, expires: bool, hash: u64) -> IndexWord {
        let expires = if expires { IndexWord::EXPIRES } else { 0 };
        IndexWord((at / 16) | expires | IndexWord::tag_of(hash))
    }

    /// The bits that hold a part of the hash.
    #[inline]
    pub fn tag_of(hash: u64) -> u64 {
        hash >> 12 << 45
    }

    /// Whether a key with this hash may be meant.
    #[inline]
    pub fn fits(self, hash: u64) -> bool {
        self.0 != 0 && self.0 >> 45 << 45 == IndexWord::tag_of(hash)
    }

    /// Where the entry is.
    #[inline]
    pub fn entry(self) -> u64 {
        (self.0 & IndexWord::OFFSET) * 16
    }

    /// Whether the key expires.
    #[inline]
    pub fn expires(self) -> bool {
        self.0 & IndexWord::EXPIRES != 0
    }

    /// Bit `bit` of the hash, if the word has it.
    #[inline]
    pub fn hash_bit(self, bit: u32) -> Option<bool> {
        (12..31).contains(&bit).then(|| self.0 >> (bit - 12 + 45) & 1 == 1)
    }
}

/// The bucket of a hash in an index of `buckets`.
#[inline]
pub fn bucket_of(hash: u64, buckets: u64) -> u64 {
    let low = 1 << buckets.ilog2();
    let bucket = hash & (2 * low - 1);
    if bucket < buckets { bucket } else { hash & (low - 1) }
}
