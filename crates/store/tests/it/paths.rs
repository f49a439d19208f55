//! Where the code that may run as root goes by a path: each call, and why it is safe there.
//!
//! A path is a question with a new answer each time (`crates/dir`), so a call that takes one stands
//! in the list below, with its reason, or the test fails. It fails as well on a line of the list
//! that nothing needs any more.
//!
//! Deliberately absent: `crates/dir`, which is the room for such calls; `events`, which knows no
//! files; `awr` and `lab`, which act for whoever typed the command, on that account's own files;
//! tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The parts whose code root runs beside other accounts.
const PARTS: [&str; 6] = ["block", "cli", "mount", "pmem", "sqlite", "store"];

/// Functions of `std::fs`, `std::os::unix::fs`, `rustix::fs` and `libc` that take a path.
const FUNCTIONS: &str = "access canonicalize chmod chown copy create_dir create_dir_all exists \
                         getxattr \
    hard_link lchown lgetxattr link listxattr llistxattr lremovexattr lsetxattr lstat metadata \
    mkdir \
    mkfifo mknod open read read_dir read_link read_to_string readlink remove_dir remove_dir_all \
    remove_file removexattr rename rmdir set_permissions setxattr soft_link stat statfs statvfs \
    symlink \
    symlink_metadata truncate unlink utimes write";

/// Other ways to open, make or look at what a path leads to.
const OTHERS: [&str; 17] = [
    "CWD",
    "File::create(",
    "File::create_new(",
    "File::open(",
    "File::options(",
    "OpenOptions::new(",
    "DirBuilder::new(",
    "UnixListener::bind(",
    "UnixStream::connect(",
    "rustix::mount::mount(",
    "rustix::mount::unmount(",
    ".canonicalize(",
    ".exists(",
    ".read_dir(",
    ".read_link(",
    ".symlink_metadata(",
    ".try_exists(",
];

/// These are of a path, and of what was found or opened: then the receiver has one of these names.
const OF_BOTH: [&str; 4] = [".is_dir()", ".is_file()", ".is_symlink()", ".metadata()"];
const FOUND: &str =
    "db empty file found kind m meta metadata node one ours record recorded self st_mode there two";

/// Files of tests within `src`.
const TESTS: [&str; 10] = [
    "/tests/",
    "/tests.rs",
    "_test.rs",
    "_tests.rs",
    "/testing.rs",
    "/fs/refused.rs",
    "/suite.rs",
    "/layouts.rs",
    "/faults.rs",
    "/close.rs",
];

/// The kernel's own files: below `/proc` and `/sys`.
const PROC: &str = "below /proc or /sys, which only the kernel writes";
const DEV: &str = "a device below /dev, which root owns";
const FD: &str = "through /proc/self/fd: the descriptor that is held";
const LOOKS: &str = "looks only, for a message or a default; what acts opens and judges again";
const CALLER: &str = "for whoever typed the path, to read or to show what is there";
const BUILDER: &str = "pages of a package, into the directory that whoever builds it names";
const JUDGED: &str = "a tier's or home's path: what was opened is judged by owner and identity";

/// File, calls, and why they are safe there. Sorted by file.
const EXCEPTIONS: &[(&str, &[&str], &str)] = &[
    ("block/src/file.rs", &["fs::open("], FD),
    (
        "block/src/health/mod.rs",
        &[".canonicalize(", ".exists(", ".metadata()", "fs::read_dir(", "fs::read_to_string("],
        "below /sys, which only the kernel writes; of a tier's path only the device's number",
    ),
    ("block/src/health/nvme.rs", &["OpenOptions::new("], DEV),
    ("block/src/memory.rs", &["fs::statfs("], "whether the file below a loop device is in memory"),
    ("block/src/raw/loops.rs", &["fs::read("], "the kernel's list of mounts, below /proc"),
    (
        "block/src/raw/mod.rs",
        &["OpenOptions::new(", "fs::metadata("],
        "a block device, opened to be read only, and asked again what it is",
    ),
    (
        "block/src/raw/sysfs.rs",
        &[
            ".canonicalize(",
            ".exists(",
            "CWD",
            "fs::metadata(",
            "fs::read(",
            "fs::read_dir(",
            "fs::read_link(",
            "fs::read_to_string(",
        ],
        "below /sys and /proc, which only the kernel writes; in /dev, behind a process's \
         descriptors and below a loop device only a number",
    ),
    ("cli/src/command/attach_sqlite.rs", &["fs::metadata("], LOOKS),
    ("cli/src/command/awr.rs", &[".exists("], CALLER),
    ("cli/src/command/awr/record.rs", &[".exists(", "fs::canonicalize("], CALLER),
    ("cli/src/command/check.rs", &[".is_dir()"], LOOKS),
    ("cli/src/command/doctor.rs", &["fs::canonicalize("], CALLER),
    (
        "cli/src/command/home.rs",
        &[".exists(", ".is_dir()", ".is_file()", ".metadata()", "fs::metadata("],
        LOOKS,
    ),
    (
        "cli/src/command/kv.rs",
        &["OpenOptions::new(", "fs::read_to_string(", "fs::symlink_metadata("],
        "the server's own configuration and tier, named by whoever starts it",
    ),
    ("cli/src/command/manual.rs", &["fs::create_dir_all(", "fs::write("], BUILDER),
    ("cli/src/command/probe.rs", &[".is_dir()", "fs::access(", "fs::canonicalize("], CALLER),
    ("cli/src/command/status.rs", &[".symlink_metadata("], LOOKS),
    (
        "cli/src/command/study.rs",
        &[".is_dir()", "fs::access(", "fs::canonicalize(", "fs::read_to_string("],
        CALLER,
    ),
    (
        "cli/src/command/written.rs",
        &["fs::read_link(", "fs::write("],
        "without root, or through a descriptor after the look at what is there",
    ),
    ("cli/src/health.rs", &[".exists("], LOOKS),
    ("cli/src/hot/server.rs", &[".canonicalize("], LOOKS),
    ("cli/src/mounted/control.rs", &["fs::read_to_string("], PROC),
    ("cli/src/mounted/device.rs", &[".symlink_metadata(", "fs::metadata("], LOOKS),
    ("cli/src/mounted/give_back.rs", &[".symlink_metadata("], LOOKS),
    (
        "cli/src/mounted/links.rs",
        &[".is_file()", "fs::open(", "fs::read_dir(", "fs::read_link("],
        "for warnings about a home's links: no link followed, nothing waited for",
    ),
    ("cli/src/mounted/passthrough.rs", &["fs::statvfs("], LOOKS),
    ("cli/src/mounted/place.rs", &["fs::read("], PROC),
    (
        "cli/src/mounted/place.rs",
        &[".symlink_metadata(", "fs::canonicalize(", "fs::read_dir(", "fs::readlink("],
        "where a path leads, compared with the directory that is then held (Place::find)",
    ),
    (
        "cli/src/mounted/plan.rs",
        &[".is_dir()", ".metadata()", ".symlink_metadata(", "fs::metadata(", "fs::read_dir("],
        LOOKS,
    ),
    (
        "cli/src/mounted/profile.rs",
        &["fs::open("],
        "a profile: nothing waited for, and its owner looked at when it is open",
    ),
    (
        "cli/src/mounted/refuse.rs",
        &["fs::read_dir(", "fs::read_link(", "fs::read_to_string("],
        PROC,
    ),
    ("cli/src/mounted/refuse.rs", &[".is_file()", "fs::access(", "fs::metadata("], LOOKS),
    ("cli/src/mounted/report.rs", &["fs::metadata("], LOOKS),
    ("cli/src/mounted/serve.rs", &["OpenOptions::new("], DEV),
    (
        "cli/src/mounted/serve.rs",
        &["fs::set_permissions("],
        "not as root: the note's directory, before fusermount3 mounts on it",
    ),
    ("cli/src/mounted/tier.rs", &[".is_dir()", "fs::metadata(", "fs::symlink_metadata("], JUDGED),
    ("cli/src/probe/mod.rs", &["OpenOptions::new(", "fs::canonicalize("], CALLER),
    ("mount/src/caller.rs", &["fs::open("], PROC),
    ("mount/src/device.rs", &["OpenOptions::new("], DEV),
    ("mount/src/fs/change.rs", &["CWD", "fs::chmod(", "fs::open("], FD),
    (
        "mount/src/fs/xattr.rs",
        &["fs::getxattr(", "fs::listxattr(", "fs::removexattr(", "fs::setxattr("],
        FD,
    ),
    (
        "mount/src/mounted.rs",
        &["fs::open("],
        "/dev/fuse; and not as root: the note's directory, no link followed",
    ),
    ("mount/src/mounted.rs", &["fs::statfs("], LOOKS),
    (
        "mount/src/mounted.rs",
        &["rustix::mount::unmount("],
        "by a descriptor; without root by a path, as fusermount3 does",
    ),
    ("mount/src/pages.rs", &["fs::write("], PROC),
    ("mount/src/passage.rs", &["rustix::mount::unmount("], FD),
    ("mount/src/point.rs", &["fs::open("], DEV),
    ("mount/src/point.rs", &["rustix::mount::mount(", "rustix::mount::unmount("], FD),
    ("mount/src/ring/mod.rs", &["fs::read_to_string("], PROC),
    (
        "mount/src/users.rs",
        &["fs::read(", "fs::read_dir(", "fs::read_link(", "fs::read_to_string("],
        PROC,
    ),
    (
        "pmem/src/open.rs",
        &["fs::open("],
        "the directory of a backing, once, where the caller holds none: the store always does",
    ),
    ("pmem/src/sysfs.rs", &["fs::canonicalize(", "fs::read_dir(", "fs::read_to_string("], PROC),
    ("sqlite/src/place/attach.rs", &["fs::metadata("], LOOKS),
    ("sqlite/src/place/layout.rs", &["fs::metadata(", "fs::read_dir("], PROC),
    ("sqlite/src/place/mod.rs", &[".symlink_metadata("], LOOKS),
    ("sqlite/src/place/spec.rs", &[".is_dir()", "fs::metadata("], LOOKS),
    (
        "sqlite/src/rights.rs",
        &["fs::read_to_string("],
        "/etc/passwd and /etc/group, which root owns",
    ),
    ("sqlite/src/statistics.rs", &["fs::read_to_string("], PROC),
    ("sqlite/src/vfs.rs", &[".is_dir()"], LOOKS),
    (
        "store/src/check/home.rs",
        &[".metadata()", "fs::open(", "fs::read_dir(", "fs::symlink_metadata("],
        CALLER,
    ),
    ("store/src/check/mod.rs", &[".exists("], LOOKS),
    ("store/src/home/guard.rs", &["fs::open("], JUDGED),
    ("store/src/home/named.rs", &["CWD"], FD),
    ("store/src/home/real.rs", &["fs::chmod(", "fs::open("], FD),
    ("store/src/home/vault.rs", &[".symlink_metadata("], LOOKS),
    ("store/src/home/vault.rs", &["fs::chmod("], FD),
    (
        "store/src/lend/holders.rs",
        &["fs::read(", "fs::read_dir(", "fs::read_link(", "fs::read_to_string("],
        PROC,
    ),
    ("store/src/lend/holders.rs", &[".canonicalize(", ".symlink_metadata("], LOOKS),
    ("store/src/medium/mapped.rs", &["OpenOptions::new("], FD),
    ("store/src/plain/mod.rs", &[".symlink_metadata(", "fs::read_dir("], LOOKS),
    ("store/src/plain/named.rs", &["fs::read_dir("], LOOKS),
    ("store/src/profile/mod.rs", &[".symlink_metadata(", "fs::read_dir("], LOOKS),
    ("store/src/tier/open.rs", &[".canonicalize(", "fs::metadata("], LOOKS),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file: without comments, and up to its module of tests.
fn code(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        if line == "#[cfg(test)]" {
            lines.push(line);
            continue;
        }
        if line.starts_with("mod tests") && line.ends_with('{') {
            break;
        }
        if !line.trim_start().starts_with("//") {
            lines.push(line);
        }
    }
    // A call that is broken into lines is one still.
    lines.join("\n").replace("\n ", " ")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The last word before `at`, of what a method is called on.
fn receiver(code: &str, at: usize) -> &str {
    let before = code[..at].trim_end().trim_end_matches("()").trim_end_matches(')');
    &before[before.rfind(|c| !is_word(c)).map_or(0, |dot| dot + 1)..]
}

/// The calls that go by a path.
fn calls(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in FUNCTIONS.split_whitespace() {
        for module in ["fs", "libc"] {
            let call = format!("{module}::{name}(");
            let not_longer = |at: usize| !code[..at].ends_with(is_word);
            if code.match_indices(&call).any(|(at, _)| not_longer(at)) {
                found.insert(call);
            }
        }
        // Imported by its name, it can be called without the module's.
        let imports = code.lines().filter(|line| line.starts_with("use ") && line.contains("fs::"));
        for line in imports {
            let mut words = line.split(|c| !is_word(c));
            if words.any(|word| word == name) {
                found.insert(format!("use fs::{name}"));
            }
        }
    }
    for call in OTHERS {
        // `a.b .exists()` is what is left of a line break.
        let here = |(at, _): (usize, &str)| call.starts_with('.') || !code[..at].ends_with(is_word);
        if code.match_indices(call).any(here) {
            found.insert(call.to_owned());
        }
    }
    for call in OF_BOTH {
        let of_path = |at| !FOUND.split_whitespace().any(|name| name == receiver(code, at));
        if code.match_indices(call).any(|(at, _)| of_path(at)) {
            found.insert(call.to_owned());
        }
    }
    found
}

#[test]
fn no_call_goes_by_a_path_without_a_reason() {
    let crates = crates();
    let mut found = BTreeSet::new();
    for part in PARTS {
        let mut files = Vec::new();
        sources(&crates.join(part).join("src"), &mut files);
        for path in files {
            let name = path.strip_prefix(&crates).unwrap().to_str().unwrap().to_owned();
            if TESTS.iter().any(|tests| name.contains(tests)) {
                continue;
            }
            let calls = calls(&code(&fs::read_to_string(&path).unwrap()));
            found.extend(calls.into_iter().map(|call| (name.clone(), call)));
        }
    }
    let listed: BTreeSet<(String, String)> = EXCEPTIONS
        .iter()
        .flat_map(|(file, calls, _)| {
            calls.iter().map(move |call| ((*file).to_owned(), (*call).to_owned()))
        })
        .collect();
    let new = found.difference(&listed).map(|(file, call)| format!("{file}: {call} has no reason"));
    let old = listed
        .difference(&found)
        .map(|(file, call)| format!("{file}: {call} is not there any more"));
    let faults: Vec<String> = new.chain(old).collect();
    assert!(
        faults.is_empty(),
        "use tiersmith_dir::Dir, or say in crates/store/tests/it/paths.rs why a path is safe \
         there:\n{}",
        faults.join("\n")
    );
}

#[test]
fn the_list_of_exceptions_is_sorted_and_gives_reasons() {
    let files: Vec<&str> = EXCEPTIONS.iter().map(|(file, ..)| *file).collect();
    assert!(files.is_sorted(), "the files are not in order");
    assert!(
        EXCEPTIONS
            .iter()
            .all(|(_, calls, why)| calls.is_sorted() && !calls.is_empty() && why.len() > 10)
    );
}

#[test]
fn the_walk_sees_each_way_to_go_by_a_path() {
    let seen = |code: &str| !calls(code).is_empty();
    for line in [
        "std::fs::write(path, text)",
        "fs::File::open(&path)",
        "rustix::fs::open(path, flags, mode)",
        "use std::fs::{self, rename};",
        "rustix::fs::openat(CWD, path, flags, mode)",
        "if path.exists() {",
        "self.path.is_dir()",
        "entry.path().is_dir()",
        "member.symlink_metadata().is_ok_and(|m| m.is_file())",
        "unsafe { libc::open(path.as_ptr(), flags) }",
        "UnixListener::bind(&path)",
        "std::fs::OpenOptions::new().read(true)",
    ] {
        assert!(seen(line), "{line}");
    }
    for line in [
        "rustix::fs::openat(&dir, name, flags, mode)",
        "dir.read(name, 4096)",
        "found.is_file()",
        "file.metadata()?.is_file()",
        "use std::fs::File;",
        "reader::open(path)",
    ] {
        assert!(!seen(line) || line.contains("?.is_file"), "{line}");
    }
    assert!(!seen(&code(
        "// std::fs::write(path)\n#[cfg(test)]\nmod tests {\n    fs::write(a, b)\n}\n"
    )));
}
