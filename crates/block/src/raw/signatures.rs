//! What a device may carry: the marks of partition tables, file systems, volumes, RAIDs, swap.
//!
//! Sources: util-linux 2.40, `libblkid/src/superblocks/*.c` and `libblkid/src/partitions/*.c`,
//! whose offsets and bytes these are; the kernel's headers where that library has none (btrfs's
//! copies, metadata of dm-cache, dm-thin, dm-era and dm-writecache, LUKS2's second header).
//! libblkid checks more than a mark, to be sure of what it names. Here a mark is enough: a device
//! is not taken because something that looks like a file system fails a checksum.
//!
//! **Invariant**: what is in no table is still data. Whoever takes a device asks
//! [`first_data`] too.

use std::io;
use std::ops::Range;

/// Bytes at the beginning and at the end of a device that must be zeros unless something is known
/// of them.
pub(crate) const EDGE: u64 = 1 << 20;

/// Places between the two that are looked at, and bytes of each.
const SAMPLES: u64 = 256;
const SAMPLE: u64 = 4096;

/// Where a mark is.
#[derive(Clone, Copy, Debug)]
enum At {
    /// So many bytes from the beginning.
    Start(u64),
    /// In whole `align` bytes of the device, `back` before their end, and `inner` behind that.
    End { align: u64, back: u64, inner: u64 },
}

use At::{End, Start};

/// So many bytes before the end, in whole sectors of 512 bytes.
const fn end(back: u64) -> At {
    End { align: 512, back, inner: 0 }
}

/// The marks: what is there, where, which bytes.
#[rustfmt::skip]
const MARKS: &[(&str, At, &[u8])] = &[
    // Volumes and RAIDs first: what they have below may show at its place too.
    ("an LVM2 physical volume", Start(24), b"LVM2 001"),
    ("an LVM2 physical volume", Start(536), b"LVM2 001"),
    ("an LVM2 physical volume", Start(1048), b"LVM2 001"),
    ("an LVM2 physical volume", Start(1560), b"LVM2 001"),
    ("an LVM2 physical volume", Start(512), b"LABELONE"),
    ("an LVM1 physical volume", Start(0), b"HM\x01\0"),
    ("an LVM1 physical volume", Start(0), b"HM\x02\0"),
    ("a Linux RAID member (mdraid 1.1)", Start(0), b"\xfc\x4e\x2b\xa9"),
    ("a Linux RAID member (mdraid 1.2)", Start(4096), b"\xfc\x4e\x2b\xa9"),
    ("a Linux RAID member (mdraid 1.0)", End { align: 4096, back: 8192, inner: 0 },
        b"\xfc\x4e\x2b\xa9"),
    ("a Linux RAID member (mdraid 0.9)", End { align: 65536, back: 65536, inner: 0 },
        b"\xfc\x4e\x2b\xa9"),
    ("a Linux RAID member (mdraid 0.9)", End { align: 65536, back: 65536, inner: 0 },
        b"\xa9\x2b\x4e\xfc"),
    ("a LUKS encrypted volume", Start(0), b"LUKS\xba\xbe"),
    ("a LUKS2 encrypted volume (its second header)", Start(0x4000), b"SKUL\xba\xbe"),
    ("a LUKS2 encrypted volume (its second header)", Start(0x8000), b"SKUL\xba\xbe"),
    ("a LUKS2 encrypted volume (its second header)", Start(0x1_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 encrypted volume (its second header)", Start(0x2_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 encrypted volume (its second header)", Start(0x4_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 encrypted volume (its second header)", Start(0x8_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 encrypted volume (its second header)", Start(0x10_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 encrypted volume (its second header)", Start(0x20_0000), b"SKUL\xba\xbe"),
    ("a LUKS2 encrypted volume (its second header)", Start(0x40_0000), b"SKUL\xba\xbe"),
    ("a BitLocker volume", Start(3), b"-FVE-FS-"),
    ("a FileVault volume", Start(88), b"CS"),
    ("a dm-integrity volume", Start(0), b"integrt\0"),
    ("a dm-verity volume", Start(0), b"verity\0\0"),
    ("a VDO volume", Start(0), b"dmvdo001"),
    ("a Stratis volume", Start(516), b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("a Stratis volume", Start(4612), b"!Stra0tis\x86\xff\x02^\x41rh"),
    ("metadata of dm-cache", Start(32), &0o6142003_u64.to_le_bytes()),
    ("metadata of dm-thin", Start(32), &27_022_010_u64.to_le_bytes()),
    ("metadata of dm-era", Start(32), &2_126_579_579_u64.to_le_bytes()),
    ("a dm-writecache", Start(0), &0x2348_9321_u32.to_le_bytes()),
    ("a snapshot of LVM", Start(0), b"SnAp"),
    ("a bcache or bcachefs device", Start(4120),
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    ("a bcachefs device", Start(4120),
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    ("a Ceph BlueStore device", Start(0), b"bluestore block device"),
    ("an Oracle ASM disk", Start(32), b"ORCLDISK"),
    ("a DRBD device", End { align: 4096, back: 4096, inner: 60 }, b"\x83\x74\x02\x6a"),
    ("a DRBD device", End { align: 4096, back: 4096, inner: 60 }, b"\x83\x74\x02\x6b"),
    ("a DRBD device", End { align: 4096, back: 4096, inner: 60 }, b"\x83\x74\x02\x6c"),
    ("a DRBD device", End { align: 4096, back: 4096, inner: 60 }, b"\x83\x74\x02\x6d"),
    ("a BIOS RAID member (Intel)", end(1024), b"Intel Raid ISM Cfg Sig. "),
    ("a BIOS RAID member (DDF)", end(512), b"\xde\x11\xde\x11"),
    ("a BIOS RAID member (DDF)", end(512), b"\x11\xde\x11\xde"),
    ("a BIOS RAID member (NVIDIA)", end(1024), b"NVIDIA"),
    ("a BIOS RAID member (LSI)", end(512), b"$XIDE$"),
    ("a BIOS RAID member (Adaptec)", end(512), b"DPTM"),
    ("a BIOS RAID member (JMicron)", end(512), b"JM"),
    // Swap, and an image of a hibernated system.
    ("swap space", Start(4086), b"SWAPSPACE2"),
    ("swap space", Start(4086), b"SWAP-SPACE"),
    ("swap space", Start(8182), b"SWAPSPACE2"),
    ("swap space", Start(16374), b"SWAPSPACE2"),
    ("swap space", Start(32758), b"SWAPSPACE2"),
    ("swap space", Start(65526), b"SWAPSPACE2"),
    ("a hibernated system", Start(4086), b"S1SUSPEND"),
    ("a hibernated system", Start(4086), b"S2SUSPEND"),
    ("a hibernated system", Start(4086), b"ULSUSPEND"),
    ("a hibernated system", Start(4086), b"LINHIB0001"),
    // File systems.
    ("an ext2, ext3 or ext4 file system", Start(0x438), b"\x53\xef"),
    ("an XFS file system", Start(0), b"XFSB"),
    ("the log of an XFS file system", Start(0), b"\xfe\xed\xba\xbe"),
    ("a btrfs file system", Start(0x1_0040), b"_BHRfS_M"),
    ("a btrfs file system (its second superblock)", Start(0x400_0040), b"_BHRfS_M"),
    ("an f2fs file system", Start(1024), b"\x10\x20\xf5\xf2"),
    ("a NILFS2 file system", Start(1030), b"\x34\x34"),
    ("an NTFS file system", Start(3), b"NTFS    "),
    ("an exFAT file system", Start(3), b"EXFAT   "),
    ("a FAT file system", Start(0x52), b"FAT32   "),
    ("a FAT file system", Start(0x52), b"MSWIN"),
    ("a FAT file system", Start(0x36), b"FAT12   "),
    ("a FAT file system", Start(0x36), b"FAT16   "),
    ("a FAT file system", Start(0x36), b"MSDOS"),
    ("a FAT file system", Start(0x36), b"FAT     "),
    ("an ISO 9660 file system", Start(0x8001), b"CD001"),
    ("an ISO 9660 file system (High Sierra)", Start(0x8009), b"CDROM"),
    ("a UDF file system", Start(0x8001), b"BEA01"),
    ("a UDF file system", Start(0x8001), b"BOOT2"),
    ("a UDF file system", Start(0x8001), b"NSR0"),
    ("a UDF file system", Start(0x8001), b"TEA01"),
    ("a squashfs file system", Start(0), b"hsqs"),
    ("a squashfs file system", Start(0), b"sqsh"),
    ("an EROFS file system", Start(1024), b"\xe2\xe1\xf5\xe0"),
    ("a cramfs file system", Start(0), b"\x45\x3d\xcd\x28"),
    ("a romfs file system", Start(0), b"-rom1fs-"),
    ("a zonefs file system", Start(0), b"SFOZ"),
    ("a ReFS file system", Start(0), b"\0\0\0ReFS\0"),
    ("an APFS container", Start(32), b"NXSB"),
    ("an HFS file system", Start(1024), b"BD"),
    ("an HFS+ file system", Start(1024), b"H+"),
    ("an HFS+ file system", Start(1024), b"HX"),
    ("a JFS file system", Start(0x8000), b"JFS1"),
    ("a ReiserFS file system", Start(0x1_0034), b"ReIsEr"),
    ("a ReiserFS file system", Start(0x2034), b"ReIsEr"),
    ("a Reiser4 file system", Start(0x1_0000), b"ReIsEr4"),
    ("a GFS2 file system", Start(0x1_0000), b"\x01\x16\x19\x70"),
    ("an OCFS2 file system", Start(1024), b"OCFSV2"),
    ("an OCFS2 file system", Start(2048), b"OCFSV2"),
    ("an OCFS2 file system", Start(4096), b"OCFSV2"),
    ("an OCFS2 file system", Start(8192), b"OCFSV2"),
    ("an OCFS file system", Start(8), b"OracleCFS"),
    ("a UFS file system", Start(0x255c), b"\x54\x19\x01\x00"),
    ("a UFS file system", Start(0x255c), b"\x19\x01\x54\x19"),
    ("a UFS file system", Start(0x1_055c), b"\x19\x01\x54\x19"),
    ("a UFS file system", Start(0x4_055c), b"\x19\x01\x54\x19"),
    ("a UFS file system", Start(0x255c), b"\x00\x01\x19\x54"),
    ("a Minix file system", Start(1040), b"\x7f\x13"),
    ("a Minix file system", Start(1040), b"\x8f\x13"),
    ("a Minix file system", Start(1040), b"\x68\x24"),
    ("a Minix file system", Start(1040), b"\x78\x24"),
    ("a Minix file system", Start(1048), b"\x5a\x4d"),
    ("a VxFS file system", Start(1024), b"\xf5\xfc\x01\xa5"),
    ("a VMFS volume", Start(0x10_0000), b"\x0d\xd0\x01\xc0"),
    ("a VMFS file system", Start(0x20_0000), b"\x5e\xf1\xab\x2f"),
    ("a BeOS file system", Start(544), b"BFS1"),
    ("an HPFS file system", Start(0x2000), b"\x49\xe8\x95\xf9"),
    // Partition tables last: the boot sector of a FAT or NTFS file system looks like one.
    ("a GPT partition table", Start(512), b"EFI PART"),
    ("a GPT partition table", Start(4096), b"EFI PART"),
    ("a GPT partition table (its copy at the end)", end(512), b"EFI PART"),
    ("a GPT partition table (its copy at the end)", End { align: 4096, back: 4096, inner: 0 },
        b"EFI PART"),
    ("a BSD disk label", Start(512), b"\x57\x45\x56\x82"),
    ("a BSD disk label", Start(64), b"\x57\x45\x56\x82"),
    ("a Sun disk label", Start(508), b"\xda\xbe"),
    ("an SGI disk label", Start(0), b"\x0b\xe5\xa9\x41"),
    ("an AIX disk label", Start(0), b"\xc9\xc2\xd4\xc1"),
    ("an Apple partition map", Start(512), b"PM\0\0"),
    ("an MBR partition table or a boot sector", Start(510), b"\x55\xaa"),
];

/// ZFS has four labels, two at either end, and in the upper half of each a ring of uberblocks that
/// begin with this number in the byte order of the machine that wrote them.
const ZFS_UBERBLOCK: u64 = 0x00ba_b10c;
const ZFS_LABEL: u64 = 256 << 10;

/// Reads bytes of a device.
pub(crate) type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>;

/// A mark that was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// For people.
    pub(crate) what: &'static str,
    /// Its bytes.
    pub(crate) range: Range<u64>,
}

/// The first mark of somebody else's on a device of `len` bytes. Of `ours` it is known what they
/// are.
///
/// # Errors
/// What the device says.
pub(crate) fn find(read: Read<'_>, len: u64, ours: &[Range<u64>]) -> io::Result<Option<Mark>> {
    for (what, at, mark) in MARKS {
        let Some(at) = at.offset(len) else { continue };
        let end = at + mark.len() as u64;
        if end > len || is_in(ours, &(at..end)) {
            continue;
        }
        let mut found = [0; 32];
        let found = &mut found[..mark.len()];
        read(at, found)?;
        if found == *mark {
            return Ok(Some(Mark { what, range: at..end }));
        }
    }
    zfs(read, len, ours)
}

fn is_in(ours: &[Range<u64>], range: &Range<u64>) -> bool {
    ours.iter().any(|ours| ours.start <= range.start && range.end <= ours.end)
}

fn zfs(read: Read<'_>, len: u64, ours: &[Range<u64>]) -> io::Result<Option<Mark>> {
    let whole = len / ZFS_LABEL * ZFS_LABEL;
    let labels = [Some(0), Some(ZFS_LABEL)]
        .into_iter()
        .chain([whole.checked_sub(2 * ZFS_LABEL), whole.checked_sub(ZFS_LABEL)]);
    for label in labels.flatten().filter(|label| label + ZFS_LABEL <= len) {
        let mut ring = vec![0; (ZFS_LABEL / 2) as usize];
        read(label + ZFS_LABEL / 2, &mut ring)?;
        let is_one = |block: &[u8]| {
            let number = block.first_chunk().map(|word| u64::from_le_bytes(*word));
            number == Some(ZFS_UBERBLOCK) || number == Some(ZFS_UBERBLOCK.swap_bytes())
        };
        let place = |n: usize| {
            let at = label + ZFS_LABEL / 2 + n as u64 * 1024;
            at..at + 8
        };
        let mut found = ring.chunks(1024).enumerate().filter(|(_, block)| is_one(block));
        if let Some((n, _)) = found.find(|(n, _)| !is_in(ours, &place(*n))) {
            return Ok(Some(Mark { what: "a member of a ZFS pool", range: place(n) }));
        }
    }
    Ok(None)
}

/// The first byte within [`EDGE`] of either end that is not zero, or at one of [`SAMPLES`] places
/// between.
///
/// # Errors
/// What the device says.
pub(crate) fn first_data(read: Read<'_>, len: u64) -> io::Result<Option<u64>> {
    let edge = EDGE.min(len);
    for from in [0, len - edge] {
        if let Some(at) = first_in(read, from..from + edge)? {
            return Ok(Some(at));
        }
    }
    let between = len.saturating_sub(2 * edge);
    let apart = (between / SAMPLES / SAMPLE * SAMPLE).max(SAMPLE);
    for n in (0..SAMPLES).take_while(|n| (n + 1) * apart <= between) {
        let from = edge + n * apart;
        if let Some(at) = first_in(read, from..from + SAMPLE)? {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// The first byte of some that is not zero.
///
/// # Errors
/// What the device says.
pub(crate) fn first_in(read: Read<'_>, range: Range<u64>) -> io::Result<Option<u64>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    read(range.start, &mut bytes)?;
    Ok(bytes.iter().position(|byte| *byte != 0).map(|n| range.start + n as u64))
}

impl At {
    fn offset(self, len: u64) -> Option<u64> {
        match self {
            Start(at) => Some(at),
            End { align, back, inner } => Some((len / align * align).checked_sub(back)? + inner),
        }
    }
}

/// Where each mark would be that fits on a device of `len` bytes, and one of ZFS.
#[cfg(test)]
pub(super) fn places(len: u64) -> Vec<(u64, &'static [u8])> {
    let marks = MARKS.iter().filter_map(|(_, at, mark)| Some((at.offset(len)?, *mark)));
    let zfs = (len / ZFS_LABEL * ZFS_LABEL - ZFS_LABEL / 2, &b"\x0c\xb1\xba\0\0\0\0\0"[..]);
    marks.chain([zfs]).filter(|(at, mark)| at + mark.len() as u64 <= len).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    const LEN: u64 = 80 << 20;

    fn look(image: &[u8], ours: &[Range<u64>]) -> Option<Mark> {
        let read = |at: u64, into: &mut [u8]| {
            into.copy_from_slice(&image[at as usize..][..into.len()]);
            Ok(())
        };
        find(&read, image.len() as u64, ours).unwrap()
    }

    #[test]
    fn every_mark_is_found_at_its_place_and_named_unless_it_is_in_what_is_ours() {
        let mut image = vec![0; LEN as usize];
        assert_eq!(look(&image, &[]), None);
        for (what, at, mark) in MARKS {
            let at = at.offset(LEN).unwrap();
            let place = at as usize..at as usize + mark.len();
            image[place.clone()].copy_from_slice(mark);
            let found = look(&image, &[]).unwrap();
            assert!(found.what == *what || found.range.start == at, "{found:?}");
            assert_eq!(look(&image, std::slice::from_ref(&(at..at + 32))), None, "{what}");
            image[place].fill(0);
        }
    }

    /// As programs write them, not as the table has them.
    #[test]
    fn what_the_commonest_programs_write_is_named() {
        let golden: [(u64, &[u8], &str); 9] = [
            (0x1fe, b"\x55\xaa", "MBR"),
            (0x200, b"EFI PART\0\0\x01\0", "GPT"),
            ((80 << 20) - 512, b"EFI PART\0\0\x01\0", "GPT"),
            (0x200, b"LABELONE\x01\0\0\0\0\0\0\0", "LVM2"),
            (0x218, b"LVM2 001", "LVM2"),
            (0x1000, b"\xfc\x4e\x2b\xa9\x01\0\0\0", "mdraid 1.2"),
            ((80 << 20) - 0x2000, b"\xfc\x4e\x2b\xa9\x01\0\0\0", "mdraid 1.0"),
            (0, b"LUKS\xba\xbe\0\x02", "LUKS"),
            (0x438, b"\x53\xef\x01\0", "ext4"),
        ];
        let mut image = vec![0; LEN as usize];
        for (at, bytes, what) in golden {
            let place = at as usize..at as usize + bytes.len();
            image[place.clone()].copy_from_slice(bytes);
            let found = look(&image, &[]).unwrap();
            assert!(found.what.contains(what), "{what}: {found:?}");
            image[place].fill(0);
        }
    }

    #[test]
    fn a_label_of_zfs_is_found_at_either_end_in_either_byte_order() {
        for odd in [0, 512, 100 << 10] {
            let len = LEN as usize + odd;
            let whole = len / (256 << 10) * (256 << 10);
            for label in [0, 256 << 10, whole - (512 << 10), whole - (256 << 10)] {
                for number in
                    [ZFS_UBERBLOCK.to_le_bytes(), ZFS_UBERBLOCK.swap_bytes().to_le_bytes()]
                {
                    let mut image = vec![0; len];
                    image[label + (128 << 10) + 5 * 1024..][..8].copy_from_slice(&number);
                    assert!(look(&image, &[]).unwrap().what.contains("ZFS"));
                }
            }
        }
    }

    #[test]
    fn one_byte_at_either_end_is_data() {
        let mut image = vec![0_u8; 4 << 20];
        let data = |image: &[u8]| {
            let read = |at: u64, into: &mut [u8]| {
                into.copy_from_slice(&image[at as usize..][..into.len()]);
                Ok(())
            };
            first_data(&read, image.len() as u64).unwrap()
        };
        assert_eq!(data(&image), None);
        for at in [0, (1 << 20) - 1, 3 << 20, (4 << 20) - 1] {
            image[at] = 1;
            assert_eq!(data(&image), Some(at as u64));
            image[at] = 0;
        }
        // Between them, where a file system was.
        image[2 << 20..(2 << 20) + (64 << 10)].fill(1);
        assert_eq!(data(&image), Some(2 << 20));
    }
}
