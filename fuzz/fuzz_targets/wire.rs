//! Requests of a kernel that does not keep to its protocol: each is answered or refused; never a panic, and nothing outside home is touched.

#![no_main]

use std::path::PathBuf;

use tiersmith_mount::messages::Messages;
use tiersmith_store::{Medium, Options, TierSpec, attach};

/// A home with files of each kind, attached to a tier in a file.
struct Home {
    messages: Messages,
    around: tempfile::TempDir,
    before: Vec<PathBuf>,
}

fn names(at: &std::path::Path) -> Vec<PathBuf> {
    let mut names: Vec<_> =
        std::fs::read_dir(at).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    names.sort();
    names
}

fn home() -> Home {
    let around = tempfile::tempdir().expect("a directory");
    let home = around.path().join("home");
    std::fs::create_dir_all(home.join("dir")).expect("a directory");
    std::fs::write(home.join("a"), [7; 9000]).expect("a file");
    std::fs::write(home.join("dir/b"), [8; 5000]).expect("a file");
    let spec = TierSpec::new("fast", around.path().join("tier"), Medium::Emulated, 8 << 20);
    let attached =
        attach(&home, &[spec], Options { background: false, ..Options::default() }).expect("it attaches");
    let messages = Messages::new(attached).expect("it opens");
    let before = names(around.path());
    Home { messages, around, before }
}

/// Each message: an opcode, a node, the rest of a header that may be wrong, a length, so many bytes.
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
        rest = after;
        let _ = home.messages.answer(&message);
    }
    let _ = home.messages.answer(input);
    assert_eq!(names(home.around.path()), home.before, "something outside home was made or removed");
});
