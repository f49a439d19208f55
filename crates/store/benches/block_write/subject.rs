//! The store under test: a home on an ordinary disk, a tier on the medium under test, files that
//! are full of blocks.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tiersmith_store::{
    AttachedHome, File, Guard, Medium, OpenMode, Options, Profile, TierSpec, attach, testing,
};

use crate::peers::noise;
use crate::scratch::Scratch;

type Failed = Box<dyn std::error::Error>;

/// Bytes of each redo file that stay in the tier. Smaller than what a round appends, so that the
/// drain works meanwhile.
pub(crate) const REDO_KEEP: u64 = 8 << 20;

/// A home and its tier.
pub(crate) struct Subject {
    home: PathBuf,
    spec: TierSpec,
    block_size: u32,
    redo_keep: u64,
}

impl Subject {
    /// Not attached yet; `block_size` is that of its data and redo files.
    pub(crate) fn new(
        scratch: &Scratch,
        name: &str,
        block_size: u32,
        tier_bytes: u64,
    ) -> Result<Subject, Failed> {
        let tier = scratch.fast(&format!("{name}.tier"));
        let mut spec = TierSpec::new("fast", tier, Medium::Emulated, tier_bytes);
        // Small units waste little of a tier that is only a little larger than what is in it.
        spec.unit = 256 << 10;
        Ok(Subject { home: scratch.home(name)?, spec, block_size, redo_keep: REDO_KEEP })
    }

    /// Keeps all redo in the tier: nothing is drained.
    pub(crate) fn undrained(mut self) -> Subject {
        self.redo_keep = self.spec.size;
        self
    }

    /// A tier that takes no memory for what is not written.
    pub(crate) fn sparse(mut self) -> Subject {
        self.spec.preallocate = false;
        self
    }

    /// Attaches, as a door would.
    pub(crate) fn attach(&self, record_waits: bool) -> Result<AttachedHome, Failed> {
        let rules = format!(
            "description = \"for the benchmark\"\n[default]\nclass = \"data\"\nblock_size = {0}\n\
             [[rule]]\nfiles = [\"redo*\"]\nclass = \"redo\"\nblock_size = {0}\nwhy = \
             \"appended\"\n",
            self.block_size
        );
        let options = Options {
            profile: Some(Profile::parse("block_write", &rules)?),
            guard: Guard::Door,
            redo_keep_bytes: self.redo_keep,
            record_waits,
            ..Options::default()
        };
        Ok(attach(&self.home, std::slice::from_ref(&self.spec), options)?)
    }

    /// Makes a file of `len` bytes, every block of it in the tier.
    pub(crate) fn fill(
        &self,
        attached: &AttachedHome,
        name: &str,
        len: u64,
    ) -> Result<File, Failed> {
        let file = attached.open(name, OpenMode::CREATE)?;
        let noise = noise(1 << 20);
        for at in (0..len).step_by(noise.len()) {
            file.write(at, &noise[..noise.len().min((len - at) as usize)])?;
        }
        Ok(file)
    }

    /// Makes a file whose blocks have map entries and were never written.
    pub(crate) fn fabricate(
        &self,
        attached: &AttachedHome,
        name: &str,
        len: u64,
    ) -> Result<(), Failed> {
        let file = attached.open(name, OpenMode::CREATE)?;
        testing::fabricate_entries(&file, len / u64::from(self.block_size))?;
        Ok(())
    }

    /// The file of the tier, to be removed.
    pub(crate) fn member(&self) -> &Path {
        &self.spec.members[0]
    }
}

/// Reads every block once, so that the page tables are filled before anything is timed.
pub(crate) fn touch(file: &File) -> Result<(), Failed> {
    let mut into = vec![0; 1 << 20];
    for at in (0..file.len()?).step_by(into.len()) {
        file.read(at, &mut into)?;
    }
    Ok(())
}

/// Waits until the drain has caught up, so that it does not work during the next row.
pub(crate) fn wait_for_drain(file: &File) {
    let keep = REDO_KEEP / file.block_size().map_or(1, |size| size.bytes() as u64);
    let until = Instant::now() + Duration::from_secs(5);
    while file.blocks_in_tier().0 > keep && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
}
