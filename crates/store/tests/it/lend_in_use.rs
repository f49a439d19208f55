//! A lent file that another program has open.
//!
//! Alone in its binary: a program that is being started has, for a moment, what every thread of
//! this one had open, and a test beside it would find its own lent files in use.

use std::fs;
use std::path::{Path, PathBuf};
use tiersmith_store::{AttachedHome, Medium, OpenMode, Options, Profile, TierSpec, attach};

const LEN: usize = 64 << 10;

fn attached(dir: &Path) -> AttachedHome {
    let text = "description = 'test'\n[default]\nclass = 'pass'\nblock_size = \
                4096\n[[rule]]\nfiles = ['*.seg']\nclass = 'redo'\n\
        lend = true\nwhy = 'test'\n";
    let profile = Some(Profile::parse("lend", text).unwrap());
    let mut spec = TierSpec::new("fast", dir.join("fast"), Medium::Emulated, 4 << 20);
    (spec.unit, spec.lanes, spec.slots) = (64 << 10, 4, 16);
    attach(&dir.join("db"), &[spec], Options { profile, background: false, ..Options::default() })
        .unwrap()
}

/// Ends its program also when the test fails.
struct Program(std::process::Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_that_kept_a_lent_file_open_is_named_by_the_next_attach_and_by_a_detach_that_waits_for_it()
 {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("db")).unwrap();
    let home = attached(dir.path());
    for (name, byte) in [("0.seg", 1), ("1.seg", 2)] {
        let file = home.open(name, OpenMode::CREATE).unwrap();
        file.write(0, &[byte; LEN]).unwrap();
        if file.lend().unwrap().is_none() {
            let why = home.stats().lending.refused.unwrap_or_default();
            assert!(why.contains("its file system"), "nothing is lent: {why}");
            eprintln!("skipped: lending, because {why}");
            return;
        }
    }
    drop(home);
    assert_eq!(attached(dir.path()).stats().recovery.lent_in_use, []);
    let entries = fs::read_dir(dir.path().join("fast.lent")).unwrap();
    let mut plains: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    plains.sort();
    let open = fs::File::options().read(true).write(true).open(&plains[0]).unwrap();
    let started = std::process::Command::new("sleep").arg("1000").stdin(open).spawn();
    let program = Program(started.unwrap());
    let home = attached(dir.path());
    let named = format!("process {} (sleep)", program.0.id());
    let recovery = home.stats().recovery;
    let [held] = &recovery.lent_in_use[..] else { panic!("{recovery}") };
    assert_eq!((held.path.to_str(), &held.plain), (Some("0.seg"), &plains[0]));
    assert_eq!(held.programs, std::slice::from_ref(&named));
    let sentence = format!("0.seg is open or mapped elsewhere, and written to there: end {named}");
    assert!(recovery.to_string().contains(&sentence), "{recovery}");
    let said = home.clone().detach().unwrap_err().to_string();
    assert!(said.contains(&named) && said.contains("try again"), "{said}");
    drop(program);
    home.detach().unwrap();
    for (n, byte) in [1, 2].into_iter().enumerate() {
        assert_eq!(fs::read(dir.path().join(format!("db/{n}.seg"))).unwrap(), vec![byte; LEN]);
    }
}
