//! The structures of FUSE's messages, as `linux/fuse.h` has them, protocol 7.38 and later, with the
//! reply layouts of 7.9 and later.
//!
//! Those of requests have no alignment: they are looked at where the kernel put them, and nothing
//! is copied. Those of answers are made here and copied into the transport's buffer.
//!
//! Invariant: sizes and offsets are asserted at compile time; nothing else in `wire/` knows one.

use std::mem::offset_of;

use zerocopy::native_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Makes structures of requests and checks their sizes.
macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, FromBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

requests! {
    /// `fuse_read_in`; of a directory, too.
    ReadIn: 40 { fh: U64, offset: U64, size: U32, read_flags: U32, lock_owner: U64, flags: U32,
    padding: U32 }
    /// `fuse_write_in`; the data follow.
    WriteIn: 40 { fh: U64, offset: U64, size: U32, write_flags: U32, lock_owner: U64, flags: U32,
    padding: U32 }
    /// `fuse_fsync_in`; of a directory, too.
    FsyncIn: 16 { fh: U64, fsync_flags: U32, padding: U32 }
    /// `fuse_forget_in`.
    ForgetIn: 8 { lookups: U64 }
    /// `fuse_batch_forget_in`; so many [`ForgetOne`] follow.
    BatchForgetIn: 8 { count: U32, dummy: U32 }
    /// `fuse_forget_one`.
    ForgetOne: 16 { node: U64, lookups: U64 }
    /// `fuse_getattr_in`.
    GetattrIn: 16 { getattr_flags: U32, dummy: U32, fh: U64 }
    /// `fuse_setattr_in`.
    SetattrIn: 88 {
        valid: U32, padding: U32, fh: U64, size: U64, lock_owner: U64,
        atime: I64, mtime: I64, ctime: I64, atime_nsec: U32, mtime_nsec: U32, ctime_nsec: U32,
        mode: U32, unused4: U32, uid: U32, gid: U32, unused5: U32,
    }
    /// `fuse_open_in`; of a directory, too.
    OpenIn: 8 { flags: U32, open_flags: U32 }
    /// `fuse_create_in`; the name follows.
    CreateIn: 16 { flags: U32, mode: U32, umask: U32, open_flags: U32 }
    /// `fuse_release_in`; of a directory, too.
    ReleaseIn: 24 { fh: U64, flags: U32, release_flags: U32, lock_owner: U64 }
    /// `fuse_fallocate_in`.
    FallocateIn: 32 { fh: U64, offset: U64, length: U64, mode: U32, padding: U32 }
    /// `fuse_lseek_in`.
    LseekIn: 24 { fh: U64, offset: U64, whence: U32, padding: U32 }
    /// `fuse_mkdir_in`; the name follows.
    MkdirIn: 8 { mode: U32, umask: U32 }
    /// `fuse_mknod_in`; the name follows.
    MknodIn: 16 { mode: U32, rdev: U32, umask: U32, padding: U32 }
    /// `fuse_link_in`; the name follows.
    LinkIn: 8 { node: U64 }
    /// `fuse_rename_in`; the names follow.
    RenameIn: 8 { new_dir: U64 }
    /// `fuse_rename2_in`; the names follow.
    Rename2In: 16 { new_dir: U64, flags: U32, padding: U32 }
    /// `fuse_setxattr_in` without extensions; name and value follow.
    SetxattrIn: 8 { size: U32, flags: U32 }
    /// `fuse_getxattr_in`; of a list of names, too. The name follows.
    GetxattrIn: 8 { size: U32, padding: U32 }
    /// `fuse_interrupt_in`.
    InterruptIn: 8 { unique: U64 }
}

const _: () = {
    assert!(offset_of!(ReadIn, offset) == 8 && offset_of!(ReadIn, size) == 16);
    assert!(offset_of!(WriteIn, offset) == 8 && offset_of!(WriteIn, size) == 16);
    assert!(offset_of!(WriteIn, write_flags) == 20 && offset_of!(WriteIn, flags) == 32);
    assert!(offset_of!(SetattrIn, fh) == 8 && offset_of!(SetattrIn, size) == 16);
    assert!(offset_of!(SetattrIn, atime) == 32 && offset_of!(SetattrIn, atime_nsec) == 56);
    assert!(offset_of!(SetattrIn, mode) == 68 && offset_of!(SetattrIn, uid) == 76);
    assert!(offset_of!(GetattrIn, fh) == 8 && offset_of!(FsyncIn, fsync_flags) == 8);
    assert!(offset_of!(FallocateIn, length) == 16 && offset_of!(FallocateIn, mode) == 24);
    assert!(offset_of!(LseekIn, whence) == 16 && offset_of!(Rename2In, flags) == 8);
    assert!(offset_of!(CreateIn, mode) == 4 && offset_of!(CreateIn, umask) == 8);
    assert!(offset_of!(MknodIn, rdev) == 4 && offset_of!(MknodIn, umask) == 8);
};

/// Makes structures of answers and checks their sizes.
macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident: $size:literal { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Default, Immutable, IntoBytes)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $kind),* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

answers! {
    /// `fuse_attr`.
    AttrOut: 88 {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64,
        atime_nsec: u32, mtime_nsec: u32, ctime_nsec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// `fuse_attr_out`.
    GetattrOut: 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: AttrOut }
    /// `fuse_entry_out`.
    EntryOut: 128 {
        node: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: AttrOut,
    }
    /// `fuse_open_out`.
    OpenOut: 16 { fh: u64, open_flags: u32, backing_id: i32 }
    /// `fuse_write_out`.
    WriteOut: 8 { size: u32, padding: u32 }
    /// `fuse_getxattr_out`: how long it is.
    GetxattrOut: 8 { size: u32, padding: u32 }
    /// `fuse_lseek_out`.
    LseekOut: 8 { offset: u64 }
    /// `fuse_statfs_out`.
    StatfsOut: 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: [u32; 6],
    }
    /// `fuse_dirent`; the name follows, padded to [`DIRENT_ALIGN`].
    Dirent: 24 { ino: u64, next: u64, name_len: u32, kind: u32 }
}

const _: () = {
    assert!(offset_of!(GetattrOut, attr) == 16 && offset_of!(EntryOut, attr) == 40);
    assert!(offset_of!(AttrOut, atime_nsec) == 48 && offset_of!(AttrOut, mode) == 60);
    assert!(
        offset_of!(EntryOut, entry_valid) == 16 && offset_of!(EntryOut, entry_valid_nsec) == 32
    );
    assert!(offset_of!(OpenOut, open_flags) == 8 && offset_of!(OpenOut, backing_id) == 12);
    assert!(offset_of!(StatfsOut, bsize) == 40 && offset_of!(Dirent, name_len) == 16);
};

/// Where directory entries begin.
pub(crate) const DIRENT_ALIGN: usize = 8;

/// `FUSE_WRITE_KILL_SUIDGID` in [`WriteIn::write_flags`].
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_FSYNC_FDATASYNC` in [`FsyncIn::fsync_flags`].
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// `FUSE_GETATTR_FH` in [`GetattrIn::getattr_flags`].
pub(crate) const GETATTR_FH: u32 = 1 << 0;

/// `FATTR_*` in [`SetattrIn::valid`]: which fields are to be set.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}
