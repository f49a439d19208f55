//! The two headers that every FUSE message begins with, whatever brings it.
//!
//! The layouts are those of `linux/fuse.h`. The fields have the machine's byte order and no
//! alignment, so that a header is read where it lies, in any buffer.
//!
//! **Deliberately absent**: what the operations mean (`wire/`).

use zerocopy::native_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `fuse_in_header`: what a request begins with.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct InHeader {
    pub(crate) len: U32,
    pub(crate) opcode: U32,
    pub(crate) unique: U64,
    pub(crate) node: U64,
    pub(crate) uid: U32,
    pub(crate) gid: U32,
    pub(crate) pid: U32,
    pub(crate) extensions_len: U16,
    pub(crate) padding: U16,
}

/// `fuse_out_header`: what an answer begins with.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct OutHeader {
    pub(crate) len: U32,
    /// 0, or a negative error number.
    pub(crate) error: I32,
    /// That of the request.
    pub(crate) unique: U64,
}

/// Length of the header of a request.
pub(crate) const IN_HEADER: usize = size_of::<InHeader>();
/// Length of the header of an answer.
pub(crate) const OUT_HEADER: usize = size_of::<OutHeader>();

const _: () = {
    use std::mem::offset_of;
    assert!(IN_HEADER == 40 && OUT_HEADER == 16);
    assert!(offset_of!(InHeader, opcode) == 4 && offset_of!(InHeader, unique) == 8);
    assert!(offset_of!(InHeader, node) == 16 && offset_of!(InHeader, uid) == 24);
    assert!(offset_of!(InHeader, gid) == 28 && offset_of!(InHeader, pid) == 32);
    assert!(offset_of!(OutHeader, error) == 4 && offset_of!(OutHeader, unique) == 8);
};

impl OutHeader {
    /// The header of an answer whose body has `len` bytes, or of an error, as a positive number.
    pub(crate) fn new(unique: u64, body: Result<u32, i32>) -> Self {
        let (len, error) = body.map_or_else(|errno| (0, -errno), |len| (len, 0));
        Self { len: (OUT_HEADER as u32 + len).into(), error: error.into(), unique: unique.into() }
    }
}
