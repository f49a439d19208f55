//! The bytes that kernel and ring thread exchange: where each field is, and nothing else.
//!
//! A ring entry has two areas that the kernel fills and reads: a header of 288 bytes and a payload.
//! The header has three parts: the request's `fuse_in_header` (later the answer's
//! `fuse_out_header`), the operation's own structure, and the entry's management data. Everything
//! that follows the operation's structure (names, data), and the whole body of an answer, is in the
//! payload. The layouts are those of `linux/fuse.h`, protocol 7.42. What the operations mean is not
//! known here.
//!
//! Invariant: no length from the kernel is used before it was compared with the room that it must
//! fit in.

use crate::header::{IN_HEADER, InHeader, OUT_HEADER, OutHeader};
use io_uring::{opcode, squeue, types};
use std::mem::offset_of;
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The commands of `enum fuse_uring_cmd`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Room for a header of the protocol, and for the structure of an operation.
const ROOM: usize = 128;
/// Bytes of a submission that a command has for itself.
const COMMAND_ROOM: usize = 80;

/// `struct fuse_uring_req_header`. `in_out` begins with an [`InHeader`], in the answer with an
/// [`OutHeader`].
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RequestHeader {
    in_out: [u8; ROOM],
    operation: [u8; ROOM],
    entry: EntryHeader,
}

/// `struct fuse_uring_ent_in_out`.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct EntryHeader {
    flags: U64,
    commit_id: U64,
    payload_size: U32,
    padding: U32,
    reserved: U64,
}

/// `struct fuse_uring_cmd_req`, which is the command area of a submission.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct Command {
    flags: U64,
    commit_id: U64,
    queue: U16,
    padding: [u8; 6],
}

/// Size of the header area of an entry.
pub(super) const HEADER: usize = size_of::<RequestHeader>();

const _: () = assert!(HEADER == 288 && offset_of!(RequestHeader, operation) == 128);
const _: () = assert!(offset_of!(RequestHeader, entry) == 256);
const _: () =
    assert!(offset_of!(EntryHeader, commit_id) == 8 && offset_of!(EntryHeader, payload_size) == 16);
const _: () = assert!(size_of::<Command>() == 24 && offset_of!(Command, queue) == 16);

/// A request as it lies in an entry's areas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrived {
    /// What the operation is.
    pub(super) opcode: u32,
    /// The number that the answer repeats.
    unique: u64,
    /// The number under which the kernel finds the entry again.
    pub(super) commit_id: u64,
    /// Length of the operation's structure.
    fixed: usize,
    /// Length of what follows it.
    pub(super) rest: usize,
    /// Whether the lengths fit together.
    pub(super) sound: bool,
}

impl Arrived {
    /// Reads what the kernel has put into an entry whose payload area has `room` bytes.
    pub(super) fn read(header: &[u8; HEADER], room: usize) -> Self {
        let header: &RequestHeader = zerocopy::transmute_ref!(header);
        let (request, _) =
            InHeader::ref_from_prefix(&header.in_out).expect("BUG: its room is larger");
        let (len, rest) = (request.len.get() as usize, header.entry.payload_size.get() as usize);
        let fixed =
            len.checked_sub(IN_HEADER).and_then(|n| n.checked_sub(rest)).filter(|n| *n <= ROOM);
        let sound = fixed.is_some() && rest <= room;
        Self {
            opcode: request.opcode.get(),
            unique: request.unique.get(),
            commit_id: header.entry.commit_id.get(),
            fixed: if sound { fixed.unwrap_or(0) } else { 0 },
            rest: if sound { rest } else { 0 },
            sound,
        }
    }

    /// The request's `fuse_in_header` and its operation's structure.
    pub(super) fn parts<'a>(&self, header: &'a [u8; HEADER]) -> (&'a [u8], &'a [u8]) {
        let header: &RequestHeader = zerocopy::transmute_ref!(header);
        (&header.in_out[..IN_HEADER], &header.operation[..self.fixed.min(ROOM)])
    }

    /// Writes the answer's header: the length of its body, or the errno.
    pub(super) fn answer(&self, header: &mut [u8; HEADER], body: Result<u32, i32>) {
        let header: &mut RequestHeader = zerocopy::transmute_mut!(header);
        header.in_out[..OUT_HEADER].copy_from_slice(OutHeader::new(self.unique, body).as_bytes());
        header.entry.payload_size = body.unwrap_or(0).into();
    }
}

/// The submission that commits an answer and asks for the next request. The device is registered
/// file 0 of the ring.
pub(super) fn commit(queue: u16, commit_id: u64) -> squeue::Entry128 {
    opcode::UringCmd80::new(types::Fixed(0), COMMIT_AND_FETCH)
        .cmd(command(queue, commit_id))
        .build()
}

/// The submission that gives an entry to a queue. `areas` points to two `iovec`s, the header's and
/// the payload's, which the kernel reads while the submission is made.
pub(super) fn register(queue: u16, areas: *const libc::iovec) -> squeue::Entry128 {
    let submission = opcode::UringCmd80::new(types::Fixed(0), REGISTER)
        .cmd(command(queue, 0))
        .addr(Some(areas as u64)) // an address is all the kernel wants
        .build();
    with_len(submission, 2)
}

fn command(queue: u16, commit_id: u64) -> [u8; COMMAND_ROOM] {
    let command = Command {
        flags: 0.into(),
        commit_id: commit_id.into(),
        queue: queue.into(),
        padding: [0; 6],
    };
    let mut bytes = [0; COMMAND_ROOM];
    bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
    bytes
}

/// Where `len` is in `struct io_uring_sqe`.
const SQE_LEN_AT: usize = 24;
const _: () = assert!(
    size_of::<squeue::Entry128>() == 128 && align_of::<squeue::Entry128>() >= align_of::<u32>()
);

/// A submission with its `len` field set, for which the library has no setter in this command.
fn with_len(mut submission: squeue::Entry128, len: u32) -> squeue::Entry128 {
    // SAFETY: `Entry128` is `repr(C)` around the kernel's 64-byte `io_uring_sqe` and 64 bytes more,
    // all of them plain integers, so bytes 24 to 27 (`len`) are inside it, aligned, and may hold
    // any value; the reference above is the only one.
    unsafe { (&raw mut submission).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write(len) };
    submission
}

#[cfg(test)]
#[allow(clippy::host_endian_bytes, reason = "the kernel of this machine writes its messages")]
mod tests {
    use super::*;

    fn header(len: u32, rest: u32) -> [u8; HEADER] {
        // Written from the kernel's header, not from the structures above.
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[8..16].copy_from_slice(&7u64.to_ne_bytes());
        bytes[264..272].copy_from_slice(&9u64.to_ne_bytes());
        bytes[272..276].copy_from_slice(&rest.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_request_is_its_header_its_structure_and_the_rest() {
        let bytes = header(40 + 16 + 5, 5);
        let arrived = Arrived::read(&bytes, 100);
        assert!(arrived.sound);
        assert_eq!((arrived.commit_id, arrived.rest), (9, 5));
        let (head, fixed) = arrived.parts(&bytes);
        assert_eq!((head.len(), fixed.len()), (40, 16));
    }

    #[test]
    fn lengths_that_do_not_fit_together_are_not_used() {
        for (len, rest) in [
            (0, 0),
            (39, 0),
            (40, 1),
            (40 + 129, 0),
            (u32::MAX, 0),
            (45, u32::MAX),
            (40 + 101, 101),
        ] {
            let arrived = Arrived::read(&header(len, rest), 100);
            assert!(!arrived.sound, "len {len} rest {rest}");
            assert_eq!((arrived.fixed, arrived.rest), (0, 0));
        }
    }

    #[test]
    fn an_answer_names_its_request_and_its_length_or_error() {
        let mut bytes = header(40, 0);
        let arrived = Arrived::read(&bytes, 0);
        arrived.answer(&mut bytes, Ok(8));
        assert_eq!(bytes[..8], [24, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..16], 7u64.to_ne_bytes());
        assert_eq!(bytes[272..276], 8u32.to_ne_bytes());
        arrived.answer(&mut bytes, Err(5));
        assert_eq!(bytes[..8], [16, 0, 0, 0, 0xfb, 0xff, 0xff, 0xff]);
        assert_eq!(bytes[272..276], [0; 4]);
    }
}
