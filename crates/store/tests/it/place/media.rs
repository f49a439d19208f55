//! The medium that a suite runs on: mapped; or, in a test binary whose name ends with `on_sectors`,
//! metadata mapped and blocks on a device of sectors, which is a file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tiersmith_block::{Device, OpenOptions, SectorSize, Sectors};
use tiersmith_dir::Dir;
use tiersmith_pmem::{Access, Mapping};
use tiersmith_store::testing::{TestMember, attach_simulated_at};
use tiersmith_store::{AttachedHome, Error, Options, TierSpec};

/// Whether blocks are on a device of sectors.
pub(crate) const ON_SECTORS: bool = ends_with(env!("CARGO_CRATE_NAME").as_bytes(), b"on_sectors");

/// Whether a reader can borrow a block: it is memory.
pub(crate) const LENDS: bool = !ON_SECTORS;

const fn ends_with(name: &[u8], end: &[u8]) -> bool {
    let mut n = 0;
    while n < end.len() {
        if name.len() < end.len() || name[name.len() - end.len() + n] != end[n] {
            return false;
        }
        n += 1;
    }
    true
}

/// How often to do what is done `usual` times on mapped media. A device takes longer, and the races
/// are the same.
pub(crate) const fn times(usual: u64) -> u64 {
    if ON_SECTORS { usual.div_ceil(12) } else { usual }
}

/// Attaches a home to a tier in files.
pub(crate) fn attach(
    home: &Path,
    spec: &TierSpec,
    options: Options,
) -> Result<AttachedHome, Error> {
    if !ON_SECTORS {
        return tiersmith_store::attach(home, std::slice::from_ref(spec), options);
    }
    let members = spec.members.iter().map(|path| member(path, spec)).collect::<Result<_, _>>()?;
    attach_simulated_at(home, vec![(spec.clone(), members)], &super::profile(), options)
}

/// A file that is mapped, with a device beside it.
fn member(path: &Path, spec: &TierSpec) -> Result<TestMember, Error> {
    let existing = std::fs::metadata(path).map_or(0, |found| found.len());
    let len = if existing == 0 { spec.size } else { existing };
    let options = tiersmith_pmem::OpenOptions {
        create: existing == 0,
        max_len: spec.max_size.max(len),
        ..tiersmith_pmem::OpenOptions::new(Access::Emulated, len)
    };
    let mapping = Arc::new(Mapping::open(path, &options)?);
    let device = Mutex::new(Some(device(path.with_extension("blocks"), len)?));
    let open = move || device.lock().unwrap().take().expect("a member is attached once");
    Ok(TestMember { mapping, blocks: Some(Arc::new(open)), on_flash: None })
}

/// The device in the file at `path`, which is made if it is missing.
fn device(path: PathBuf, len: u64) -> Result<Device, Error> {
    let dir = Dir::open(path.parent().unwrap()).unwrap();
    let name = path.file_name().unwrap();
    let sectors = Sectors::in_bytes(len, SectorSize::B512);
    let options = OpenOptions { create: true, ..OpenOptions::new(SectorSize::B512, sectors) };
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        match Device::open(&dir, name, &options) {
            // A process that another test is just starting has, until its exec, a copy of the
            // descriptor and its lock.
            Err(tiersmith_block::Error::Owned { .. }) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return Ok(opened?),
        }
    }
}

/// The device of a [`Memory`], in its directory.
const BLOCKS: &str = "blocks";

/// Memory as the only member of a tier; it outlives an attach.
#[derive(Clone)]
pub(crate) struct Memory {
    mapping: Arc<Mapping>,
    blocks: Option<Arc<tempfile::TempDir>>,
}

impl Memory {
    pub(crate) fn new(bytes: u64) -> Self {
        Self::of(Mapping::in_memory(&vec![0; bytes as usize], 0))
    }

    pub(crate) fn of(mapping: Mapping) -> Self {
        let dir = || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { mapping: Arc::new(mapping), blocks: ON_SECTORS.then(|| Arc::new(dir())) }
    }

    /// What another process finds now: nobody has a pin or a latch.
    pub(crate) fn restarted(&self) -> Self {
        let again = Self::of(Mapping::in_memory(&super::image(&self.mapping), 0));
        if let (Some(from), Some(to)) = (&self.blocks, &again.blocks) {
            std::fs::copy(from.path().join(BLOCKS), to.path().join(BLOCKS)).unwrap();
        }
        again
    }
}

impl From<Memory> for TestMember {
    fn from(memory: Memory) -> Self {
        let Memory { mapping, blocks } = memory;
        let len = mapping.len();
        let open = move |dir: Arc<tempfile::TempDir>| -> Arc<dyn Fn() -> Device + Send + Sync> {
            Arc::new(move || device(dir.path().join(BLOCKS), len).unwrap())
        };
        Self { mapping, blocks: blocks.map(open), on_flash: None }
    }
}
