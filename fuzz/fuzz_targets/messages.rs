//! Messages of a kernel that does not keep to its protocol: each is answered or refused; never a
//! panic, and nothing outside home is touched.

#![no_main]

use std::path::{Path, PathBuf};

use tiersmith_mount::messages::Messages;
use tiersmith_store::{Medium, Options, TierSpec, attach};

/// Operations whose numbers say how large a file becomes: attributes, allocation.
const SIZES: [u8; 2] = [4, 43];

/// A home with files of each kind, attached to a tier in a file.
struct Home {
    messages: Messages,
    around: tempfile::TempDir,
    before: Vec<PathBuf>,
}

/// The names in a directory and in those beneath it, but not in the home.
fn names(at: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "tiersmith-home") {
            continue;
        }
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            names(&path, found);
        }
        found.push(path);
    }
    found.sort();
}

fn home() -> Home {
    let around = tempfile::tempdir().expect("a directory");
    let home = around.path().join("home");
    let outside = around.path().join("outside");
    std::fs::create_dir_all(home.join("dir")).expect("a directory");
    std::fs::create_dir(&outside).expect("a directory");
    std::fs::write(home.join("a"), [7; 9000]).expect("a file");
    std::fs::write(home.join("dir/b"), [8; 5000]).expect("a file");
    std::os::unix::fs::symlink(&outside, home.join("out")).expect("a link");
    let mut spec = TierSpec::new("fast", around.path().join("tier"), Medium::Emulated, 8 << 20);
    spec.unit = 1 << 20;
    spec.lanes = 8;
    let attached =
        attach(&home, &[spec], Options { background: false, ..Options::default() }).expect("it \
            attaches");
    let messages = Messages::new(attached, false).expect("it opens");
    let mut before = Vec::new();
    names(around.path(), &mut before);
    Home { messages, around, before }
}

// Each message: an operation, a node, a user, a length, so many bytes.
libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut home = home();
    let mut rest = input;
    for _ in 0..64 {
        let Some((head, after)) = rest.split_at_checked(4) else { break };
        let mut message = vec![0; 40];
        message[4] = head[0] % 64;
        message[16] = head[1];
        message[24] = head[2];
        let (body, after) = after.split_at(usize::from(head[3]).min(after.len()));
        message.extend_from_slice(body);
        // Sizes between 16 MiB and the largest file there can be would be made, and fill the disk.
        if SIZES.contains(&message[4]) {
            for number in message[40..].chunks_exact_mut(8) {
                number[3..6].fill(0);
            }
        }
        rest = after;
        let _ = home.messages.answer(&message);
    }
    let mut after = Vec::new();
    names(home.around.path(), &mut after);
    assert_eq!(after, home.before, "something outside home was made or removed");
});
