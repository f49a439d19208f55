//! The superblock: two copies on every member, each with its own checksum.
//!
//! ```text
//! 0      8     magic "TSMITHST"
//! 8      4     format version: 2
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
//! 136    4     flags: 1 emulated (the medium only stands for persistent memory), 2 volatile (clean
//!              copies only, given up at the next attach: state lines and stamps are not kept up),
//!              4 ephemeral (clean copies only, used again at the next attach)
//! 140    4     incompatible features: who does not know one of these flags must not use the tier.
//!              None yet
//! 144    8     inode number of the home directory
//! 152    8     birth time of the home directory, ns since 1970
//! 160    4     role of this member: 1 metadata, 2 data, 3 both. Today all have both
//! 164    4     ledger, which makes metadata durable: 1 lane and batch records in mapped memory,
//!              2 the same through a log ([`super::log`])
//! 168    4     sector size of this member, bytes: 512 or 4096 with a log; 0: memory, which keeps
//!              stores of 8 bytes whole
//! 172    4     length of the home's path, at most 1024
//! 176    64    name of the tier, UTF-8, zero padded
//! 240    1024  the home's path, zero padded
//! 1264   8     extents of the file table, at most 320
//! 1272   2560  for each extent, in order, the allocation unit that is full of its slots: a number
//!              over all members. The slots of the first extent are numbered after those in front
//!              of the units, and so on; zero padded
//! 3832   8     bytes of the log in front of the first allocation unit, a multiple of the unit; 0:
//!              none
//! 3840   248   zero: room to grow. What is here was written by a program that knows more
//! 4088   8     checksum of bytes 0..4088 (unkeyed: the key is inside)
//! ```
//!
//! While a tier is being formatted, both copies begin with "TIERFMT_" instead: what else they hold
//! means nothing then. An update writes copy 0, fences, writes copy 1, fences. A cut leaves at
//! least one whole copy; at rest both are equal, so one damaged copy costs nothing.

use super::{SEQUENCE_MAX, checksum};
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const SUPERBLOCK: usize = size_of::<Bytes>();
pub(crate) const VERSION: u32 = 2;
/// Extents of the file table that a superblock has room for.
pub(crate) const EXTENTS_MAX: usize = 320;
/// Where the superblock copies, the owner note and the lanes are.
pub(crate) const COPY_AT: [u64; 2] = [0, 4096];
pub(crate) const OWNER_AT: u64 = 8192;
pub(crate) const LANES_AT: u64 = 12288;
/// The shortest log.
pub(crate) const LOG_MIN: u64 = 64 << 10;
pub(crate) const MAGIC: &[u8; 8] = b"TSMITHST";
/// The magic of development builds, whose versions 1 to 3 were others than those that follow.
pub(crate) const DEVELOPMENT_MAGIC: &[u8; 8] = b"TIERSMTH";
/// Instead of the magic while a tier is being formatted.
pub(crate) const FORMATTING: &[u8; 8] = b"TIERFMT_";
pub(crate) const HOME_PATH_MAX: usize = 1024;
pub(crate) const NAME_MAX: usize = 64;
/// Attaches of a tier stay below this: the sequences of records begin with the count, above 32
/// bits.
const ATTACHES_MAX: u64 = 1 << 30;
pub(crate) const FLAG_EMULATED: u32 = 1;
pub(crate) const FLAG_VOLATILE: u32 = 2;
pub(crate) const FLAG_EPHEMERAL: u32 = 4;
/// Features that who does not know them must refuse: those that this program knows.
const FEATURES_KNOWN: u32 = 0;
/// Of [`Bytes::role`]: this member holds metadata and data.
const ROLE_BOTH: u32 = 3;
/// Of [`Bytes::ledger`]: lane records and batch records; the same through a log.
const LEDGER_LANES: u32 = 1;
const LEDGER_LOG: u32 = 2;
/// Of [`Bytes::sector_size`]: memory has none.
const NO_SECTORS: u32 = 0;
/// What the magic, and so the first word, must be checked with before the seed is known.
const CHECK_KEY: u64 = 0x5449_4552_534d_5448;

/// The table above.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Bytes {
    magic: [u8; 8],
    version: U32,
    state: U32,
    seq: U64,
    tier_uuid: [u8; 16],
    attachment: [u8; 16],
    member: U32,
    members: U32,
    seed: U64,
    len: U64,
    max_len: U64,
    grow_by: U64,
    unit: U64,
    data_start: U64,
    lanes: U32,
    batches: U32,
    slots: U64,
    attach_count: U64,
    flags: U32,
    incompatible: U32,
    home_ino: U64,
    home_btime_ns: U64,
    role: U32,
    ledger: U32,
    sector_size: U32,
    home_path_len: U32,
    name: [u8; NAME_MAX],
    home_path: [u8; HOME_PATH_MAX],
    extent_count: U64,
    extents: [U64; EXTENTS_MAX],
    log_len: U64,
    reserved: [u8; 248],
    check: U64,
}

const _: () = {
    assert!(SUPERBLOCK == 4096 && offset_of!(Bytes, version) == 8 && offset_of!(Bytes, seq) == 16);
    assert!(offset_of!(Bytes, member) == 56 && offset_of!(Bytes, seed) == 64);
    assert!(offset_of!(Bytes, unit) == 96 && offset_of!(Bytes, slots) == 120);
    assert!(offset_of!(Bytes, flags) == 136 && offset_of!(Bytes, incompatible) == 140);
    assert!(offset_of!(Bytes, role) == 160 && offset_of!(Bytes, ledger) == 164);
    assert!(offset_of!(Bytes, sector_size) == 168 && offset_of!(Bytes, name) == 176);
    assert!(offset_of!(Bytes, home_path) == 240 && offset_of!(Bytes, extent_count) == 1264);
    assert!(offset_of!(Bytes, log_len) == 3832 && offset_of!(Bytes, check) == 4088);
};

impl Bytes {
    fn checksum(&self) -> u64 {
        checksum(&self.as_bytes()[..offset_of!(Bytes, check)], CHECK_KEY)
    }

    /// What only another program can use; `None` when it is all known here.
    fn unknown(&self) -> Option<String> {
        let unknown = self.incompatible.get() & !FEATURES_KNOWN;
        if unknown != 0 {
            return Some(format!(
                "it has incompatible features ({unknown:#x}), and this program knows none"
            ));
        }
        match self.role.get() {
            ROLE_BOTH => {}
            0 => {
                return Some(
                    "it does not say the role of its member (metadata, data or both)".into(),
                );
            }
            other => {
                return Some(format!(
                    "the role of its member is {other}, this program knows 3 (both)"
                ));
            }
        }
        let (ledger, sector_size) = (self.ledger.get(), self.sector_size.get());
        match (ledger, sector_size) {
            (LEDGER_LANES, NO_SECTORS) if self.log_len.get() == 0 => {}
            (LEDGER_LOG, 512 | 4096) => {}
            (LEDGER_LANES, NO_SECTORS) => {
                return Some("it has a log that its ledger does not use".into());
            }
            (LEDGER_LANES | LEDGER_LOG, size) => {
                return Some(format!(
                    "its ledger is of kind {ledger} and its member has sectors of {size} bytes, \
                     this program knows memory with \
                     kind 1, and sectors of 512 or 4096 bytes with kind 2"
                ));
            }
            _ => {
                return Some(format!(
                    "its ledger is of kind {ledger}, this program knows 1 (lane records) and 2 (a \
                     log)"
                ));
            }
        }
        self.reserved
            .iter()
            .any(|b| *b != 0)
            .then(|| "it uses bytes that this program reserves".into())
    }
}

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
    /// Of a member on flash; 0: memory.
    pub(crate) sector_size: u32,
    /// Bytes in front of the first unit; 0: it has no log.
    pub(crate) log_len: u64,
    pub(crate) home_ino: u64,
    pub(crate) home_btime_ns: u64,
    pub(crate) name: String,
    pub(crate) home_path: Vec<u8>,
    /// The unit of each extent of the file table.
    pub(crate) extents: Vec<u64>,
}

impl Superblock {
    pub(crate) fn encode(&self) -> [u8; SUPERBLOCK] {
        let mut b = Bytes::new_zeroed();
        b.magic = *MAGIC;
        b.version = VERSION.into();
        b.state = self.state.code().into();
        b.seq = self.seq.into();
        b.tier_uuid = self.tier_uuid;
        b.attachment = self.attachment;
        b.member = self.member.into();
        b.members = self.members.into();
        b.seed = self.seed.into();
        b.len = self.len.into();
        b.max_len = self.max_len.into();
        b.grow_by = self.grow_by.into();
        b.unit = self.unit.into();
        b.data_start = self.data_start.into();
        b.lanes = self.lanes.into();
        b.batches = self.batches.into();
        b.slots = self.slots.into();
        b.attach_count = self.attach_count.into();
        b.flags = self.flags.into();
        b.home_ino = self.home_ino.into();
        b.home_btime_ns = self.home_btime_ns.into();
        b.role = ROLE_BOTH.into();
        b.ledger = if self.log_len == 0 { LEDGER_LANES.into() } else { LEDGER_LOG.into() };
        b.sector_size = self.sector_size.into();
        b.log_len = self.log_len.into();
        let name = &self.name.as_bytes()[..self.name.len().min(NAME_MAX)];
        b.name[..name.len()].copy_from_slice(name);
        let path = &self.home_path[..self.home_path.len().min(HOME_PATH_MAX)];
        b.home_path_len = (path.len() as u32).into();
        b.home_path[..path.len()].copy_from_slice(path);
        let extents = &self.extents[..self.extents.len().min(EXTENTS_MAX)];
        b.extent_count = (extents.len() as u64).into();
        for (place, unit) in b.extents.iter_mut().zip(extents) {
            *place = (*unit).into();
        }
        b.check = b.checksum().into();
        zerocopy::transmute!(b)
    }

    /// Decodes one copy. The error says in a few words what is wrong with it.
    pub(crate) fn decode(bytes: &[u8; SUPERBLOCK]) -> Result<Self, Unusable> {
        let b: &Bytes = zerocopy::transmute_ref!(bytes);
        if b.magic == *DEVELOPMENT_MAGIC {
            return Err(Unusable::OtherFormat(
                "a development build made it, before format version 1; detach it with the build \
                 that attached \
                 it last (all up to commit ffd5d09 can), then remove the file or wipe the device"
                    .into(),
            ));
        }
        if b.magic != *MAGIC {
            return Err(Unusable::Damaged("it does not begin with TSMITHST".into()));
        }
        let (expected, found) = (b.checksum(), b.check.get());
        if expected != found {
            let why = format!("its checksum is {found:#x}, its bytes give {expected:#x}");
            return Err(Unusable::Damaged(why));
        }
        let version = b.version.get();
        let unknown = if version == VERSION {
            b.unknown()
        } else {
            Some(format!("it has format version {version}, this program reads version {VERSION}"))
        };
        match unknown {
            Some(why) => Err(Unusable::OtherFormat(format!(
                "{why}; detach it with the Tiersmith that attached it"
            ))),
            None => Self::of(b).map_err(Unusable::Damaged),
        }
    }

    /// The fields of a copy that is whole.
    fn of(b: &Bytes) -> Result<Self, String> {
        let state = match b.state.get() {
            1 => TierState::Attaching,
            2 => TierState::Attached,
            3 => TierState::Detaching,
            4 => TierState::Detached,
            other => return Err(format!("its state is {other}, which is none")),
        };
        let name_len = b.name.iter().position(|c| *c == 0).unwrap_or(NAME_MAX);
        let path_len = (b.home_path_len.get() as usize).min(HOME_PATH_MAX);
        let count = b.extent_count.get();
        let extents = usize::try_from(count).ok().and_then(|count| b.extents.get(..count));
        let extents = extents
            .ok_or_else(|| format!("it has {count} extents, there is room for {EXTENTS_MAX}"))?;
        let sb = Self {
            state,
            seq: b.seq.get(),
            tier_uuid: b.tier_uuid,
            attachment: b.attachment,
            member: b.member.get(),
            members: b.members.get(),
            seed: b.seed.get(),
            len: b.len.get(),
            max_len: b.max_len.get(),
            grow_by: b.grow_by.get(),
            unit: b.unit.get(),
            data_start: b.data_start.get(),
            lanes: b.lanes.get(),
            batches: b.batches.get(),
            slots: b.slots.get(),
            attach_count: b.attach_count.get(),
            flags: b.flags.get(),
            sector_size: b.sector_size.get(),
            log_len: b.log_len.get(),
            home_ino: b.home_ino.get(),
            home_btime_ns: b.home_btime_ns.get(),
            name: String::from_utf8_lossy(&b.name[..name_len]).into_owned(),
            home_path: b.home_path[..path_len].to_vec(),
            extents: extents.iter().map(|unit| unit.get()).collect(),
        };
        sb.sane().map(|()| sb)
    }

    /// A log lies behind the lane records and is not shorter than any that is made.
    fn log_ok(&self) -> bool {
        if self.log_len == 0 {
            return self.sector_size == NO_SECTORS;
        }
        self.members == 1
            && self.log_len >= LOG_MIN
            && self.log_len.is_multiple_of(self.unit)
            && self.data_start.checked_sub(self.log_len).is_some_and(|at| at > LANES_AT)
    }

    /// Values that would make later arithmetic meaningless; only a program error or an attacker
    /// writes them.
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
            && self.log_ok()
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
            sector_size: 0,
            log_len: 0,
            home_ino: 12,
            home_btime_ns: 13,
            name: "fast".into(),
            home_path: b"/data/home".to_vec(),
            extents: Vec::new(),
        }
    }

    #[test]
    fn numbers_that_counting_does_not_reach_are_refused() {
        let refused = |sb: Superblock| Superblock::decode(&sb.encode()).is_err();
        assert!(!refused(Superblock {
            seq: SEQUENCE_MAX - 1,
            attach_count: ATTACHES_MAX - 1,
            ..sample()
        }));
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
            assert_eq!(Superblock::decode(&sb.encode()), Ok(sb));
        }
        let beyond = Superblock { extents: vec![u64::MAX], ..sample() };
        assert!(Superblock::decode(&beyond.encode()).is_err());
    }

    /// A copy that another program could have written, its checksum right.
    fn sealed(change: impl FnOnce(&mut Bytes)) -> [u8; SUPERBLOCK] {
        let mut b: Bytes = zerocopy::transmute!(sample().encode());
        change(&mut b);
        b.check = b.checksum().into();
        zerocopy::transmute!(b)
    }

    #[test]
    fn a_member_with_a_log_reads_back_and_a_log_that_cannot_be_is_refused() {
        let log = Superblock {
            members: 1,
            len: 1 << 20,
            data_start: 196_608,
            sector_size: 4096,
            log_len: 131_072,
            ..sample()
        };
        assert_eq!(Superblock::decode(&log.encode()), Ok(log.clone()));
        for wrong in [
            Superblock { log_len: 32_768, ..log.clone() },
            Superblock { log_len: 131_072 + 4096, ..log.clone() },
            Superblock { log_len: 196_608, ..log.clone() },
            Superblock { members: 2, ..log.clone() },
        ] {
            assert!(Superblock::decode(&wrong.encode()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_superblock_of_another_format_is_told_from_a_damaged_one() {
        let mut torn = sample().encode();
        torn[offset_of!(Bytes, version)] = 3;
        assert!(matches!(Superblock::decode(&torn), Err(Unusable::Damaged(_))));
        let refused = |bytes, words: &str| match Superblock::decode(&bytes) {
            Err(Unusable::OtherFormat(why)) => assert!(why.contains(words), "{why}"),
            other => panic!("{words}: {other:?}"),
        };
        refused(
            sealed(|b| b.version = 3.into()),
            "has format version 3, this program reads version 2",
        );
        refused(sealed(|b| b.incompatible = 0x10.into()), "incompatible features (0x10)");
        refused(sealed(|b| b.role = 0.into()), "does not say the role of its member");
        refused(sealed(|b| b.role = 1.into()), "the role of its member is 1");
        refused(sealed(|b| b.ledger = 0.into()), "its ledger is of kind 0");
        refused(
            sealed(|b| b.ledger = 2.into()),
            "its ledger is of kind 2 and its member has sectors of 0",
        );
        refused(sealed(|b| b.ledger = 3.into()), "its ledger is of kind 3");
        refused(sealed(|b| b.sector_size = 4096.into()), "sectors of 4096 bytes");
        refused(sealed(|b| b.log_len = 65536.into()), "a log that its ledger does not use");
        refused(sealed(|b| b.reserved[247] = 1), "bytes that this program reserves");
        // Whatever version it says, and whole or not: what follows the old magic means something
        // else.
        let mut old = sample().encode();
        old[..MAGIC.len()].copy_from_slice(DEVELOPMENT_MAGIC);
        refused(old, "development build");
    }

    #[test]
    fn a_superblock_reads_back_and_any_changed_byte_is_seen() {
        let sb = sample();
        let mut bytes = sb.encode();
        assert_eq!(Superblock::decode(&bytes), Ok(sb));
        for at in 0..SUPERBLOCK {
            bytes[at] ^= 0x40;
            assert!(Superblock::decode(&bytes).is_err(), "byte {at}");
            bytes[at] ^= 0x40;
        }
    }
}
