//! Images of a tier for the fuzz targets: snapshots of one tier at several times, and edits that
//! damage and mix them; and what is done with them. `tests/hostile_mixed.rs` of the store runs the
//! same on some inputs in every build.
//!
//! A checksum cannot be guessed by a fuzzer, so beside bytes set and flipped there are edits that
//! move whole structures: from another place of the image, or from the same place at another time.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use tiersmith_pmem::Mapping;
use tiersmith_store::check::{CheckOptions, Severity, check_images_with};
use tiersmith_store::home::{SimHome, sim::HomeImage};
use tiersmith_store::{
    AttachedHome, Error, File, Medium, OpenMode, Options, Profile, TierSpec, testing,
};

mod forge;

const SIZE: usize = 320 << 10;
const UNIT: usize = 32 << 10;
const LANES: usize = 2;
const BATCHES: usize = 1;
const SLOTS: usize = 8;

/// What sizes, counts and places may not be taken for without a look.
const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    511,
    4095,
    4096,
    1 << 20,
    1 << 32,
    (1 << 36) - 1,
    (1 << 48) - 1,
    i64::MAX as u64,
    u64::MAX,
];

static PROFILE: LazyLock<Profile> = LazyLock::new(|| {
    let text = "description = \"fuzz\"\n[default]\nclass = \"data\"\nblock_size = 4096\n\
                [[rule]]\nfiles = [\"*.redo\"]\nclass = \"redo\"\nblock_size = 4096\nwhy = \
                \"fuzz\"\n";
    Profile::parse("fuzz", text).expect("the profile is right")
});

/// One moment of the tier's life, with the home of that moment.
struct Moment {
    tier: Vec<u8>,
    home: HomeImage,
}

/// The tier's life: formatted, written, destaged, cut, with records pending, at rest.
static LIFE: LazyLock<Vec<Moment>> = LazyLock::new(live);

fn spec() -> TierSpec {
    TierSpec {
        unit: UNIT as u64,
        lanes: LANES as u32,
        batches: BATCHES as u32,
        slots: SLOTS as u64,
        ..TierSpec::new("fuzz", "fuzz", Medium::Emulated, SIZE as u64)
    }
}

fn attach_mapped(mapping: Arc<Mapping>, home: Arc<SimHome>) -> Result<AttachedHome, Error> {
    let options = Options { background: false, seed: Some(1), ..Options::default() };
    testing::attach_simulated(home, vec![(spec(), vec![mapping])], &PROFILE, options)
}

fn live() -> Vec<Moment> {
    let mapping = Arc::new(Mapping::in_memory(&vec![0; SIZE], 0));
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("old"), &[7; 30_000]).expect("a file is made");
    let attached = attach_mapped(mapping.clone(), home.clone()).expect("it attaches");
    let mut life = Vec::new();
    let mut keep = || {
        let mut tier = vec![0; SIZE];
        mapping.read(0, &mut tier);
        life.push(Moment { tier, home: home.snapshot() });
    };
    let open = |name: &str| -> File { attached.open(name, OpenMode::CREATE).expect("it opens") };
    keep();
    let (old, new, redo) = (open("old"), open("new"), open("a.redo"));
    old.read(0, &mut [0; 20_000]).expect("it reads");
    old.write(4096, &[1; 8192]).expect("it writes");
    redo.write(0, &[2; 5000]).expect("it writes");
    keep();
    new.write(0, &[3; 20_000]).expect("it writes");
    new.write_batch(&[(0, &[4; 4096]), (8192, &[5; 4096])]).expect("it writes");
    keep();
    attached.destage(Some(Path::new("new"))).expect("it destages");
    new.truncate(9000).expect("it cuts");
    redo.write(3000, &[6; 5000]).expect("it writes");
    keep();
    drop((old, new, redo));
    attached.unlink("old").expect("it unlinks");
    let other = open("other");
    other.write(100, &[8; 10_000]).expect("it writes");
    keep();
    drop(other);
    drop(attached);
    keep();
    life
}

/// Takes numbers from the input; zeros when it has ended.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn number(&mut self) -> usize {
        (0..3).fold(0, |n, place| n | usize::from(self.byte()) << (8 * place))
    }
}

/// The image and home that `input` describes.
fn damaged(input: &[u8]) -> (Vec<u8>, SimHome) {
    let mut input = Bytes(input);
    let pick = |n: u8| &LIFE[usize::from(n) % LIFE.len()];
    let moment = pick(input.byte());
    let mut tier = moment.tier.clone();
    let home = pick_home(moment, input.byte());
    for _ in 0..64 {
        if input.0.is_empty() {
            break;
        }
        let (kind, at) = (input.byte(), input.number() % SIZE);
        // A word, a line, a record, a slot, a frame.
        let len = [8, 64, 128, 1024, 4096][usize::from(input.byte()) % 5];
        let from = at / len * len;
        match kind % 7 {
            0 => tier[at] = input.byte(),
            1 => tier[at] ^= 1 << (input.byte() % 8),
            2 => tier[from..from + len].fill(input.byte()),
            3 => tier[from..from + len].copy_from_slice(&pick(input.byte()).tier[from..from + len]),
            4 => {
                let source = input.number() % SIZE / len * len;
                tier.copy_within(source..source + len, from);
            }
            5 => {
                let (number, less) =
                    (NUMBERS[usize::from(input.byte()) % NUMBERS.len()], input.byte() % 4);
                tier[at / 8 * 8..at / 8 * 8 + 8]
                    .copy_from_slice(&number.wrapping_sub(less.into()).to_le_bytes());
            }
            _ => forge::put_right(&mut tier),
        }
    }
    (tier, home)
}

/// Mostly the home of the same moment; else that of another, as when somebody restored it.
fn pick_home(moment: &Moment, which: u8) -> SimHome {
    let image = match usize::from(which).checked_sub(200) {
        None => &moment.home,
        Some(n) => &LIFE[n % LIFE.len()].home,
    };
    SimHome::from_image(image, None)
}

/// Attaches a damaged tier: an error, or a home that works. Whether it attached.
///
/// Whether the data is right is asserted where bytes are changed one by one
/// (`tests/hostile_flips.rs`): a tier put together from its own past has right checksums and may
/// rightly hold old data.
pub fn attach_and_use(input: &[u8]) -> bool {
    let (tier, home) = damaged(input);
    let (mapping, home) = (Arc::new(Mapping::in_memory(&tier, 0)), Arc::new(home));
    let Ok(attached) = attach_mapped(mapping.clone(), home.clone()) else { return false };
    drop(attached);
    // Recovery has put right what it could; the second reader of the format finds the metadata
    // whole. Blocks (19, 24) recovery reads only where a record asks.
    let mut tier = vec![0; SIZE];
    mapping.read(0, &mut tier);
    let report = check_images_with(&[&tier], None, &CheckOptions::default());
    let damage = report
        .findings
        .iter()
        .find(|f| f.severity == Severity::Damage && ![19, 24].contains(&f.invariant));
    assert!(damage.is_none(), "it attached, and the check says {damage:?}");
    let again = attach_mapped(Arc::new(Mapping::in_memory(&tier, 0)), home);
    use_it(again.expect("what attached once attaches again"));
    true
}

/// Uses whatever is there. Errors are answers.
fn use_it(attached: AttachedHome) {
    for name in ["old", "new", "a.redo", "other"] {
        let Ok(file) = attached.open(name, OpenMode::CREATE) else { continue };
        let Ok(len) = file.len() else { continue };
        let mut bytes = vec![0; len.min(1 << 20) as usize];
        let _ = file.read(0, &mut bytes);
        if let Some(view) = file.read_ref(0) {
            assert!(view.len() <= 4096);
        }
        let _ = file.write(5000, &[9; 5000]);
        let _ = file.write_batch(&[(0, &[9; 4096]), (4096, &[9; 4096])]);
        let _ = file.truncate(len / 2);
        let _ = file.write(0, &[1; 100]);
    }
    let _ = attached.unlink("new");
    let _ = attached.rename("old", "other");
    let _ = attached.background_step();
    let _ = attached.flush_all();
    let _ = attached.evict(None, u64::MAX);
    let _ = attached.detach();
}

/// Checks a damaged tier, or any bytes: a report.
pub fn check(input: &[u8]) {
    let (tier, _) = damaged(input);
    for after_recovery in [false, true] {
        let options = CheckOptions { after_recovery, findings_max: 20, ..CheckOptions::default() };
        // Alone, given twice, cut short, and the input as it is.
        let half = tier.len() / 2;
        for images in [&[&tier[..]][..], &[&tier[..], &tier[..]], &[&tier[..half]], &[input]] {
            let report = check_images_with(images, None, &options);
            assert!(report.findings.len() <= 20);
            assert!(!report.to_json().is_empty() && !format!("{report}").is_empty());
        }
    }
}
