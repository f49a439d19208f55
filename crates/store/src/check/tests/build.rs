//! Builds images of tiers by the tables in [`crate::format`], with neither the store's coders nor
//! the checker's.
//!
//! Deliberately slow and direct, so that it can be compared with the tables by eye.

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(super) const UNIT: u64 = 32768;
pub(super) const SEED: u64 = 0x1234_5678_9abc_def0;
pub(super) const CACHED: u64 = 1;
pub(super) const DIRTY: u64 = 2;
const PAGE: u64 = 3;

pub(super) const BLOCK: u64 = 0;
pub(super) const LEAF: u64 = 1;
pub(super) const MIDDLE: u64 = 2;
pub(super) const TOP: u64 = 3;
pub(super) const SLOT: u64 = 4;

/// A file to be put into a slot.
#[derive(Clone)]
pub(super) struct File {
    pub(super) slot: u64,
    pub(super) id: u64,
    pub(super) ino: u64,
    pub(super) class: u8,
    pub(super) size_code: u8,
    pub(super) size: u64,
    pub(super) flags: u64,
    pub(super) home_size: u64,
    pub(super) mtime: u64,
    pub(super) path: &'static str,
}

impl File {
    pub(super) fn new(slot: u64, id: u64, size_code: u8, size: u64) -> Self {
        let (ino, mtime) = (1000 + id, 5000 + id);
        Self {
            slot,
            id,
            ino,
            class: 2,
            size_code,
            size,
            flags: 0,
            home_size: size,
            mtime,
            path: "base/1/2",
        }
    }
}

/// The images of a tier.
#[derive(Clone)]
pub(super) struct Build {
    pub(super) images: Vec<Vec<u8>>,
    pub(super) lanes: u64,
    pub(super) batches: u64,
    pub(super) slots: u64,
    pub(super) state: u32,
    pub(super) flags: u32,
    pub(super) sequence: u64,
    pub(super) seed: u64,
}

pub(super) fn put(b: &mut [u8], at: u64, bytes: &[u8]) {
    let at = at as usize;
    b[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(super) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d049bb133111eb);
    x ^ (x >> 31)
}

impl Build {
    /// A formatted tier of `members` members with `units` units each.
    pub(super) fn new(members: u64, units: u64) -> Self {
        let mut build = Self {
            images: Vec::new(),
            lanes: 4,
            batches: 2,
            slots: 8,
            state: 2,
            flags: 1,
            sequence: 7,
            seed: SEED,
        };
        for member in 0..members {
            build.images.push(vec![0; (build.data_start(member) + units * UNIT) as usize]);
        }
        for member in 0..members {
            build.superblock(member);
        }
        for slot in 0..build.slots {
            let word = build.seal(0, SLOT, slot, 0);
            build.word(0, build.slot_at(slot), word);
        }
        build
    }

    pub(super) fn views(&self) -> Vec<&[u8]> {
        self.images.iter().map(|i| &i[..]).collect()
    }

    fn batches_at(&self) -> u64 {
        (12288 + self.lanes * 128).div_ceil(4096) * 4096
    }

    pub(super) fn batch_at(&self, n: u64) -> u64 {
        self.batches_at() + n * 4096
    }

    pub(super) fn slot_at(&self, n: u64) -> u64 {
        self.batches_at() + self.batches * 4096 + n * 1024
    }

    pub(super) fn data_start(&self, member: u64) -> u64 {
        let end = if member == 0 { self.slot_at(self.slots) } else { 12288 };
        end.div_ceil(UNIT) * UNIT
    }

    /// Member and offset of a frame.
    pub(super) fn place(&self, frame: u64) -> (u64, u64) {
        let (unit, within) = (frame / 8, frame % 8);
        let members = self.images.len() as u64;
        let member = unit % members;
        (member, self.data_start(member) + unit / members * UNIT + within * 4096)
    }

    /// Writes both copies of a member's superblock.
    pub(super) fn superblock(&mut self, member: u64) {
        let b = self.superblock_bytes(member);
        put(&mut self.images[member as usize], 0, &b);
        put(&mut self.images[member as usize], 4096, &b);
    }

    pub(super) fn superblock_bytes(&self, member: u64) -> Vec<u8> {
        let len = self.images[member as usize].len() as u64;
        let mut b = vec![0; 4096];
        put(&mut b, 0, b"TSMITHST");
        put(&mut b, 8, &2u32.to_le_bytes());
        put(&mut b, 12, &self.state.to_le_bytes());
        put(&mut b, 16, &self.sequence.to_le_bytes());
        put(&mut b, 24, &[7; 16]);
        put(&mut b, 40, &[8; 16]);
        put(&mut b, 56, &(member as u32).to_le_bytes());
        put(&mut b, 60, &(self.images.len() as u32).to_le_bytes());
        put(&mut b, 64, &self.seed.to_le_bytes());
        put(&mut b, 72, &len.to_le_bytes());
        put(&mut b, 80, &len.to_le_bytes());
        put(&mut b, 96, &UNIT.to_le_bytes());
        put(&mut b, 104, &self.data_start(member).to_le_bytes());
        put(&mut b, 112, &(self.lanes as u32).to_le_bytes());
        put(&mut b, 116, &(self.batches as u32).to_le_bytes());
        put(&mut b, 120, &self.slots.to_le_bytes());
        put(&mut b, 128, &1u64.to_le_bytes());
        put(&mut b, 136, &self.flags.to_le_bytes());
        put(&mut b, 144, &77u64.to_le_bytes());
        put(&mut b, 152, &78u64.to_le_bytes());
        put(&mut b, 160, &3u32.to_le_bytes());
        put(&mut b, 164, &1u32.to_le_bytes());
        put(&mut b, 172, &10u32.to_le_bytes());
        put(&mut b, 176, b"fast");
        put(&mut b, 240, b"/data/home");
        let check = xxh3_64_with_seed(&b[..4088], 0x5449_4552_534d_5448);
        put(&mut b, 4088, &check.to_le_bytes());
        b
    }

    /// The sealed word of a 40-bit value.
    pub(super) fn seal(&self, file: u64, level: u64, index: u64, value: u64) -> u64 {
        let crc = crc::Crc::<u32>::new(&crc::CRC_24_OPENPGP).checksum(&value.to_le_bytes()[..5]);
        let key =
            mix(self.seed ^ file.wrapping_mul(0x9e3779b97f4a7c15) ^ mix((level << 60) | index))
                >> 40;
        value | ((u64::from(crc) ^ key) << 40)
    }

    pub(super) fn word(&mut self, member: u64, at: u64, word: u64) {
        put(&mut self.images[member as usize], at, &word.to_le_bytes());
    }

    /// Fills and uses a slot; its roots are empty.
    pub(super) fn file(&mut self, f: &File) {
        let at = self.slot_at(f.slot);
        let key = self.seed ^ f.id;
        let mut b = vec![0; 1024];
        put(&mut b, 16, &f.ino.to_le_bytes());
        b[28] = f.class;
        b[29] = f.size_code;
        put(&mut b, 32, &(f.ino + 1).to_le_bytes());
        let check = xxh3_64_with_seed(&b[16..56], key);
        put(&mut b, 56, &check.to_le_bytes());
        for (n, level) in [LEAF, MIDDLE, TOP].into_iter().enumerate() {
            put(&mut b, 64 + n as u64 * 8, &self.seal(f.id, level, 0, 0).to_le_bytes());
        }
        for sequence in [1u64, 2] {
            let mut line = vec![0; 64];
            for (n, value) in
                [sequence, f.size, f.flags, f.home_size, f.mtime].into_iter().enumerate()
            {
                put(&mut line, n as u64 * 8, &value.to_le_bytes());
            }
            let check = xxh3_64_with_seed(&line[..56], key);
            put(&mut line, 56, &check.to_le_bytes());
            for copy in 0..2 {
                put(&mut b, 128 + (sequence % 2) * 128 + copy * 64, &line);
            }
        }
        put(&mut b, 392, &(f.path.len() as u16).to_le_bytes());
        put(&mut b, 394, f.path.as_bytes());
        let check = xxh3_64_with_seed(&b[392..], key);
        put(&mut b, 384, &check.to_le_bytes());
        put(&mut b, 0, &self.seal(0, SLOT, f.slot, f.id).to_le_bytes());
        put(&mut self.images[0], at, &b);
    }

    /// An empty map page in `frame` whose words are of `level`, the first of them `first`.
    fn page(&mut self, file: u64, level: u64, first: u64, frame: u64) {
        let (member, at) = self.place(frame);
        // A leaf has a checksum beside each word.
        let bytes = if level == BLOCK { 16 } else { 8 };
        for n in 0..4096 / bytes {
            let word = self.seal(file, level, first + n, 0);
            self.word(member, at + n * bytes, word);
        }
    }

    fn pointer(&self, file: u64, level: u64, index: u64, frame: u64) -> u64 {
        self.seal(file, level, index, PAGE << 36 | frame)
    }

    /// Leaf 0 in `frame`, hung on the slot.
    pub(super) fn leaf0(&mut self, f: &File, frame: u64) {
        self.page(f.id, BLOCK, 0, frame);
        self.word(0, self.slot_at(f.slot) + 64, self.pointer(f.id, LEAF, 0, frame));
    }

    /// Middle page 0 in `middle` with leaf `n` in `frame`.
    pub(super) fn leaf(&mut self, f: &File, n: u64, middle: u64, frame: u64) {
        self.page(f.id, BLOCK, n * 256, frame);
        self.page(f.id, LEAF, 0, middle);
        self.word(0, self.slot_at(f.slot) + 72, self.pointer(f.id, MIDDLE, 0, middle));
        let (member, at) = self.place(middle);
        self.word(member, at + n * 8, self.pointer(f.id, LEAF, n, frame));
    }

    /// The top page in `top`, middle page 1 in `middle`, leaf 512 in `frame`.
    pub(super) fn leaf512(&mut self, f: &File, top: u64, middle: u64, frame: u64) {
        self.page(f.id, BLOCK, 512 * 256, frame);
        self.page(f.id, LEAF, 512, middle);
        self.page(f.id, MIDDLE, 0, top);
        self.word(0, self.slot_at(f.slot) + 80, self.pointer(f.id, TOP, 0, top));
        let (member, at) = self.place(top);
        self.word(member, at + 8, self.pointer(f.id, MIDDLE, 1, middle));
        let (member, at) = self.place(middle);
        self.word(member, at, self.pointer(f.id, LEAF, 512, frame));
    }

    pub(super) fn entry_word(&self, f: &File, block: u64, state: u64, frame: u64) -> u64 {
        self.seal(f.id, BLOCK, block, state << 36 | frame)
    }

    /// The entry of a block whose leaf is in `leaf`, and the checksum of what is in its frame.
    pub(super) fn entry(&mut self, f: &File, leaf: u64, block: u64, state: u64, frame: u64) {
        let word = self.entry_word(f, block, state, frame);
        let (member, at) = self.place(leaf);
        self.word(member, at + block % 256 * 16, word);
        self.sum(f, leaf, block, frame);
    }

    /// The checksum beside the entry of a block, if its frame is there.
    pub(super) fn sum(&mut self, f: &File, leaf: u64, block: u64, frame: u64) {
        let (on, from) = self.place(frame);
        let len = 4096 << f.size_code;
        if f.class == 2 && from + len <= self.images[on as usize].len() as u64 {
            let sum = self.block_sum(f, block, frame);
            let (member, at) = self.place(leaf);
            self.word(member, at + block % 256 * 16 + 8, sum);
        }
    }

    /// The checksum at rest of what is in a frame, as a block of a file.
    fn block_sum(&self, f: &File, block: u64, frame: u64) -> u64 {
        let key = mix(self.seed ^ f.id.wrapping_mul(0x9e3779b97f4a7c15) ^ mix(block));
        self.hash(frame, 4096 << f.size_code) ^ key
    }

    /// Where the entry of a block is, as records have it.
    pub(super) fn entry_at(&self, leaf: u64, block: u64) -> u64 {
        let (member, at) = self.place(leaf);
        member << 48 | (at + block % 256 * 16)
    }

    pub(super) fn fill(&mut self, frame: u64, bytes: &[u8]) {
        let (member, at) = self.place(frame);
        put(&mut self.images[member as usize], at, bytes);
    }

    fn hash(&self, frame: u64, len: u64) -> u64 {
        let (member, at) = self.place(frame);
        crate::medium::hash_bytes(
            &self.images[member as usize][at as usize..(at + len) as usize],
            self.seed,
        )
    }

    /// A lane record of a switch of `block` to Dirty in `frame`.
    pub(super) fn lane(
        &mut self,
        lane: u64,
        sequence: u64,
        f: &File,
        leaf: u64,
        block: u64,
        frame: u64,
    ) {
        let mut b = vec![0; 64];
        let hash = self.block_sum(f, block, frame);
        let words = [
            sequence,
            self.entry_at(leaf, block),
            self.entry_word(f, block, DIRTY, frame),
            hash,
            f.id,
            block,
            (1 << f.size_code) | lane << 32,
        ];
        for (n, value) in words.into_iter().enumerate() {
            put(&mut b, n as u64 * 8, &value.to_le_bytes());
        }
        let check = xxh3_64_with_seed(&b[..56], self.seed);
        put(&mut b, 56, &check.to_le_bytes());
        put(&mut self.images[0], 12288 + lane * 128 + sequence % 2 * 64, &b);
    }

    /// A batch record that switches blocks to Dirty in frames, with overflow pages in `pages`;
    /// those of higher numbers are newer.
    pub(super) fn batch(
        &mut self,
        n: u64,
        f: &File,
        leaf: u64,
        items: &[(u64, u64)],
        pages: &[u64],
    ) {
        let mut bytes = Vec::new();
        for (block, frame) in items {
            let hash = self.block_sum(f, *block, *frame);
            for value in [
                self.entry_at(leaf, *block),
                self.entry_word(f, *block, DIRTY, *frame),
                hash,
                *block,
            ] {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        let mut b = vec![0; 64];
        let first = pages.first().copied().unwrap_or(u64::MAX);
        let counts = items.len() as u64 | 1u64 << f.size_code << 32;
        let hash = xxh3_64_with_seed(&bytes, self.seed ^ 0x6261_7463_6800);
        for (n, value) in [9 + n, f.id, counts, f.size, first, hash, f.slot].into_iter().enumerate()
        {
            put(&mut b, n as u64 * 8, &value.to_le_bytes());
        }
        let check = xxh3_64_with_seed(&b[..56], self.seed);
        put(&mut b, 56, &check.to_le_bytes());
        let inline = bytes.len().min(126 * 32);
        b.extend_from_slice(&bytes[..inline]);
        let at = self.batch_at(n);
        put(&mut self.images[0], at, &b);
        for (n, chunk) in bytes[inline..].chunks(127 * 32).enumerate() {
            let mut page = chunk.to_vec();
            page.resize(4064, 0);
            page.extend_from_slice(&pages.get(n + 1).copied().unwrap_or(u64::MAX).to_le_bytes());
            page.resize(4096, 0);
            self.fill(pages[n], &page);
        }
    }
}
