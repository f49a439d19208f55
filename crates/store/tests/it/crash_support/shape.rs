//! The tiers that a crash test runs on: how many, how large, on what; and which files are what.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tiersmith_block::Device;
use tiersmith_pmem::sim::{self, Simulator};
use tiersmith_pmem::{FRAME, Mapping};
use tiersmith_store::home::SimHome;
use tiersmith_store::testing::TestMember;
use tiersmith_store::{
    AttachedHome, CacheRules, Medium, Options, Planted, Profile, TierSpec, testing,
};

/// Files by name ending: `.redo` (those that begin with `w` may be lent), `.db` (4 KiB blocks),
/// `.big` (8 KiB blocks), all else passes.
static PROFILE: LazyLock<Profile> = LazyLock::new(|| {
    Profile::parse(
        "crash",
        r#"
        description = "the crash tests' own"
        [default]
        class = "pass"
        block_size = 4096
        [[rule]]
        files = ["**/w*.redo"]
        class = "redo"
        block_size = 4096
        lend = true
        why = "test"
        [[rule]]
        files = ["**/*.redo"]
        class = "redo"
        block_size = 4096
        why = "test"
        [[rule]]
        files = ["**/*.db"]
        class = "data"
        block_size = 4096
        why = "test"
        [[rule]]
        files = ["**/*.big"]
        class = "data"
        block_size = 8192
        why = "test"
        "#,
    )
    .expect("the profile is right")
});

/// Those of [`Shape::rules`].
static RULES: LazyLock<CacheRules> =
    LazyLock::new(|| CacheRules::parse(["none=*.big", "keep=a.db"]).expect("the rules are right"));

/// Which tiers there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tiers {
    /// One, for redo and data.
    #[default]
    One,
    /// One for redo and one for data.
    RedoBesideData,
    /// One that loses what it holds with the power: clean copies only, and all files pass or are
    /// written through.
    Volatile,
    /// One whose metadata is mapped and whose blocks are on a device of sectors.
    OnSectors,
    /// One on a device of sectors alone.
    OnFlash,
    /// The same, with clean copies only.
    Ephemeral,
}

impl Tiers {
    /// All of the tier is on a device of sectors.
    fn is_on_disk(self) -> bool {
        matches!(self, Self::OnFlash | Self::Ephemeral)
    }
}

/// A member: mapped memory, and a device where its blocks are not in that.
#[derive(Clone)]
pub struct Media {
    pub mapping: Arc<Mapping>,
    pub device: Option<sim::Device>,
    /// All of it is on the device, which may grow to so many bytes.
    pub on_flash: Option<u64>,
}

impl From<Media> for TestMember {
    fn from(media: Media) -> Self {
        let Media { mapping, device, on_flash } = media;
        let open = |device: sim::Device| -> Arc<dyn Fn() -> Device + Send + Sync> {
            Arc::new(move || Device::simulated(device.clone()))
        };
        Self { mapping, blocks: device.map(open), on_flash }
    }
}

impl Media {
    /// The bytes of the mapping, and those of the device, in vectors that may hold anything:
    /// millions of images are looked at, and fresh memory costs a page fault for every 4 KiB.
    pub fn images<'s>(&self, space: &'s mut [Vec<u8>; 2]) -> (&'s [u8], Option<&'s [u8]>) {
        let [mapped, blocks] = space;
        let had_blocks = self.device.as_ref().map(|device| {
            blocks.resize(device.len() as usize, 0);
            device.read(0, blocks).expect("no read is to fail");
        });
        if self.on_flash.is_some() {
            return (blocks, None);
        }
        mapped.resize(self.mapping.len() as usize, 0);
        self.mapping.read(0, mapped);
        (mapped, had_blocks.map(|()| &blocks[..]))
    }
}

/// Of the device that has the blocks.
const SECTOR: usize = 512;

/// The shape of the tier, or of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub tiers: Tiers,
    pub members: usize,
    /// Allocation units of 32 KiB for blocks and map pages, per member.
    pub units: u64,
    /// Units it may grow to.
    pub max_units: u64,
    pub lanes: u32,
    /// Batch records; with one, no batch takes a single fence.
    pub batches: u32,
    pub redo_keep: u64,
    /// What each change of home takes.
    pub change_takes_ms: u64,
    /// What each sync of home takes.
    pub sync_takes_ms: u64,
    /// The media are written as those that take their time are.
    pub apart: bool,
    /// `.big` files are not to be in the tier, `a.db` is to be kept there.
    pub rules: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            tiers: Tiers::One,
            members: 1,
            units: 4,
            max_units: 4,
            lanes: 2,
            batches: 2,
            redo_keep: 8192,
            change_takes_ms: 1,
            sync_takes_ms: 0,
            apart: false,
            rules: false,
        }
    }
}

pub(crate) const UNIT: u64 = 32768;
/// The log of a tier on flash: the shortest there is, so that it laps often.
const LOG: u64 = 65536;

impl Shape {
    pub(crate) fn spec(&self) -> TierSpec {
        // One unit in front holds the superblocks, lanes, batch record and slots.
        let log = if self.tiers.is_on_disk() { LOG } else { 0 };
        let len = |units: u64| (units + 1) * UNIT + log;
        let medium = match self.tiers {
            Tiers::OnFlash => Medium::Flash,
            Tiers::Ephemeral => Medium::Ephemeral,
            _ => Medium::Emulated,
        };
        let mut spec = TierSpec::new("fast", "/member0", medium, len(self.units));
        spec.log = log;
        spec.members = (0..self.members).map(|n| PathBuf::from(format!("/member{n}"))).collect();
        spec.max_size = len(self.max_units);
        spec.grow_by = if self.max_units > self.units { UNIT } else { 0 };
        spec.unit = UNIT;
        spec.lanes = self.lanes;
        spec.batches = self.batches;
        spec.slots = 6;
        spec
    }

    /// Each tier, with its members.
    fn specs(&self) -> Vec<TierSpec> {
        let one = self.spec();
        match self.tiers {
            Tiers::One | Tiers::OnSectors | Tiers::OnFlash | Tiers::Ephemeral => vec![one],
            Tiers::Volatile => vec![TierSpec { medium: Medium::Volatile, ..one }],
            Tiers::RedoBesideData => {
                let members =
                    (0..self.members).map(|n| PathBuf::from(format!("/redo{n}"))).collect();
                let redo =
                    TierSpec { name: "redo".into(), members, holds_data: false, ..one.clone() };
                vec![redo, TierSpec { holds_redo: false, ..one }]
            }
        }
    }

    /// New members of all tiers together, of the recorded machine.
    pub(crate) fn blank(&self, machine: &Simulator) -> Vec<Media> {
        let each = if self.tiers == Tiers::OnSectors { 2 } else { 1 };
        let count = self.specs().len() * self.members * each;
        self.recorded(machine, vec![vec![0; self.spec().size as usize]; count])
    }

    /// Members of the recorded machine with these contents.
    pub(crate) fn recorded(&self, machine: &Simulator, images: Vec<Vec<u8>>) -> Vec<Media> {
        let max = self.spec().max_size;
        let mapping = |image| Arc::new(machine.mapping(image, max));
        self.each(images, mapping, |image| machine.device(image, SECTOR))
    }

    /// Members as they are found after a cut.
    pub(crate) fn found(&self, images: &[Vec<u8>]) -> Vec<Media> {
        let max = self.spec().max_size;
        let mapping = |image: &Vec<u8>| Arc::new(Mapping::in_memory(image, max));
        self.each(images, mapping, |image| Simulator::new().device(image.clone(), SECTOR))
    }

    /// A member of each image, or of two: its mapping's and its device's.
    fn each<I>(
        &self,
        images: impl IntoIterator<Item = I>,
        mapping: impl Fn(I) -> Arc<Mapping>,
        device: impl Fn(I) -> sim::Device,
    ) -> Vec<Media> {
        let (mut images, mut members) = (images.into_iter(), Vec::new());
        while let Some(image) = images.next() {
            if self.tiers.is_on_disk() {
                let mapping = Arc::new(Mapping::in_memory(&[0; FRAME], 0));
                let on_flash = Some(self.spec().max_size);
                members.push(Media { mapping, device: Some(device(image)), on_flash });
                continue;
            }
            let mapping = mapping(image);
            let has_device = self.tiers == Tiers::OnSectors;
            let device = if has_device { images.next().map(&device) } else { None };
            members.push(Media { mapping, device, on_flash: None });
        }
        members
    }

    fn options(&self, planted: Planted) -> Options {
        Options {
            profile: None,
            redo_keep_bytes: self.redo_keep,
            background: false,
            home_files_open: Some(1),
            record_waits: false,
            cache: if self.rules { RULES.clone() } else { CacheRules::default() },
            planted,
            ..Options::default()
        }
    }

    pub(crate) fn attach(
        &self,
        home: Arc<SimHome>,
        members: Vec<Media>,
        planted: Planted,
    ) -> tiersmith_store::Result<AttachedHome> {
        self.attach_with(home, None, members, planted, 7)
    }

    /// The same, where files can be lent: `lent` holds their plain files.
    pub(crate) fn attach_lending(
        &self,
        home: Arc<SimHome>,
        lent: Arc<SimHome>,
        members: Vec<Media>,
        planted: Planted,
    ) -> tiersmith_store::Result<AttachedHome> {
        self.attach_with(home, Some(lent), members, planted, 7)
    }

    /// With a seed of its own, so that a tier that is made again is another tier.
    pub(crate) fn attach_with(
        &self,
        home: Arc<SimHome>,
        lent: Option<Arc<SimHome>>,
        members: Vec<Media>,
        planted: Planted,
        seed: u64,
    ) -> tiersmith_store::Result<AttachedHome> {
        let members = members.chunks(self.members).map(<[_]>::to_vec);
        let tiers = self.specs().into_iter().zip(members).collect();
        let options = Options { seed: Some(seed), ..self.options(planted) };
        let attach = || match lent {
            Some(lent) => testing::attach_simulated_lending(home, lent, tiers, &PROFILE, options),
            None => testing::attach_simulated(home, tiers, &PROFILE, options),
        };
        // Nobody is to run meanwhile.
        if self.apart { testing::apart(Duration::ZERO, attach) } else { attach() }
    }
}
