//! The superblock: two copies on every member, each with its own checksum.
//!
//! ```text
//! 0      8     magic "TSMITHST"
//! 8      4     format version: 1
//! 12     4     state: 1 attaching, 2 attached, 3 detaching, 4 detached
//! 16     8     sequence, below 2^62: the copy with the larger one is newer
//! 24     16    tier uuid (the same on all members)
//! 40     16    attachment uuid (the same in the home's attachment note)
//! 56     4     number of this member, from 0
//! 60     4     members of the tier
//! 64     8     seed of all keyed checksums
//! 72     8     bytes of this member in use
//! 80     8     bytes this member may grow to
//! 88     8     bytes it grows by at a time
//! 96     8     allocation unit, bytes (a power of two, 32 KiB or more)
//! 104    8     offset of the first allocation unit
//! 112    4     lanes
//! 116    4     batch records
//! 120    8     file slots in front of the first allocation unit
//! 128    8     attach count, below 2^30: the upper bits of new file ids and record sequences
//! 136    4     flags: 1 emulated (the medium only stands for persistent memory), 2 volatile (clean copies only,
//!              given up at the next attach: state lines and stamps are not kept up)
//! 140    4     zero
//! 144    8     inode number of the home directory
//! 152    8     birth time of the home directory, ns since 1970
//! 160    64    name of the tier, UTF-8, zero padded
//! 224    2     length of the home's path
//! 226    1024  the home's path, zero padded
//! 1250   6     zero
//! 1256   8     extents of the file table, at most 352
//! 1264   2816  for each extent, in order, the allocation unit that is full of its slots: a number
//!              over all members. The slots of the first extent are numbered after those in front
//!              of the units, and so on; zero padded
//! 4080   8     zero
//! 4088   8     checksum of bytes 0..4088 (unkeyed: the key is inside)
//! ```
//!
//! While a tier is being formatted, both copies begin with "TIERFMT_" instead: what else they hold means nothing then.
//! An update writes copy 0, fences, writes copy 1, fences. A cut leaves at least one whole copy; at rest both are
//! equal, so one damaged copy costs nothing.

use super::{SEQUENCE_MAX, checksum, get_u32, get_u64, put_u32, put_u64};

pub(crate) const SUPERBLOCK: usize = 4096;
pub(crate) const VERSION: u32 = 1;
/// Extents of the file table that a superblock has room for.
pub(crate) const EXTENTS_MAX: usize = 352;
const EXTENTS_AT: usize = 1256;
/// Where the superblock copies, the owner note and the lanes are.
pub(crate) const COPY_AT: [u64; 2] = [0, 4096];
pub(crate) const OWNER_AT: u64 = 8192;
pub(crate) const LANES_AT: u64 = 12288;
pub(crate) const MAGIC: &[u8; 8] = b"TSMITHST";
/// The magic of development builds, whose versions 1 to 3 were not this version 1.
const DEVELOPMENT_MAGIC: &[u8; 8] = b"TIERSMTH";
/// Instead of the magic while a tier is being formatted.
pub(crate) const FORMATTING: &[u8; 8] = b"TIERFMT_";
pub(crate) const HOME_PATH_MAX: usize = 1024;
pub(crate) const NAME_MAX: usize = 64;
/// Attaches of a tier stay below this: the sequences of records begin with the count, above 32 bits.
const ATTACHES_MAX: u64 = 1 << 30;
pub(crate) const FLAG_EMULATED: u32 = 1;
pub(crate) const FLAG_VOLATILE: u32 = 2;
/// What the magic, and so the first word, must be checked with before the seed is known.
const CHECK_KEY: u64 = 0x5449_4552_534d_5448;

/// How far attaching or detaching has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TierState {
    /// The tier is formatted; the home may or may not have its note yet. No block is in the tier.
    Attaching,
    /// In use.
    Attached,
    /// Every block is home; the home may or may not have its note still.
    Detaching,
    /// Free for another home.
    Detached,
}

impl TierState {
    fn code(self) -> u32 {
        match self {
            TierState::Attaching => 1,
            TierState::Attached => 2,
            TierState::Detaching => 3,
            TierState::Detached => 4,
        }
    }
}

/// Why a copy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It is none of ours, or damaged.
    Damaged(String),
    /// It is whole, and of a format that another program reads.
    OtherFormat(String),
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damaged(why) | Self::OtherFormat(why) => f.write_str(why),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) state: TierState,
    pub(crate) seq: u64,
    pub(crate) tier_uuid: [u8; 16],
    pub(crate) attachment: [u8; 16],
    pub(crate) member: u32,
    pub(crate) members: u32,
    pub(crate) seed: u64,
    pub(crate) len: u64,
    pub(crate) max_len: u64,
    pub(crate) grow_by: u64,
    pub(crate) unit: u64,
    pub(crate) data_start: u64,
    pub(crate) lanes: u32,
    pub(crate) batches: u32,
    pub(crate) slots: u64,
    pub(crate) attach_count: u64,
    pub(crate) flags: u32,
    pub(crate) home_ino: u64,
    pub(crate) home_btime_ns: u64,
    pub(crate) name: String,
    pub(crate) home_path: Vec<u8>,
    /// The unit of each extent of the file table.
    pub(crate) extents: Vec<u64>,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut b = vec![0; SUPERBLOCK];
        b[..8].copy_from_slice(MAGIC);
        put_u32(&mut b, 8, VERSION);
        put_u32(&mut b, 12, self.state.code());
        put_u64(&mut b, 16, self.seq);
        b[24..40].copy_from_slice(&self.tier_uuid);
        b[40..56].copy_from_slice(&self.attachment);
        put_u32(&mut b, 56, self.member);
        put_u32(&mut b, 60, self.members);
        put_u64(&mut b, 64, self.seed);
        put_u64(&mut b, 72, self.len);
        put_u64(&mut b, 80, self.max_len);
        put_u64(&mut b, 88, self.grow_by);
        put_u64(&mut b, 96, self.unit);
        put_u64(&mut b, 104, self.data_start);
        put_u32(&mut b, 112, self.lanes);
        put_u32(&mut b, 116, self.batches);
        put_u64(&mut b, 120, self.slots);
        put_u64(&mut b, 128, self.attach_count);
        put_u32(&mut b, 136, self.flags);
        put_u64(&mut b, 144, self.home_ino);
        put_u64(&mut b, 152, self.home_btime_ns);
        let name = &self.name.as_bytes()[..self.name.len().min(NAME_MAX)];
        b[160..160 + name.len()].copy_from_slice(name);
        let path = &self.home_path[..self.home_path.len().min(HOME_PATH_MAX)];
        b[224..226].copy_from_slice(&(path.len() as u16).to_le_bytes());
        b[226..226 + path.len()].copy_from_slice(path);
        let extents = &self.extents[..self.extents.len().min(EXTENTS_MAX)];
        put_u64(&mut b, EXTENTS_AT, extents.len() as u64);
        for (n, unit) in extents.iter().enumerate() {
            put_u64(&mut b, EXTENTS_AT + 8 + n * 8, *unit);
        }
        let check = checksum(&b[..4088], CHECK_KEY);
        put_u64(&mut b, 4088, check);
        b
    }

    /// Decodes one copy. The error says in a few words what is wrong with it.
    pub(crate) fn decode(b: &[u8; SUPERBLOCK]) -> Result<Self, Unusable> {
        if &b[..8] == DEVELOPMENT_MAGIC {
            return Err(Unusable::OtherFormat(
                "a development build made it, before format version 1; detach it with the build that attached \
                 it last (all up to commit ffd5d09 can), then remove the file or wipe the device"
                    .into(),
            ));
        }
        if &b[..8] != MAGIC {
            return Err(Unusable::Damaged("it does not begin with TSMITHST".into()));
        }
        let (expected, found) = (checksum(&b[..4088], CHECK_KEY), get_u64(b, 4088));
        if expected != found {
            let why = format!("its checksum is {found:#x}, its bytes give {expected:#x}");
            return Err(Unusable::Damaged(why));
        }
        let version = get_u32(b, 8);
        if version != VERSION {
            return Err(Unusable::OtherFormat(format!(
                "it has format version {version}, this program reads version {VERSION}; detach it with \
                 the Tiersmith that attached it"
            )));
        }
        Self::decode_whole(b).map_err(Unusable::Damaged)
    }

    fn decode_whole(b: &[u8; SUPERBLOCK]) -> Result<Self, String> {
        let state = match get_u32(b, 12) {
            1 => TierState::Attaching,
            2 => TierState::Attached,
            3 => TierState::Detaching,
            4 => TierState::Detached,
            other => return Err(format!("its state is {other}, which is none")),
        };
        let mut tier_uuid = [0; 16];
        tier_uuid.copy_from_slice(&b[24..40]);
        let mut attachment = [0; 16];
        attachment.copy_from_slice(&b[40..56]);
        let name_len = b[160..224].iter().position(|c| *c == 0).unwrap_or(NAME_MAX);
        let path_len = (usize::from(b[224]) | usize::from(b[225]) << 8).min(HOME_PATH_MAX);
        let extents = match get_u64(b, EXTENTS_AT) {
            count if count <= EXTENTS_MAX as u64 => count as usize,
            count => return Err(format!("it has {count} extents, there is room for {EXTENTS_MAX}")),
        };
        let sb = Self {
            state,
            seq: get_u64(b, 16),
            tier_uuid,
            attachment,
            member: get_u32(b, 56),
            members: get_u32(b, 60),
            seed: get_u64(b, 64),
            len: get_u64(b, 72),
            max_len: get_u64(b, 80),
            grow_by: get_u64(b, 88),
            unit: get_u64(b, 96),
            data_start: get_u64(b, 104),
            lanes: get_u32(b, 112),
            batches: get_u32(b, 116),
            slots: get_u64(b, 120),
            attach_count: get_u64(b, 128),
            flags: get_u32(b, 136),
            home_ino: get_u64(b, 144),
            home_btime_ns: get_u64(b, 152),
            name: String::from_utf8_lossy(&b[160..160 + name_len]).into_owned(),
            home_path: b[226..226 + path_len].to_vec(),
            extents: (1..=extents).map(|n| get_u64(b, EXTENTS_AT + n * 8)).collect(),
        };
        sb.sane().map(|()| sb)
    }

    /// Values that would make later arithmetic meaningless; only a program error or an attacker writes them.
    fn sane(&self) -> Result<(), String> {
        let unit_ok = self.unit.is_power_of_two() && (32768..=1 << 30).contains(&self.unit);
        let counts_ok = (1..=1 << 16).contains(&self.members)
            && self.member < self.members
            && (1..=1 << 16).contains(&self.lanes)
            && self.lanes.is_power_of_two()
            && (1..=1 << 12).contains(&self.batches)
            && (1..=1 << 24).contains(&self.slots);
        let sizes_ok = unit_ok
            && self.data_start.is_multiple_of(self.unit)
            && self.data_start < self.len
            && self.len <= self.max_len
            && self.max_len < 1 << 48;
        let units_most = self.max_len / self.unit.max(1) * u64::from(self.members);
        let extents_ok = self.extents.iter().all(|unit| *unit < units_most);
        let numbers_ok = self.seq < SEQUENCE_MAX && self.attach_count < ATTACHES_MAX;
        if counts_ok && sizes_ok && numbers_ok && extents_ok {
            Ok(())
        } else {
            Err("its sizes and counts contradict each other, or are beyond what can be".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn sample() -> Superblock {
        Superblock {
            state: TierState::Attached,
            seq: 4,
            tier_uuid: [1; 16],
            attachment: [2; 16],
            member: 0,
            members: 2,
            seed: 99,
            len: 1 << 20,
            max_len: 1 << 21,
            grow_by: 1 << 20,
            unit: 32768,
            data_start: 65536,
            lanes: 4,
            batches: 2,
            slots: 8,
            attach_count: 3,
            flags: FLAG_EMULATED,
            home_ino: 12,
            home_btime_ns: 13,
            name: "fast".into(),
            home_path: b"/data/home".to_vec(),
            extents: Vec::new(),
        }
    }

    #[test]
    fn numbers_that_counting_does_not_reach_are_refused() {
        let refused = |sb: Superblock| {
            let mut bytes = [0; SUPERBLOCK];
            bytes.copy_from_slice(&sb.encode());
            Superblock::decode(&bytes).is_err()
        };
        assert!(!refused(Superblock { seq: SEQUENCE_MAX - 1, attach_count: ATTACHES_MAX - 1, ..sample() }));
        assert!(refused(Superblock { seq: u64::MAX, ..sample() }));
        assert!(refused(Superblock { seq: SEQUENCE_MAX, ..sample() }));
        assert!(refused(Superblock { attach_count: u64::MAX, ..sample() }));
        assert!(refused(Superblock { attach_count: ATTACHES_MAX, ..sample() }));
    }

    #[test]
    fn extents_read_back_up_to_as_many_as_there_is_room_for() {
        for count in [0, 1, EXTENTS_MAX as u64] {
            let extents = (0..count).map(|n| n * 3 + 1).collect();
            let sb = Superblock { max_len: 1 << 30, extents, ..sample() };
            let mut bytes = [0; SUPERBLOCK];
            bytes.copy_from_slice(&sb.encode());
            assert_eq!(Superblock::decode(&bytes), Ok(sb));
        }
        let beyond = Superblock { extents: vec![u64::MAX], ..sample() };
        let mut bytes = [0; SUPERBLOCK];
        bytes.copy_from_slice(&beyond.encode());
        assert!(Superblock::decode(&bytes).is_err());
    }

    #[test]
    fn a_superblock_of_another_format_is_told_from_a_damaged_one() {
        let mut bytes = [0; SUPERBLOCK];
        bytes.copy_from_slice(&sample().encode());
        put_u32(&mut bytes, 8, VERSION + 1);
        assert!(matches!(Superblock::decode(&bytes), Err(Unusable::Damaged(_))));
        let check = checksum(&bytes[..4088], CHECK_KEY);
        put_u64(&mut bytes, 4088, check);
        let Err(Unusable::OtherFormat(why)) = Superblock::decode(&bytes) else { panic!("it is read") };
        assert!(why.contains("has format version 2, this program reads version 1"), "{why}");
        // Whatever version it says, and whole or not: what follows the old magic means something else.
        bytes[..8].copy_from_slice(DEVELOPMENT_MAGIC);
        let Err(Unusable::OtherFormat(why)) = Superblock::decode(&bytes) else { panic!("it is read") };
        assert!(why.contains("development build"), "{why}");
    }

    #[test]
    fn a_superblock_reads_back_and_any_changed_byte_is_seen() {
        let sb = sample();
        let mut bytes = [0; SUPERBLOCK];
        bytes.copy_from_slice(&sb.encode());
        assert_eq!(Superblock::decode(&bytes), Ok(sb));
        for at in 0..SUPERBLOCK {
            bytes[at] ^= 0x40;
            assert!(Superblock::decode(&bytes).is_err(), "byte {at}");
            bytes[at] ^= 0x40;
        }
    }
}
