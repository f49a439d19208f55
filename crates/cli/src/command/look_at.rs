//! `tiersmith look-at`: the first bytes of a block device, for the process that started this one.
//!
//! The command is hidden. It is a process of its own because a device may hang, and who waits for
//! it then cannot be ended.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use tiersmith_store::OnDevice;

use crate::Outcome;
use crate::error::{Error, Result};
use crate::mounted::device;

/// Print the first bytes of a block device for another `tiersmith`
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith look-at /dev/nvme1n1 | od -c

Exit codes: 0 printed, also why the device cannot be read; 2 error.")]
pub(crate) struct LookAt {
    /// The device; it is opened for reading, and nobody is kept from using it
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
}

impl LookAt {
    pub(super) fn run(&self) -> Result<Outcome> {
        let answer = device::answer_of(tiersmith_block::read_begin(&self.device, OnDevice::BYTES));
        let mut out = std::io::stdout().lock();
        let cannot = |source| Error::Io { what: "print of", path: self.device.clone(), source };
        out.write_all(&answer).and_then(|()| out.flush()).map_err(cannot)?;
        Ok(Outcome::Good)
    }
}
