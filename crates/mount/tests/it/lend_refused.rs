//! Lending where the kernel refuses the files: on a medium that is an overlayfs, in a mount
//! namespace of its own.

use crate::place::{Place, skipped_unless_root, until};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use tiersmith_mount::Options;

const LEN: usize = 256 << 10;
/// Set for the process inside.
const INSIDE: &str = "TIERSMITH_TEST_INSIDE_OVERLAY";
/// Makes the overlay `$1/merged`, and runs the rest there.
const OVERLAY: &str = r#"
cd "$1" && mkdir lower upper work merged || exit 77
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged || exit 77
export TMPDIR="$1/merged"
shift
exec "$@"
"#;

#[test]
fn inside_the_overlay() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let mut place = Place::with(8, Options { sync_on_write: true, ..Options::default() });
    for n in 0..2u8 {
        let made = place.at("new.redo");
        fs::write(&made, vec![n; LEN]).unwrap();
        let path = place.at(&format!("{n}.seg"));
        fs::rename(&made, &path).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        file.write_all_at(&[9; 8192], 8192).unwrap();
        file.sync_data().unwrap();
        let mut bytes = vec![0; LEN];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes[8191], bytes[8192], bytes[16383], bytes[16384]), (n, 9, 9, n));
    }
    let (report, mut lending) =
        (place.mounted().report(), place.mounted().attached().stats().lending);
    let why = report.lends_because.or(lending.refused.clone()).unwrap_or_default();
    if why.contains("the kernel refused a file") {
        assert!(!report.lends);
        // The background brings it home; the next opening finds it there.
        until("what was refused to be given back", || {
            drop(OpenOptions::new().read(true).write(true).open(place.at("0.seg")).unwrap());
            lending = place.mounted().attached().stats().lending;
            lending.files == 0
        });
        let left = fs::read_dir(place.path().join("fast.lent")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "no plain file is left");
        println!("refused: {why}");
    } else {
        println!("another way: {}", if why.is_empty() { "it lends there" } else { &why });
    }
    place.remount();
    place.detach();
    for n in 0..2u8 {
        let bytes = fs::read(place.at(&format!("{n}.seg"))).unwrap();
        assert_eq!((bytes.len(), bytes[8191], bytes[8192], bytes[16384]), (LEN, n, 9, n));
    }
}

#[test]
fn on_an_overlay_the_kernel_refuses_a_lent_file_and_nothing_is_lent_nor_lost() {
    const TEST: &str = "on_an_overlay_the_kernel_refuses_a_lent_file_and_nothing_is_lent_nor_lost";
    if skipped_unless_root(TEST) {
        return;
    }
    // Not on the disk of this directory: that may be an overlay itself, which cannot be the upper
    // layer of another.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let program = std::env::current_exe().unwrap();
    let started = Command::new("unshare")
        .args(["-m", "sh", "-c", OVERLAY, "sh"])
        .arg(dir.path())
        .arg(&program)
        .args([
            full_name!("inside_the_overlay").as_str(),
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output();
    let output = match started {
        Ok(output) => output,
        Err(e) => {
            eprintln!("skipped: {TEST}, because the program unshare cannot be started ({e})");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let ran = said.contains("running 1 test");
    if !ran {
        eprintln!(
            "skipped: {TEST}, because there can be no overlay here ({})",
            errors.trim().replace('\n', "; ")
        );
        return;
    }
    assert!(output.status.success(), "{said}\n{errors}");
    // The harness may have begun the line with the name of the test.
    let after = |word| said.lines().find_map(|line| Some(line.split_once(word)?.1));
    match (after("refused: "), after("another way: ")) {
        (Some(why), None) => println!("{why}"),
        (None, Some(why)) => {
            eprintln!("skipped: {TEST}, because the kernel was not asked, or took the file: {why}")
        }
        _ => panic!("{said}\n{errors}"),
    }
}
