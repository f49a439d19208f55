//! Opening and growing a real file: every refusal has its own error, and leaves nothing behind.
#![cfg(not(miri))]
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tiersmith_pmem::{
    Access, Error, FRAME, FlushInstruction, Mapping, OpenOptions, PersistenceDomain,
};

const LEN: u64 = 64 * FRAME as u64;

fn options() -> OpenOptions {
    OpenOptions { create: true, ..OpenOptions::new(Access::Emulated, LEN) }
}

fn refused(path: &Path, options: &OpenOptions) -> Error {
    let error = Mapping::open(path, options).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&path.display().to_string()), "{text}");
    error
}

#[test]
fn a_new_file_is_private_allocated_and_zero() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new");
    let mapping = Mapping::open(&path, &options()).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), LEN);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512 >= LEN);
    let mut bytes = vec![1; LEN as usize];
    mapping.read(0, &mut bytes);
    assert!(bytes.iter().all(|&byte| byte == 0));
}

#[test]
fn what_was_written_is_in_the_file_and_there_again_at_the_next_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("again");
    let mapping = Mapping::open(&path, &options()).unwrap();
    mapping.set_open_range(LEN);
    mapping.nt_write(LEN - 100, &[9; 100]);
    mapping.fence();
    drop(mapping);
    assert!(fs::read(&path).unwrap().ends_with(&[9; 100]));
    let whole = OpenOptions { create: false, len: 0, ..options() };
    let mapping = Mapping::open(&path, &whole).unwrap();
    assert_eq!(mapping.len(), LEN);
    assert_eq!(mapping.load_u64(LEN - 8), 0x0909_0909_0909_0909);
}

#[test]
fn a_range_that_is_prefaulted_keeps_its_bytes_and_one_outside_is_a_defect() {
    // In memory, where page tables are filled, and in an ordinary directory, where it does nothing.
    for directory in [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")].into_iter().flatten() {
        let path = directory.path().join("file");
        let mapping = Mapping::open(&path, &options()).unwrap();
        mapping.set_open_range(LEN);
        mapping.nt_write(LEN - 100, &[9; 100]);
        mapping.fence();
        mapping.prefault(0, LEN as usize);
        mapping.prefault(LEN - 4096, 4096);
        mapping.prefault(LEN, 0);
        let mut bytes = vec![1; LEN as usize];
        mapping.read(0, &mut bytes);
        assert!(
            bytes[..LEN as usize - 100].iter().all(|&byte| byte == 0) && bytes.ends_with(&[9; 100])
        );
        let outside = std::panic::AssertUnwindSafe(|| mapping.prefault(LEN, 4096));
        assert!(std::panic::catch_unwind(outside).is_err());
    }
}

/// How much of the mapping of a file is in this process's page tables, in KiB.
fn resident(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let of_file = maps.split_once(path.to_str().unwrap()).expect("it is mapped").1;
    let rss = of_file.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
    rss.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn prefaulting_fills_page_tables_of_memory_and_reads_nothing_from_a_disk() {
    for directory in [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")].into_iter().flatten() {
        let kind = Command::new("stat")
            .args(["-f", "-c", "%T"])
            .arg(directory.path())
            .output()
            .unwrap()
            .stdout;
        let memory = kind.starts_with(b"tmpfs");
        for access in [Access::Emulated, Access::Volatile] {
            let path = directory.path().join(format!("{access:?}"));
            let mapping = Mapping::open(
                &path,
                &OpenOptions { create: true, ..OpenOptions::new(access, LEN) },
            )
            .unwrap();
            mapping.set_open_range(LEN);
            let before = resident(&path);
            mapping.prefault(0, LEN as usize);
            let after = resident(&path);
            let expected = if memory { LEN / 1024 } else { before };
            assert_eq!(after, expected, "{access:?} in {}", directory.path().display());
        }
    }
}

#[test]
fn the_report_says_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let mapping = Mapping::open(&path, &options()).unwrap();
    let report = mapping.report().clone();
    assert!(report.emulated && !report.persistent && report.may_hold_only_copy());
    assert_eq!((report.access, report.domain), (Access::Emulated, PersistenceDomain::None));
    assert!(report.to_string().contains("EMULATED"), "{report}");
    drop(mapping);
    let mapping = Mapping::open(&path, &OpenOptions::new(Access::Volatile, LEN)).unwrap();
    let report = mapping.report();
    assert!(!report.emulated && !report.persistent && !report.may_hold_only_copy());
    assert_eq!(report.instruction, FlushInstruction::None);
    assert_eq!(report.fields()[0].1, path.display().to_string());
}

#[test]
fn a_missing_file_is_refused_unless_it_may_be_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none");
    let error = refused(&path, &OpenOptions { create: false, ..options() });
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    assert!(!path.exists());
    let error = refused(&directory.path().join("no/such"), &options());
    assert!(matches!(error, Error::Missing { .. }), "{error}");
}

#[test]
fn what_is_not_a_file_is_refused_by_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let error = refused(directory.path(), &options());
    assert!(error.to_string().contains("is a directory"), "{error}");
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let error = refused(&fifo, &options());
    assert!(error.to_string().contains("is a FIFO"), "{error}");
    let error = refused(Path::new("/dev/null"), &options());
    assert!(matches!(error, Error::NotDevDax { .. }), "{error}");
}

#[test]
fn the_second_owner_is_refused_until_the_first_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one");
    let first = Mapping::open(&path, &options()).unwrap();
    let error = refused(&path, &options());
    assert!(matches!(error, Error::Owned { .. }), "{error}");
    assert_eq!(fs::metadata(&path).unwrap().len(), LEN, "the refused one changed nothing");
    drop(first);
    Mapping::open(&path, &options()).unwrap();
}

#[test]
fn a_short_file_is_refused_unless_it_may_be_lengthened() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("short");
    fs::write(&path, [5; 3 * FRAME]).unwrap();
    let error = refused(&path, &OpenOptions { create: false, ..options() });
    assert!(matches!(error, Error::TooShort { found: 12288, wanted: LEN, .. }), "{error}");
    let mapping = Mapping::open(&path, &options()).unwrap();
    assert_eq!(
        (mapping.load_u64(0), mapping.load_u64(3 * FRAME as u64)),
        (0x0505_0505_0505_0505, 0)
    );
}

#[test]
fn dax_access_to_an_ordinary_file_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ordinary");
    let error = refused(&path, &OpenOptions { access: Access::Dax, ..options() });
    assert!(matches!(error, Error::NotDax { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("-o dax") && text.contains("emulate"), "{text}");
    assert!(!path.exists(), "the file made by the refused call is gone again");
    fs::write(&path, [0; FRAME]).unwrap();
    refused(&path, &OpenOptions { access: Access::Dax, ..options() });
    assert_eq!(
        fs::metadata(&path).unwrap().len(),
        FRAME as u64,
        "an older file has its length again"
    );
    let error = refused(&path, &OpenOptions { access: Access::DevDax, ..options() });
    assert!(matches!(error, Error::NotDevDax { .. }), "{error}");
}

#[test]
fn a_file_system_without_room_is_an_error_and_nothing_is_left() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("skipped: a file system without room, because there is no /dev/shm");
        return;
    };
    let path = directory.path().join("huge");
    let error = refused(&path, &OpenOptions { len: 1 << 44, ..options() });
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert!(!path.exists());
    let roomy = OpenOptions { max_len: 1 << 44, ..options() };
    let mapping = Mapping::open(&path, &roomy).unwrap();
    let error = mapping.grow(1 << 44).unwrap_err();
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert_eq!((mapping.len(), fs::metadata(&path).unwrap().len()), (LEN, LEN));
}

#[test]
fn unusable_lengths_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("length");
    for len in [0, 1, FRAME as u64 + 1, 1 << 63] {
        let error = refused(&path, &OpenOptions { len, ..options() });
        assert!(matches!(error, Error::BadLength { .. }), "{error}");
        assert!(!path.exists());
    }
}

#[test]
fn growth_keeps_the_base_while_others_read_and_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("grow");
    let mapping = Mapping::open(&path, &OpenOptions { max_len: 1 << 30, ..options() }).unwrap();
    assert!(mapping.claim(0, FRAME));
    let view = mapping.view(FRAME as u64, FRAME).unwrap();
    let before = view.as_ptr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in 2..=32 {
                mapping.grow(step * LEN).unwrap();
            }
        });
        scope.spawn(|| {
            for value in 0..10_000 {
                mapping.store_u64(8, value);
                assert_eq!(mapping.load_u64(8), value);
            }
        });
    });
    assert_eq!(mapping.view(FRAME as u64, FRAME).unwrap().as_ptr(), before);
    assert_eq!((mapping.len(), mapping.max_len()), (32 * LEN, 1 << 30));
    assert!(mapping.claim(31 * LEN, FRAME));
    mapping.nt_write(31 * LEN, &[3; 64]);
    mapping.fence();
    assert_eq!(fs::read(&path).unwrap()[31 * LEN as usize..][..64], [3; 64]);
    let error = mapping.grow((1 << 30) - 1).unwrap_err();
    assert!(matches!(error, Error::BadLength { .. }), "{error}");
    let error = mapping.grow((1 << 30) + FRAME as u64).unwrap_err();
    assert!(matches!(error, Error::BeyondMaximum { .. }), "{error}");
    mapping.grow(LEN).unwrap();
    assert_eq!(mapping.len(), 32 * LEN, "less than the present length changes nothing");
}

#[test]
fn a_tebibyte_reserved_costs_no_memory_to_speak_of() {
    if !crate::alone::alone(&full_name!("a_tebibyte_reserved_costs_no_memory_to_speak_of")) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large");
    let resident = || -> u64 {
        let text = fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let before = resident();
    let mapping = Mapping::open(&path, &OpenOptions { max_len: 1 << 40, ..options() }).unwrap();
    assert!(mapping.claim(0, LEN as usize));
    assert!(resident() < before + (16 << 20));
}

#[test]
fn a_link_is_refused_and_what_it_leads_to_stays_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let (file, link) = (directory.path().join("file"), directory.path().join("link"));
    fs::write(&file, b"").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert!(refused(&link, &options()).to_string().contains("symbolic link"));
    assert_eq!(fs::metadata(&file).unwrap().len(), 0);
    std::os::unix::fs::symlink(directory.path().join("new"), directory.path().join("dangling"))
        .unwrap();
    assert!(
        refused(&directory.path().join("dangling"), &options())
            .to_string()
            .contains("symbolic link")
    );
    assert!(!directory.path().join("new").exists());
}

#[test]
fn what_somebody_else_could_change_is_refused_where_an_owner_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let me = rustix::process::geteuid().as_raw();
    let of = |user| OpenOptions { owner: Some(user), ..options() };
    drop(Mapping::open(&path, &of(me)).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    assert!(refused(&path, &of(me)).to_string().contains("mode 0620"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(&path, directory.path().join("other")).unwrap();
    assert!(refused(&path, &of(me)).to_string().contains("another name"));
    fs::remove_file(directory.path().join("other")).unwrap();
    drop(Mapping::open(&path, &of(me)).unwrap());
    if me != 0 {
        eprintln!("skipped: a file of somebody else, because only root can give one away");
        return;
    }
    // Root is trusted by everybody.
    drop(Mapping::open(&path, &of(2001)).unwrap());
    std::os::unix::fs::chown(&path, Some(2001), None).unwrap();
    assert!(refused(&path, &of(0)).to_string().contains("belongs to user 2001"));
    drop(Mapping::open(&path, &options()).unwrap());
}
