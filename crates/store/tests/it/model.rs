//! The model test: random operations against a plain in-memory model, with power cuts and restarts
//! in between, on one and on several members, with tiers so small that writers wait for room.
//! Proptest finds the operations and makes a failure small.
//!
//! `crash_suite/random.rs` cuts one run everywhere; here one life goes on through many cuts, each
//! at one random image.

#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{Media, Shape, Tiers, forget_claims, pattern, read_all};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use tiersmith_store::crash::{Budget, Recorder, explore_one_by_one};
use tiersmith_store::{AttachedHome, Durability, OpenMode, Planted, testing};

const NAMES: [&str; 4] = ["a.db", "b.big", "r.redo", "w.redo"];
/// The one that may be lent.
const LENDABLE: &str = "w.redo";

#[derive(Clone, Debug)]
enum Action {
    Write {
        file: usize,
        at: u64,
        len: usize,
    },
    Batch {
        file: usize,
        first: u64,
        count: u64,
    },
    Truncate {
        file: usize,
        size: u64,
    },
    Destage {
        file: usize,
    },
    Evict,
    Background,
    ReadPart {
        file: usize,
        at: u64,
        len: usize,
    },
    Borrow {
        file: usize,
        block: u64,
    },
    /// The file is lent, if it is not, and the kernel writes to it.
    KernelWrite {
        at: u64,
        len: usize,
    },
    GiveBack,
    /// Power goes after everything is acknowledged: any image of what is not fenced.
    PowerCut {
        image: usize,
    },
    Restart,
    DetachAndAttach,
}

fn action() -> impl Strategy<Value = Action> {
    let file = 0..NAMES.len();
    prop_oneof![
        8 => (file.clone(), 0u64..70_000, 1usize..9000).prop_map(|(file, at,
        len)| Action::Write { file, at, len }),
        6 => (file.clone(), 0u64..9).prop_map(|(file, n)| Action::Write { file, at: n * 8192,
        len: 8192 }),
        4 => (0usize..2, 0u64..8, 1u64..4).prop_map(|(file, first, count)| Action::Batch { file,
        first, count }),
        2 => (file.clone(), 0u64..70_000).prop_map(|(file, size)| Action::Truncate { file, size }),
        2 => file.clone().prop_map(|file| Action::Destage { file }),
        1 => Just(Action::Evict),
        2 => Just(Action::Background),
        3 => (file.clone(), 0u64..80_000, 1usize..20_000).prop_map(|(file, at,
        len)| Action::ReadPart { file, at, len }),
        2 => (file, 0u64..16).prop_map(|(file, block)| Action::Borrow { file, block }),
        3 => (0u64..60_000, 1usize..9000).prop_map(|(at, len)| Action::KernelWrite { at, len }),
        1 => Just(Action::GiveBack),
        3 => (0usize..64).prop_map(|image| Action::PowerCut { image }),
        1 => Just(Action::Restart),
        1 => Just(Action::DetachAndAttach),
    ]
}

/// One life: home, media and the attached home on them.
struct World {
    shape: Shape,
    recorder: Recorder,
    members: Vec<Media>,
    attached: Option<AttachedHome>,
    /// A tier that is made again after a detach is another one: a log must not take the old one's
    /// records for its own.
    next_seed: u64,
}

impl World {
    fn new(shape: Shape) -> Self {
        let recorder = Recorder::new();
        let members = shape.blank(recorder.simulator());
        let mut world = Self { shape, recorder, members, attached: None, next_seed: 0 };
        world.attach();
        for name in NAMES {
            drop(world.home().open(name, OpenMode::CREATE).unwrap());
        }
        world
    }

    fn power_on(&mut self, images: Vec<Vec<u8>>) {
        self.members = self.shape.recorded(self.recorder.simulator(), images);
        self.attach();
    }

    fn attach(&mut self) {
        let (home, lent) = (self.recorder.home(), self.recorder.lent());
        let members = self.members.clone();
        self.next_seed += 1;
        let attached =
            self.shape.attach_with(home, Some(lent), members, Planted::None, self.next_seed);
        self.attached = Some(attached.expect("it attaches"));
        self.recorder.rebase();
    }

    fn home(&self) -> &AttachedHome {
        self.attached.as_ref().expect("attached")
    }

    fn cut(&mut self, image: usize) {
        let recording = self.recorder.recording();
        let mut found = None;
        let budget = Budget { images_per_cut: 64, seed: image as u64, threads: 1, stop_after: 1 };
        let end = recording.media.len();
        let mut seen = 0;
        explore_one_by_one(&recording, &budget, |state| {
            if state.position == end {
                if seen <= image {
                    found =
                        Some((state.tiers.to_vec(), state.home.another(), state.lent.another()));
                }
                seen += 1;
            }
            Ok(())
        });
        let (tiers, home, lent) = found.expect("the end is a cut point");
        self.attached = None;
        self.recorder = Recorder::resume_with(home, lent);
        self.power_on(tiers);
    }
}

fn put(bytes: &mut Vec<u8>, at: u64, data: &[u8]) {
    let end = at as usize + data.len();
    bytes.resize(bytes.len().max(end), 0);
    bytes[at as usize..end].copy_from_slice(data);
}

type Model = BTreeMap<&'static str, Vec<u8>>;

fn live(shape: Shape, actions: &[Action]) -> Result<(), TestCaseError> {
    let mut world = World::new(shape);
    let mut model: Model = NAMES.iter().map(|n| (*n, Vec::new())).collect();
    for (n, action) in actions.iter().enumerate() {
        let mut compare = false;
        match action {
            Action::Write { file, at, len } => {
                let data = pattern(n, *at, *len);
                world
                    .home()
                    .open(NAMES[*file], OpenMode::WRITE)
                    .unwrap()
                    .write(*at, &data)
                    .unwrap();
                put(model.get_mut(NAMES[*file]).unwrap(), *at, &data);
            }
            Action::Batch { file, first, count } => {
                write_batch(&world, &mut model, n, NAMES[*file], *first..first + count);
            }
            Action::Truncate { file, size } => {
                world.home().open(NAMES[*file], OpenMode::WRITE).unwrap().truncate(*size).unwrap();
                model.get_mut(NAMES[*file]).unwrap().resize(*size as usize, 0);
            }
            Action::Destage { file } => {
                world.home().destage(Some(Path::new(NAMES[*file]))).unwrap();
            }
            Action::Evict => {
                world.home().evict(None, u64::MAX).unwrap();
            }
            Action::Background => world.home().background_step().unwrap(),
            Action::ReadPart { file, at, len } => {
                read_part(&world, &model, NAMES[*file], *at, *len)?;
            }
            Action::KernelWrite { at, len } => {
                kernel_write(&world, &mut model, *at, &pattern(n, *at, *len));
            }
            Action::GiveBack => {
                prop_assert!(world.home().give_back(LENDABLE).unwrap(), "nobody has it")
            }
            Action::Borrow { file, block } => borrow(&world, &model, NAMES[*file], *block)?,
            Action::PowerCut { image } => {
                sync_what_needs_it(&world, &model);
                world.cut(*image);
                compare = true;
            }
            Action::Restart => {
                world.attached = None;
                forget_claims(&world.members);
                world.attach();
                compare = true;
            }
            Action::DetachAndAttach => {
                world.attached.take().unwrap().detach().unwrap();
                for (name, bytes) in &model {
                    let plain = world.recorder.home().contents(Path::new(name)).unwrap();
                    prop_assert!(*plain == *bytes, "{name} after detach");
                }
                forget_claims(&world.members);
                world.attach();
                compare = true;
            }
        }
        if compare || n + 1 == actions.len() {
            compare_all(&world, &model, &format!("step {n} {action:?}"))?;
        }
    }
    Ok(())
}

/// Syncs the files whose writes are durable with that only.
fn sync_what_needs_it(world: &World, model: &Model) {
    for name in model.keys() {
        let file = world.home().open(name, OpenMode::READ).unwrap();
        if file.durability() != Durability::OnReturn {
            file.sync().unwrap();
        }
    }
}

fn write_batch(
    world: &World,
    model: &mut Model,
    n: usize,
    name: &'static str,
    numbers: std::ops::Range<u64>,
) {
    let handle = world.home().open(name, OpenMode::WRITE).unwrap();
    let size = handle.block_size().unwrap().bytes();
    let blocks: Vec<(u64, Vec<u8>)> =
        numbers.map(|b| (b * size as u64, pattern(n, b * size as u64, size))).collect();
    let refs: Vec<(u64, &[u8])> = blocks.iter().map(|(at, d)| (*at, &d[..])).collect();
    handle.write_batch(&refs).unwrap();
    for (at, data) in &blocks {
        put(model.get_mut(name).unwrap(), *at, data);
    }
}

fn read_part(
    world: &World,
    model: &Model,
    name: &'static str,
    at: u64,
    len: usize,
) -> Result<(), TestCaseError> {
    let mut bytes = vec![0xee; len];
    let got = world.home().open(name, OpenMode::READ).unwrap().read(at, &mut bytes).unwrap();
    let all = &model[name];
    let from = all.len().min(at as usize);
    let to = all.len().min(at as usize + len);
    prop_assert_eq!(&bytes[..got], &all[from..to]);
    Ok(())
}

fn kernel_write(world: &World, model: &mut Model, at: u64, data: &[u8]) {
    let handle = world.home().open(LENDABLE, OpenMode::WRITE).unwrap();
    match handle.lend().unwrap() {
        Some(lent) => testing::kernel_write(&lent, at, data).unwrap(),
        // Empty: there is nothing to lend.
        None => handle.write(at, data).unwrap(),
    }
    put(model.get_mut(LENDABLE).unwrap(), at, data);
}

fn borrow(
    world: &World,
    model: &Model,
    name: &'static str,
    block: u64,
) -> Result<(), TestCaseError> {
    let handle = world.home().open(name, OpenMode::READ).unwrap();
    let at = block * handle.block_size().unwrap().bytes() as u64;
    if let Some(lent) = handle.read_ref(at) {
        let all = &model[name];
        let end = all.len().min(at as usize + handle.block_size().unwrap().bytes());
        prop_assert_eq!(&lent[..], &all[at as usize..end]);
    }
    Ok(())
}

/// Every file is as in the model, and no frame is lost.
fn compare_all(world: &World, model: &Model, after: &str) -> Result<(), TestCaseError> {
    let seen = read_all(world.home(), &world.recorder.home()).map_err(TestCaseError::fail)?;
    for (name, bytes) in model {
        let at = seen[name].iter().zip(bytes).position(|(a, b)| a != b);
        prop_assert!(
            *seen[name] == *bytes,
            "{name} after {after}: first difference at {at:?}, sizes {} and {}",
            seen[name].len(),
            bytes.len()
        );
    }
    let (free, used, total) = testing::accounting(world.home());
    prop_assert_eq!(free + used, total, "frames after {}", after);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, max_shrink_iters: 400,
    ..ProptestConfig::default() })]

    #[test]
    fn a_life_with_power_cuts_equals_the_model_on_one_member(
        actions in prop::collection::vec(action(), 1..60),
        lanes in prop_oneof![Just(1u32), Just(2), Just(8)],
        redo_keep in prop_oneof![Just(0u64), Just(8192), Just(1 << 20)],
        rules in any::<bool>(),
    ) {
        // 5 units: less than half of what the files can hold.
        live(Shape { units: 5, max_units: 5, lanes, redo_keep, rules, ..Shape::default() },
        &actions)?;
    }

    #[test]
    fn a_life_with_power_cuts_equals_the_model_with_the_blocks_on_a_device_of_sectors(
        actions in prop::collection::vec(action(), 1..60),
        lanes in prop_oneof![Just(1u32), Just(2), Just(8)],
        redo_keep in prop_oneof![Just(0u64), Just(8192), Just(1 << 20)],
        rules in any::<bool>(),
    ) {
        let tiers = Tiers::OnSectors;
        live(Shape { tiers, units: 5, max_units: 6, lanes, redo_keep, rules, ..Shape::default() },
        &actions)?;
    }

    #[test]
    fn a_life_with_power_cuts_equals_the_model_on_flash(
        actions in prop::collection::vec(action(), 1..60),
        lanes in prop_oneof![Just(1u32), Just(2), Just(8)],
        redo_keep in prop_oneof![Just(0u64), Just(8192), Just(1 << 20)],
        rules in any::<bool>(),
    ) {
        let tiers = Tiers::OnFlash;
        live(Shape { tiers, units: 5, max_units: 6, lanes, redo_keep, rules, ..Shape::default() },
        &actions)?;
    }

    #[test]
    fn a_life_with_power_cuts_equals_the_model_on_three_growing_members(
        actions in prop::collection::vec(action(), 1..60),
        redo_keep in prop_oneof![Just(0u64), Just(16384)],
        rules in any::<bool>(),
    ) {
        live(Shape { members: 3, units: 4, max_units: 6, lanes: 4, redo_keep, rules,
        ..Shape::default() }, &actions)?;
    }
}
