//! Messages of a kernel that does not keep to its protocol, without a kernel: each is answered or
//! refused, never with a panic; an answer has the length that the kernel expects; nothing outside
//! the home is touched, whatever names and numbers are sent.
//!
//! Needs neither FUSE nor root. The messages follow from a seed: `TIERSMITH_SEED` gives another
//! first one, `TIERSMITH_MESSAGES` how many. The fuzz target `messages` looks for what this does
//! not reach.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tiersmith_mount::messages::Messages;
use tiersmith_store::{Medium, Options, Profile, TierSpec, attach};

const PROFILE: &str = "description = \"test\"\n[default]\nclass = \"pass\"\nblock_size = 4096\n\
    [[rule]]\nfiles = [\"**/*.redo\"]\nclass = \"redo\"\nblock_size = 4096\nwhy = \"test\"\n\
    [[rule]]\nfiles = [\"**/*.d8\"]\nclass = \"data\"\nblock_size = 8192\nwhy = \"test\"\n";

/// Names that are sent: those that exist, those of Tiersmith itself, and those that no kernel
/// sends.
const NAMES: [&[u8]; 20] = [
    b"a.d8",
    b"b.redo",
    b"c.pass",
    b"dir",
    b"d.d8",
    b"new.d8",
    b"new.redo",
    b"way-out",
    b"file-out",
    b".tiersmith",
    b"",
    b".",
    b"..",
    b"../outside",
    b"../outside/kept",
    b"way-out/kept",
    b"dir/d.d8",
    b"/etc/hostname",
    b"\xff\xfe\n\x1b[2J",
    &[b'n'; 300],
];

/// What is done if it is taken at its word; nothing in between, which would fill the disk.
const NUMBERS: [u64; 17] = [
    0,
    1,
    2,
    3,
    7,
    511,
    4095,
    4096,
    4097,
    8192,
    65536,
    1 << 20,
    i64::MAX as u64,
    i64::MAX as u64 - 1,
    1 << 63,
    u64::MAX,
    u64::MAX - 4095,
];

/// A directory with a home in it and something beside the home.
struct Around {
    dir: tempfile::TempDir,
    tier: tempfile::TempDir,
}

impl Around {
    fn new() -> Self {
        let around = Self { dir: tempfile::tempdir().unwrap(), tier: tempfile::tempdir().unwrap() };
        let (home, outside) = (around.home(), around.dir.path().join("outside"));
        fs::create_dir_all(home.join("dir")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        for (name, len) in
            [("a.d8", 20_000), ("b.redo", 9000), ("c.pass", 5000), ("dir/d.d8", 8192)]
        {
            fs::write(home.join(name), vec![7; len]).unwrap();
        }
        symlink(&outside, home.join("way-out")).unwrap();
        symlink("../outside/kept", home.join("file-out")).unwrap();
        around
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    fn messages(&self, sync_on_write: bool) -> Messages {
        let mut spec =
            TierSpec::new("fast", self.tier.path().join("tier"), Medium::Emulated, 16 << 20);
        spec.unit = 1 << 20;
        let options = Options {
            profile: Some(Profile::parse("test", PROFILE).unwrap()),
            ..Options::default()
        };
        Messages::new(attach(&self.home(), &[spec], options).unwrap(), sync_on_write).unwrap()
    }

    /// The directory that the home's files are in while it is attached; the test may go there from
    /// now on, whoever runs it.
    fn vault(&self) -> PathBuf {
        let vault = self.dir.path().join("home.tiersmith-home");
        fs::set_permissions(&vault, fs::Permissions::from_mode(0o700)).unwrap();
        vault
    }

    /// Where the home's files are while it is attached.
    fn aside(&self) -> PathBuf {
        self.vault().join("home")
    }

    /// Everything beside the home: names, modes and contents.
    fn beside(&self) -> BTreeMap<PathBuf, (u32, String)> {
        fn walk(at: &Path, aside: &Path, found: &mut BTreeMap<PathBuf, (u32, String)>) {
            for entry in fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                let kind = fs::symlink_metadata(&path).unwrap();
                let text =
                    if kind.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
                // The home's own mode may change: it is what is mounted.
                if path == aside {
                    continue;
                }
                found.insert(path.clone(), (kind.permissions().mode(), text));
                if kind.is_dir() {
                    walk(&path, aside, found);
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(self.dir.path(), &self.vault(), &mut found);
        found
    }
}

impl Drop for Around {
    /// Directories that were made unreadable are made readable again, or they could not be removed.
    fn drop(&mut self) {
        fn open(at: &Path) {
            let _ = fs::set_permissions(at, fs::Permissions::from_mode(0o700));
            for entry in fs::read_dir(at).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    open(&entry.path());
                }
            }
        }
        open(&self.aside());
    }
}

/// One message: the header, the operation's structure, names and data.
struct Message {
    opcode: u32,
    header: Vec<u8>,
    fixed: Vec<u8>,
    rest: Vec<u8>,
}

/// Lengths of the operations' structures, as `linux/fuse.h` has them.
fn fixed_len(opcode: u32) -> usize {
    match opcode {
        2 | 9 | 12 | 13 | 14 | 21 | 22 | 23 | 27 | 36 | 42 => 8,
        3 | 8 | 20 | 30 | 35 | 45 => 16,
        18 | 29 | 46 => 24,
        43 => 32,
        15 | 16 | 28 | 44 => 40,
        4 => 88,
        _ => 0,
    }
}

/// What an answer must be long, where that is one number.
fn answer_len(opcode: u32) -> Option<usize> {
    match opcode {
        1 | 6 | 8 | 9 | 13 => Some(128), // fuse_entry_out
        3 | 4 => Some(104),              // fuse_attr_out
        14 | 27 => Some(16),             // fuse_open_out
        35 => Some(144),
        16 | 46 => Some(8),
        17 => Some(80),
        10 | 11 | 12 | 18 | 20 | 21 | 24 | 29 | 30 | 43 | 45 => Some(0),
        _ => None,
    }
}

/// Nodes and handles that answers have given.
#[derive(Default)]
struct Known {
    nodes: Vec<u64>,
    handles: Vec<u64>,
}

impl Known {
    fn pick(list: &[u64], random: &mut fastrand::Rng) -> u64 {
        match random.usize(..list.len() + 1) {
            n if n < list.len() => list[n],
            _ => NUMBERS[random.usize(..NUMBERS.len())],
        }
    }

    fn learn(&mut self, opcode: u32, answer: &[u8]) {
        let number =
            |at: usize| answer.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().unwrap()));
        match opcode {
            1 | 6 | 8 | 9 | 13 | 35 => self.nodes.extend(number(0).filter(|n| *n != 0)),
            14 | 27 => self.handles.extend(number(0)),
            _ => {}
        }
        if opcode == 35 {
            self.handles.extend(number(128));
        }
        for list in [&mut self.nodes, &mut self.handles] {
            if list.len() > 40 {
                list.drain(..20);
            }
        }
    }
}

fn number(random: &mut fastrand::Rng) -> u64 {
    if random.bool() { NUMBERS[random.usize(..NUMBERS.len())] } else { random.u64(..1 << 20) }
}

fn message(random: &mut fastrand::Rng, known: &Known) -> Message {
    // Some operations more often than others, and some that do not exist.
    let opcode = match random.u32(..10) {
        0 => random.u32(..70),
        1 | 2 => [1, 14, 27, 35][random.usize(..4)],
        3 | 4 => [15, 16, 43, 46][random.usize(..4)],
        5 => [4, 20, 30][random.usize(..3)],
        _ => random.u32(1..53),
    };
    let node = if random.u32(..3) == 0 { 1 } else { Known::pick(&known.nodes, random) };
    let mut header = vec![0; 40];
    header[4..8].copy_from_slice(&opcode.to_le_bytes());
    header[8..16].copy_from_slice(&random.u64(..).to_le_bytes());
    header[16..24].copy_from_slice(&node.to_le_bytes());
    let id = |random: &mut fastrand::Rng| [0, 1, 1000, u32::MAX][random.usize(..4)];
    let ids = [id(random), id(random), random.u32(..)];
    for (n, id) in ids.iter().enumerate() {
        header[24 + 4 * n..28 + 4 * n].copy_from_slice(&id.to_le_bytes());
    }
    let mut fixed: Vec<u8> =
        (0..fixed_len(opcode).div_ceil(8)).flat_map(|_| number(random).to_le_bytes()).collect();
    // Where most operations have their handle, LINK and RENAME another node.
    let first = if matches!(opcode, 12 | 13 | 45) {
        Known::pick(&known.nodes, random)
    } else {
        Known::pick(&known.handles, random)
    };
    if fixed.len() >= 8 && !matches!(opcode, 4 | 8 | 9 | 14 | 35) {
        fixed[..8].copy_from_slice(&first.to_le_bytes());
    }
    let mut rest = Vec::new();
    if opcode == 16 {
        rest = vec![random.u8(..); random.usize(..70_000)];
        if random.u32(..4) != 0 {
            fixed[16..20].copy_from_slice(&(rest.len() as u32).to_le_bytes());
        }
    } else {
        for _ in 0..random.u32(1..4) {
            rest.extend_from_slice(NAMES[random.usize(..NAMES.len())]);
            rest.push(0);
        }
    }
    // Cut short here and there, or too long.
    match random.u32(..12) {
        0 => fixed.truncate(random.usize(..fixed.len() + 1)),
        1 => rest.truncate(random.usize(..rest.len() + 1)),
        2 => fixed.resize(128, random.u8(..)),
        _ => {}
    }
    Message { opcode, header, fixed, rest }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn send(seed: u64, count: u64, sync_on_write: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let around = Around::new();
    let mut messages = around.messages(sync_on_write);
    let before = around.beside();
    let (mut known, mut answered) = (Known::default(), 0);
    for n in 0..count {
        let m = message(&mut random, &known);
        let in_one = random.bool();
        let whole = [&m.header[..], &m.fixed, &m.rest].concat();
        // A message in one piece has no border of its own: what is cut short takes from what
        // follows.
        let cut = in_one && m.fixed.len() != fixed_len(m.opcode);
        let answer = if in_one {
            messages.answer(&whole)
        } else {
            messages.answer_parts(&m.header, &m.fixed, &m.rest)
        };
        let context = || format!("seed {seed}, message {n}, operation {}", m.opcode);
        match answer {
            Ok(Some(bytes)) => {
                answered += 1;
                if let Some(len) = answer_len(m.opcode) {
                    assert_eq!(bytes.len(), len, "{}", context());
                }
                if matches!(m.opcode, 15 | 28 | 44) && !cut {
                    let asked = u32::from_le_bytes(m.fixed[16..20].try_into().unwrap());
                    assert!(bytes.len() <= asked as usize, "{}", context());
                }
                known.learn(m.opcode, bytes);
            }
            Ok(None) => assert!(matches!(m.opcode, 2 | 36 | 42), "{}", context()),
            Err(errno) => assert!((1..4096).contains(&errno), "{}: error {errno}", context()),
        }
    }
    drop(messages);
    assert_eq!(around.beside(), before, "seed {seed}: something outside the home was changed");
    assert!(
        answered > count / 20,
        "seed {seed}: only {answered} of {count} were answered: nothing was tried"
    );
}

#[test]
fn whatever_is_sent_is_answered_or_refused_and_nothing_outside_the_home_is_touched() {
    let first = setting("TIERSMITH_SEED").unwrap_or(1);
    let count = setting("TIERSMITH_MESSAGES").unwrap_or(3000);
    for seed in first..first + 3 {
        send(seed, count, false);
    }
    send(first + 3, count / 10, true);
}

#[test]
fn a_name_that_is_a_way_is_refused() {
    let around = Around::new();
    let mut messages = around.messages(false);
    let mut header = [0; 40];
    header[16] = 1;
    let mut ask = |messages: &mut Messages, opcode: u8, fixed: &[u8], rest: &[u8]| {
        header[4] = opcode;
        messages.answer_parts(&header, fixed, rest).map(|a| a.map(<[u8]>::to_vec))
    };
    assert!(ask(&mut messages, 1, &[], b"a.d8\0").is_ok());
    for way in [&b".."[..], b".", b"../outside", b"way-out/kept", b"dir/d.d8", b"/etc/hostname"] {
        let name = [way, b"\0"].concat();
        for (opcode, fixed) in [(1, 0), (9, 8), (8, 16), (10, 0), (11, 0), (35, 16)] {
            let answer = ask(&mut messages, opcode, &vec![0; fixed], &name);
            assert_eq!(
                answer,
                Err(libc::EINVAL),
                "operation {opcode}, {:?}",
                String::from_utf8_lossy(way)
            );
        }
    }
}

/// One message about `node`; its answer.
fn ask(
    messages: &mut Messages,
    opcode: u8,
    node: u64,
    fixed: &[u8],
    rest: &[u8],
) -> Result<Option<Vec<u8>>, i32> {
    let mut header = [0; 40];
    header[4] = opcode;
    header[16..24].copy_from_slice(&node.to_le_bytes());
    messages.answer_parts(&header, fixed, rest).map(|a| a.map(<[u8]>::to_vec))
}

/// The first number of an answer: a node's, or a handle's.
fn first(answer: Result<Option<Vec<u8>>, i32>) -> u64 {
    u64::from_le_bytes(answer.unwrap().unwrap()[..8].try_into().unwrap())
}

#[test]
fn a_write_that_promises_more_bytes_than_it_brings_is_refused_whole() {
    let around = Around::new();
    let mut messages = around.messages(false);
    let node = first(ask(&mut messages, 1, 1, &[], b"c.pass\0"));
    let mut open = [0; 8];
    open[0] = libc::O_RDWR as u8;
    let handle = first(ask(&mut messages, 14, node, &open, &[]));
    let mut write = [0; 40];
    write[..8].copy_from_slice(&handle.to_le_bytes());
    write[16] = 100;
    assert_eq!(ask(&mut messages, 16, node, &write, &[9; 99]), Err(libc::EINVAL));
    assert!(fs::read(around.aside().join("c.pass")).unwrap().iter().all(|b| *b == 7));
    assert_eq!(first(ask(&mut messages, 16, node, &write, &[9; 100])), 100);
    assert!(fs::read(around.aside().join("c.pass")).unwrap().starts_with(&[9; 100]));
}

#[test]
fn the_length_of_a_directory_cannot_be_set() {
    let around = Around::new();
    let mut messages = around.messages(false);
    let node = first(ask(&mut messages, 1, 1, &[], b"dir\0"));
    let mut size = [0; 88];
    size[0] = 8;
    assert_eq!(ask(&mut messages, 4, node, &size, &[]), Err(libc::EISDIR));
}

#[test]
fn names_of_tiersmith_are_not_found_rather_than_refused() {
    let around = Around::new();
    let mut messages = around.messages(false);
    for name in tiersmith_store::home::RESERVED {
        let name = [name.as_bytes(), b"\0"].concat();
        assert_eq!(first(ask(&mut messages, 1, 1, &[], &name)), 0);
    }
}

#[test]
fn who_has_no_number_makes_nothing_and_is_given_nothing() {
    let around = Around::new();
    let mut messages = around.messages(false);
    let name = b"made.d8\0";
    for (uid, gid) in [(u32::MAX, 0), (0, u32::MAX)] {
        let mut header = [0; 40];
        header[16] = 1;
        header[24..28].copy_from_slice(&uid.to_le_bytes());
        header[28..32].copy_from_slice(&gid.to_le_bytes());
        for (opcode, fixed) in [(8, 16), (9, 8), (35, 16)] {
            header[4] = opcode;
            let answer = messages.answer_parts(&header, &vec![0; fixed], name);
            assert_eq!(answer.map(|_| ()), Err(libc::EOVERFLOW), "operation {opcode}");
            assert!(fs::symlink_metadata(around.aside().join("made.d8")).is_err());
        }
        // As an owner.
        header[4] = 4;
        let mut fixed = [0; 88];
        fixed[0] = 2 | 4;
        fixed[76..80].copy_from_slice(&uid.to_le_bytes());
        fixed[80..84].copy_from_slice(&gid.to_le_bytes());
        assert_eq!(messages.answer_parts(&header, &fixed, &[]).map(|_| ()), Err(libc::EINVAL));
    }
}
