//! Media that give other bytes than were written there: a write of a block that is lost, one that
//! arrives elsewhere, bytes that change, blocks that change places. Whatever is read afterwards, or
//! goes home, is what was written, or an error that names the block; and what home has is read from
//! there.
//!
//! In mapped memory a block is compared when it is read the first time after an attach, so there
//! the home is attached again as soon as a write has gone astray. On a device every read is
//! compared.

#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{Media, Shape, Tiers, UNIT, forget_claims, pattern};
use crate::place::{self, Place};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tiersmith_pmem::sim::{Astray, Simulator};
use tiersmith_store::home::{Home, SimHome};
use tiersmith_store::{
    AttachedHome, Error, File, Medium, OpenMode, Planted, Scrubbed, TierSpec, attach, testing,
};

const BLOCK: usize = 8192;
const BLOCKS: u64 = 6;
/// Of this file blocks have 8 KiB, which no page of metadata has.
const NAME: &str = "a.big";
const KINDS: [Tiers; 3] = [Tiers::One, Tiers::OnSectors, Tiers::OnFlash];

/// What a block may hold.
type Versions = Vec<Vec<u8>>;

/// A home, its tier, and what should be in its file.
struct Scene {
    shape: Shape,
    machine: Simulator,
    home: Arc<SimHome>,
    media: Vec<Media>,
    planted: Planted,
    attached: Option<AttachedHome>,
    expected: Vec<Versions>,
    /// Of reads, and of what went home.
    errors: u64,
    wrong: Vec<String>,
}

impl Scene {
    fn new(tiers: Tiers, planted: Planted) -> Self {
        let shape = Shape { tiers, units: 5, max_units: 5, ..Shape::default() };
        let machine = Simulator::new();
        let home = Arc::new(SimHome::new(None));
        let bytes = pattern(900, 0, BLOCK * BLOCKS as usize);
        home.put(Path::new(NAME), &bytes).unwrap();
        let media = shape.blank(&machine);
        let expected = bytes.chunks(BLOCK).map(|block| vec![block.to_vec()]).collect();
        let mut scene = Self {
            shape,
            machine,
            home,
            media,
            planted,
            attached: None,
            expected,
            errors: 0,
            wrong: Vec::new(),
        };
        assert!(scene.attach());
        scene
    }

    /// `false`: the tier is refused as damaged, which is no wrong byte.
    fn attach(&mut self) -> bool {
        if self.attached.is_some() {
            // What a disk has lost of what was never synced is as a power cut would have left it.
            self.file().sync().unwrap();
        }
        drop(self.attached.take());
        forget_claims(&self.media);
        match self.shape.attach(self.home.clone(), self.media.clone(), self.planted) {
            Ok(attached) => self.attached = Some(attached),
            Err(Error::Damaged { .. }) => return false,
            Err(e) => panic!("{e}"),
        }
        true
    }

    fn home(&self) -> &AttachedHome {
        self.attached.as_ref().unwrap()
    }

    fn file(&self) -> File {
        self.home().open(NAME, OpenMode::WRITE).unwrap()
    }

    /// Blocks begin here.
    fn data_start(&self) -> u64 {
        UNIT + self.shape.spec().log
    }

    /// Lets a write of a block go astray.
    fn astray(&self, nth: u64, by: Option<u64>) {
        let from = self.data_start();
        self.machine.set_astray(Some(Astray { len: BLOCK, from, nth, by }));
    }

    /// Whether an error is about a block that is not what it should be.
    fn is_told(&mut self, e: &Error) -> bool {
        self.errors += 1;
        matches!(e, Error::Unreadable { .. })
            && e.errno() == 5
            && e.to_string().contains("checksum")
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let written = self.file().write(at, bytes);
        for (n, byte) in (at..).zip(bytes) {
            let (block, inner) = ((n / BLOCK as u64) as usize, n as usize % BLOCK);
            let versions = &mut self.expected[block];
            if inner == 0 || n == at {
                let newest = versions.last().unwrap().clone();
                if written.is_ok() {
                    versions.clear();
                }
                versions.push(newest);
            }
            versions.last_mut().unwrap()[inner] = *byte;
        }
        if let Err(e) = written {
            assert!(self.is_told(&e), "{e}");
        }
    }

    fn compare(&mut self, what: &str, block: u64, bytes: &[u8]) {
        if !self.expected[block as usize].iter().any(|version| version == bytes) {
            self.wrong.push(format!("{what}: block {block} has other bytes"));
        }
    }

    /// Each block by itself, whole and in part.
    fn read_all(&mut self) {
        let file = self.file();
        let mut bytes = vec![0; BLOCK];
        for block in 0..BLOCKS {
            for (inner, len) in [(5000, 100), (0, BLOCK)] {
                let into = &mut bytes[inner..inner + len];
                match file.read(block * BLOCK as u64 + inner as u64, into) {
                    Ok(got) => {
                        assert_eq!(got, len);
                        if len == BLOCK {
                            self.compare("read", block, &bytes.clone());
                        } else if !self.expected[block as usize]
                            .iter()
                            .any(|v| v[inner..][..len] == *into)
                        {
                            self.wrong
                                .push(format!("read of a part: block {block} has other bytes"));
                        }
                    }
                    Err(e) => assert!(self.is_told(&e), "{e}"),
                }
            }
            if let Some(lent) = file.read_ref(block * BLOCK as u64) {
                self.compare("lent", block, &lent);
            }
        }
    }

    fn destage(&mut self) {
        match self.home().destage(Some(Path::new(NAME))) {
            Ok(_) => {}
            Err(e) => assert!(self.is_told(&e), "{e}"),
        }
    }

    /// Gives up what cannot be had, and compares home with the rest.
    fn detach(mut self) -> (u64, Vec<String>) {
        let lost = self.attached.take().unwrap().detach_giving_up_unreadable().unwrap();
        let lost: Vec<u64> = lost.iter().map(|lost| lost.block).collect();
        let mut bytes = vec![0; BLOCK * BLOCKS as usize];
        let plain = self.home.open(Path::new(NAME), OpenMode::READ).unwrap();
        assert_eq!(plain.read_at(0, &mut bytes).unwrap(), bytes.len());
        for block in (0..BLOCKS).filter(|block| !lost.contains(block)) {
            let at = block as usize * BLOCK;
            self.compare("home", block, &bytes[at..at + BLOCK]);
        }
        (self.errors + lost.len() as u64, self.wrong)
    }

    /// Random work during which a write goes astray. Whether one did.
    fn work(&mut self, seed: u64) -> bool {
        let mut random = fastrand::Rng::with_seed(seed);
        for n in 0..40 {
            let block = random.u64(..BLOCKS);
            let at = block * BLOCK as u64;
            match random.u8(..10) {
                0..3 => self.write(at, &pattern(n, at, BLOCK)),
                3..5 => {
                    let inner = random.u64(..4000);
                    self.write(at + inner, &pattern(n, at + inner, 700));
                }
                5 if block + 1 < BLOCKS => {
                    let two: Vec<_> =
                        [at, at + BLOCK as u64].map(|at| (at, pattern(n, at, BLOCK))).into();
                    let both: Vec<_> = two.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
                    self.file().write_batch(&both).unwrap();
                    for (at, bytes) in two {
                        self.expected[(at / BLOCK as u64) as usize] = vec![bytes];
                    }
                }
                6 => self.destage(),
                7 => drop(self.home().evict(Some(Path::new(NAME)), u64::MAX)),
                8 => self.home().background_step().unwrap_or_default(),
                _ => {
                    let before = self.wrong.len();
                    self.read_all();
                    // A copy that was admitted a moment ago: in memory it is compared after the
                    // next attach.
                    if self.shape.tiers == Tiers::One && !self.machine.is_to_go_astray() {
                        self.wrong.truncate(before);
                    }
                }
            }
            if self.machine.is_to_go_astray() {
                continue;
            }
            if self.shape.tiers == Tiers::One && !self.attach() {
                return false;
            }
            return true;
        }
        false
    }
}

/// Runs of random work with one write astray, seed by seed. What was read or went home and was
/// wrong; and how many errors there were.
fn astray(tiers: Tiers, planted: Planted, seeds: std::ops::Range<u64>) -> (u64, Vec<String>) {
    let (mut errors, mut wrong) = (0, Vec::new());
    for seed in seeds {
        let mut random = fastrand::Rng::with_seed(seed ^ 77);
        let mut scene = Scene::new(tiers, planted);
        let by = random.bool().then(|| BLOCK as u64 * random.u64(1..9));
        scene.astray(random.u64(..12), by);
        if !scene.work(seed) {
            continue;
        }
        match seed % 3 {
            0 => scene.destage(),
            1 => scene.write(random.u64(..BLOCKS) * BLOCK as u64 + 100, &pattern(70, 0, 300)),
            _ => {}
        }
        scene.read_all();
        if !scene.attach() {
            continue;
        }
        if seed % 2 == 0 {
            scene.read_all();
        }
        let (told, found) = scene.detach();
        errors += told;
        wrong.extend(found.into_iter().map(|what| format!("{tiers:?}, seed {seed}: {what}")));
    }
    (errors, wrong)
}

const SEEDS: u64 = 250;

#[test]
fn a_write_that_is_lost_or_arrives_elsewhere_is_never_read_as_the_right_one() {
    for tiers in KINDS {
        let (errors, wrong) = astray(tiers, Planted::None, 0..SEEDS);
        assert_eq!(wrong, Vec::<String>::new());
        assert!(
            errors > SEEDS / 8,
            "{tiers:?}: {errors} errors in {SEEDS} runs say that hardly any write went astray"
        );
    }
}

#[test]
fn reads_destaging_and_parts_that_are_not_compared_are_found() {
    for bug in Planted::AT_REST {
        let found = match bug {
            Planted::SumWithoutPlace => swapped(Tiers::One, bug),
            Planted::FirstTouchUnseen => astray(Tiers::One, bug, 0..SEEDS).1,
            Planted::ReadUnseen => astray(Tiers::OnFlash, bug, 0..SEEDS).1,
            _ => [Tiers::One, Tiers::OnFlash].map(|tiers| astray(tiers, bug, 0..SEEDS).1).concat(),
        };
        assert!(!found.is_empty(), "{bug:?} is not noticed");
    }
}

/// Two blocks that change places with their checksums; what is read then and is wrong.
fn swapped(tiers: Tiers, planted: Planted) -> Vec<String> {
    let mut scene = Scene::new(tiers, planted);
    for block in [1, 4] {
        let at = block * BLOCK as u64;
        scene.write(at, &pattern(7, at, BLOCK));
    }
    testing::swap_at_rest(&scene.file(), 1, 4).unwrap();
    assert!(scene.attach());
    scene.read_all();
    let errors = scene.errors;
    let (_, wrong) = scene.detach();
    assert!(errors > 0 || !wrong.is_empty());
    wrong
}

#[test]
fn blocks_that_have_changed_places_with_their_checksums_are_not_read() {
    for tiers in KINDS {
        assert_eq!(swapped(tiers, Planted::None), Vec::<String>::new(), "{tiers:?}");
    }
}

#[test]
fn a_damaged_clean_copy_is_read_from_home_and_taken_again() {
    for tiers in KINDS {
        let mut scene = Scene::new(tiers, Planted::None);
        let at = 2 * BLOCK as u64;
        scene.write(at, &pattern(3, at, BLOCK));
        scene.write(0, &pattern(4, 0, BLOCK));
        scene.destage();
        testing::swap_at_rest(&scene.file(), 0, 2).unwrap();
        assert!(scene.attach());
        scene.read_all();
        assert_eq!((scene.errors, scene.wrong.len()), (0, 0), "{tiers:?}");
        assert_eq!(
            scene.home().scrub(None, |_| true).unwrap().repaired,
            0,
            "{tiers:?}: still there"
        );
        assert!(scene.home().stats().unreadable.is_empty());
        let (errors, wrong) = scene.detach();
        assert_eq!((errors, wrong.len()), (0, 0));
    }
}

#[test]
fn a_damaged_newest_block_is_an_error_that_names_it_until_it_is_written_again() {
    for tiers in KINDS {
        let mut scene = Scene::new(tiers, Planted::None);
        for block in [1, 3] {
            let at = block * BLOCK as u64;
            scene.write(at, &pattern(5, at, BLOCK));
        }
        testing::swap_at_rest(&scene.file(), 1, 3).unwrap();
        assert!(scene.attach());
        let e = scene.file().read(BLOCK as u64 + 10, &mut [0; 20]).unwrap_err();
        let said = e.to_string();
        assert!(said.contains("block 1 of a.big") && said.contains("checksum"), "{said}");
        // A part of it is not added to what cannot be had.
        let e = scene.file().write(3 * BLOCK as u64 + 10, &[1; 20]).unwrap_err();
        assert!(e.to_string().contains("block 3 of a.big"), "{e}");
        let e = scene.home().destage(None).unwrap_err();
        assert!(matches!(e, Error::Unreadable { .. }), "{e}");
        let lost: Vec<u64> =
            scene.home().stats().unreadable.iter().map(|lost| lost.block).collect();
        assert_eq!(lost, [1, 3]);
        for block in [1, 3] {
            let at = block * BLOCK as u64;
            scene.write(at, &pattern(6, at, BLOCK));
        }
        scene.read_all();
        scene.destage();
        assert!(scene.home().stats().unreadable.is_empty());
        let (errors, wrong) = scene.detach();
        assert_eq!((errors, wrong.len()), (0, 0), "{tiers:?}");
    }
}

/// A cut within a block adds zeros to what the tier has of it.
#[test]
fn a_cut_within_a_damaged_block_takes_what_home_has_or_names_the_block() {
    for tiers in KINDS {
        for clean in [true, false] {
            let mut scene = Scene::new(tiers, Planted::None);
            for block in [1, 3] {
                let at = block * BLOCK as u64;
                scene.write(at, &pattern(5, at, BLOCK));
            }
            if clean {
                scene.destage();
            }
            testing::swap_at_rest(&scene.file(), 1, 3).unwrap();
            assert!(scene.attach());
            let file = scene.file();
            let (three, cut) = (3 * BLOCK as u64, 3 * BLOCK as u64 + 100);
            if clean {
                file.truncate(cut).unwrap();
                file.extend(three + BLOCK as u64).unwrap();
                let mut last = vec![1; BLOCK];
                assert_eq!(file.read(three, &mut last).unwrap(), BLOCK);
                let expected = [&pattern(5, three, BLOCK)[..100], &[0; BLOCK][100..]].concat();
                assert!(last == expected, "{tiers:?}");
                continue;
            }
            for _ in 0..2 {
                let e = file.truncate(cut).unwrap_err();
                assert!(matches!(e, Error::Unreadable { block: 3, .. }), "{tiers:?}: {e}");
            }
            // What is left of it goes with a cut in front of it, and the file is as any other.
            file.truncate(three).unwrap();
            file.extend(three + BLOCK as u64).unwrap();
            let mut last = vec![1; BLOCK];
            assert_eq!(file.read(three, &mut last).unwrap(), BLOCK);
            assert!(last == [0; BLOCK], "{tiers:?}");
            let lost: Vec<u64> =
                scene.home().stats().unreadable.iter().map(|lost| lost.block).collect();
            assert_eq!(lost, [0; 0], "{tiers:?}");
        }
    }
}

#[test]
fn a_scrub_gives_up_damaged_copies_names_lost_blocks_and_leaves_the_rest() {
    for tiers in KINDS {
        let mut scene = Scene::new(tiers, Planted::None);
        for block in 0..BLOCKS {
            let at = block * BLOCK as u64;
            scene.write(at, &pattern(8, at, BLOCK));
        }
        scene.destage();
        for block in [1, 3] {
            let at = block * BLOCK as u64;
            scene.write(at, &pattern(9, at, BLOCK));
        }
        testing::swap_at_rest(&scene.file(), 0, 2).unwrap();
        testing::swap_at_rest(&scene.file(), 1, 3).unwrap();
        assert!(scene.attach());
        let bytes = BLOCKS * BLOCK as u64;
        let seen = scene.home().scrub(None, |_| true).unwrap();
        let Scrubbed { blocks: read, repaired, lost, without_checksum, .. } = seen;
        assert_eq!((read, repaired, lost, without_checksum), (BLOCKS, 2, 2, 0), "{tiers:?}");
        assert_eq!((seen.bytes, seen.of_bytes), (bytes, bytes));
        let names: Vec<u64> =
            scene.home().stats().unreadable.iter().map(|lost| lost.block).collect();
        assert_eq!(names, [1, 3]);
        let mut one = vec![0; BLOCK];
        for block in [0, 2, 4, 5] {
            assert_eq!(scene.file().read(block * BLOCK as u64, &mut one).unwrap(), BLOCK);
            scene.compare("after a scrub", block, &one.clone());
        }
        assert_eq!(scene.wrong, Vec::<String>::new());
        let again = scene.home().scrub(None, |_| true).unwrap();
        assert_eq!((again.repaired, again.lost), (0, 2));
    }
}

#[test]
fn a_scrub_keeps_to_its_pace_and_ends_when_it_is_to() {
    let mut scene = Scene::new(Tiers::One, Planted::None);
    for block in 0..BLOCKS {
        let at = block * BLOCK as u64;
        scene.write(at, &pattern(8, at, BLOCK));
    }
    let began = Instant::now();
    let whole = scene.home().scrub(Some(BLOCKS * BLOCK as u64 * 4), |_| true).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(240), "{:?}", began.elapsed());
    assert_eq!(whole.blocks, BLOCKS);
    let began = Instant::now();
    let ended = scene.home().scrub(Some(1), |seen| seen.blocks < 1).unwrap();
    assert_eq!(ended.blocks, 1);
    // Without the end it would be two hours a block.
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn files_that_are_removed_during_a_scrub_are_gone_at_once() {
    let place = Place::new();
    let spec = TierSpec::new("fast", place.member("m0"), Medium::Emulated, 12 << 20);
    let home = attach(&place.home(), &[spec], place::options()).unwrap();
    let names = ["a.d8", "b.d8", "c.d8", "d.d8"];
    for name in names {
        home.create(name).unwrap().write(0, &[1; BLOCK]).unwrap();
    }
    let ours = place.path().to_str().unwrap();
    let open = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = links.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        let links = links.map(|link| link.display().to_string());
        links.filter(|link| link.starts_with(ours) && link.contains(".d8")).count()
    };
    let mut left = None;
    let seen = home.scrub(None, |_| {
        names.iter().for_each(|name| drop(home.unlink(name)));
        let _ = left.get_or_insert_with(open);
        true
    });
    assert_eq!(seen.unwrap().blocks, 1);
    // The one whose turn it is.
    assert!(left.unwrap() <= 1, "the space of {left:?} files is not free");
}
