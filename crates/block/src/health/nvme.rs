//! The SMART log of an NVMe disk: how it is asked for, and what its bytes mean.
//!
//! Bytes of the log (little-endian; NVM Express Base Specification 2.0, figure 207):
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 1 | critical warning, a bit each ([`WARNINGS`]) |
//! | 1 | 2 | temperature, kelvin; 0: not told |
//! | 3 | 1 | spare blocks left, percent |
//! | 4 | 1 | the disk warns below this percentage |
//! | 5 | 1 | life used, percent; 255: that or more |
//! | 32 | 16 | read by hosts, in 1000 blocks of 512 bytes |
//! | 48 | 16 | written by hosts, likewise |
//! | 144 | 16 | losses of power without notice |
//! | 160 | 16 | media errors |
//!
//! **Deliberately absent**: every other admin command.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use zerocopy::little_endian::{U16, U128};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::Health;

/// Bits of the critical warning, from the lowest.
const WARNINGS: [&str; 6] = [
    "it has fewer spare blocks left than it should",
    "its temperature is outside its limits",
    "it is no longer reliable: too many errors of its medium or inside it",
    "its medium is read-only now",
    "the backup of its volatile memory has failed",
    "its persistent memory region is read-only or unreliable",
];

/// Percent of life used from which a disk's maker promises no more.
const WORN_OUT: u8 = 100;

/// The first 176 of 512 bytes.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SmartLog {
    critical: u8,
    kelvin: U16,
    spare_pct: u8,
    spare_least_pct: u8,
    used_pct: u8,
    _endurance_groups: u8,
    _reserved: [u8; 25],
    _read: U128,
    written: U128,
    _commands_and_hours: [[u8; 16]; 5],
    unsafe_shutdowns: U128,
    media_errors: U128,
}

/// Bytes of the log page.
const LOG_BYTES: usize = 512;

const _: () = {
    assert!(size_of::<SmartLog>() == 176 && size_of::<SmartLog>() <= LOG_BYTES);
    assert!(std::mem::offset_of!(SmartLog, written) == 48);
    assert!(std::mem::offset_of!(SmartLog, unsafe_shutdowns) == 144);
    assert!(std::mem::offset_of!(SmartLog, media_errors) == 160);
};

impl SmartLog {
    pub(super) fn of_page(page: &[u8; LOG_BYTES]) -> Result<SmartLog, String> {
        // No answer looks like this too: a disk that works has spare blocks, or a temperature.
        if page.iter().all(|byte| *byte == 0) {
            return Err("the disk answered with an empty log".into());
        }
        match SmartLog::read_from_prefix(page) {
            Ok((log, _)) => Ok(log),
            Err(e) => Err(format!("the disk's log is too short: {e}")),
        }
    }

    pub(super) fn tell(&self, health: &mut Health) {
        let whole = |figure: U128| u64::try_from(figure.get()).unwrap_or(u64::MAX);
        let set = |bit: &usize| self.critical & (1 << bit) != 0;
        health.warnings.extend(
            (0..WARNINGS.len()).filter(set).map(|bit| format!("the disk says: {}", WARNINGS[bit])),
        );
        if self.used_pct >= WORN_OUT {
            health.warnings.push(format!(
                "{} % of the life that its maker expects is used: replace it",
                self.used_pct
            ));
        }
        if self.kelvin.get() > 0 {
            health.temperature_c = Some(f64::from(self.kelvin.get()) - 273.0);
        }
        health.used_pct = Some(self.used_pct);
        health.spare_pct = Some(self.spare_pct);
        health.spare_least_pct = Some(self.spare_least_pct);
        health.media_errors = Some(whole(self.media_errors));
        health.written_bytes = Some(whole(self.written).saturating_mul(512_000));
        health.unsafe_shutdowns = Some(whole(self.unsafe_shutdowns));
    }
}

/// `struct nvme_passthru_cmd` of linux/nvme_ioctl.h.
#[derive(Debug, Default)]
#[repr(C)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_and_3: [u32; 2],
    metadata: u64,
    data: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    words_10_to_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<AdminCommand>() == 72);

/// `Get Log Page`, of all namespaces, the log `SMART / Health Information`.
const GET_LOG_PAGE: u8 = 0x02;
const ALL_NAMESPACES: u32 = u32::MAX;
const SMART: u32 = 0x02;
/// As the kernel has it for admin commands (60 s, `nvme_core.admin_timeout`). No less: a command
/// that takes longer makes the kernel reset the controller, under whatever else uses the disk
/// (`nvme_timeout` in drivers/nvme/host/pci.c).
const KERNELS_TIMEOUT: u32 = 0;

/// Get Log Page with the buffer that takes the page.
struct GetSmartLog<'a> {
    command: AdminCommand,
    _page: &'a mut [u8; LOG_BYTES],
}

impl<'a> GetSmartLog<'a> {
    fn into(page: &'a mut [u8; LOG_BYTES]) -> GetSmartLog<'a> {
        let words = (LOG_BYTES / 4 - 1) as u32;
        let command = AdminCommand {
            opcode: GET_LOG_PAGE,
            namespace: ALL_NAMESPACES,
            data: page.as_mut_ptr().expose_provenance() as u64,
            data_bytes: LOG_BYTES as u32,
            words_10_to_15: [words << 16 | SMART, 0, 0, 0, 0, 0],
            timeout_ms: KERNELS_TIMEOUT,
            ..AdminCommand::default()
        };
        GetSmartLog { command, _page: page }
    }
}

// SAFETY: NVME_IOCTL_ADMIN_CMD (linux/nvme_ioctl.h) takes a pointer to a `struct
// nvme_passthru_cmd`, which `AdminCommand` is, byte by byte. It writes that structure and
// `data_bytes` bytes at `data`: the page, borrowed for as long as this lives. It returns the
// disk's status, 0 or positive.
unsafe impl Ioctl for GetSmartLog<'_> {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<AdminCommand>(b'N', 0x41)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.command).cast()
    }

    unsafe fn output_from_ptr(status: IoctlOutput, _: *mut c_void) -> Result<i32, Errno> {
        Ok(status)
    }
}

/// Asks the disk behind a device node. An error is a reason, for people.
pub(super) fn smart_log(node: &Path) -> Result<SmartLog, String> {
    let shown = node.display();
    let disk = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(node)
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::PermissionDenied => "only root may ask the disk".to_owned(),
            _ => format!("cannot open {shown}: {e}"),
        })?;
    let mut page = [0; LOG_BYTES];
    let ask = GetSmartLog::into(&mut page);
    // SAFETY: the command changes nothing but the page, as said above; a device that is not NVMe
    // refuses it (ENOTTY).
    match unsafe { ioctl(&disk, ask) } {
        Ok(0) => SmartLog::of_page(&page),
        Ok(status) => {
            Err(format!("{shown} refused to give its SMART log: NVMe status {status:#x}"))
        }
        Err(Errno::ACCESS | Errno::PERM) => Err("only root may ask the disk".into()),
        Err(e) => Err(format!("cannot ask {shown} for its SMART log: {e}")),
    }
}
