//! A home that is a mount point: ext4 in a file, which can lose power.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::daemon::{LIMIT, Site, mounts_below, output_within, wait_until};

/// The file system that the home of a site is on. To be dropped after the site, which unmounts it.
pub(crate) struct Volume {
    dir: tempfile::TempDir,
    home: PathBuf,
    cuts: u32,
}

/// Whether a program did what it was asked.
pub(crate) fn run(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // To mount makes a loop device, which may wait in the kernel.
    let done = command.spawn().and_then(|child| output_within(child, LIMIT));
    let done = done.unwrap_or_else(|e| panic!("{program}: {e}"));
    if !done.status.success() {
        eprintln!("{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    done.status.success()
}

impl Volume {
    /// Puts what the home has onto a volume of its own, mounted at the home's path. `None`, said on
    /// standard error: not here.
    pub(crate) fn of(site: &Site, mib: u64) -> Option<Volume> {
        let dir = tempfile::tempdir().unwrap();
        let volume = Volume { dir, home: site.home.clone(), cuts: 0 };
        let image = volume.image();
        fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let there = ["mkfs.ext4", "/usr/sbin/mkfs.ext4"]
            .into_iter()
            .find(|program| Command::new(program).arg("-V").output().is_ok());
        let formatted =
            there.is_some_and(|program| run(program, &["-q", "-F", image.to_str().unwrap()]));
        let aside = site.path().join("before");
        fs::rename(&site.home, &aside).unwrap();
        fs::create_dir(&site.home).unwrap();
        if !formatted || !volume.mount() {
            eprintln!(
                "skipped: a volume of its own for the home, because ext4 cannot be made and \
                 mounted in a file"
            );
            fs::remove_dir(&site.home).unwrap();
            fs::rename(&aside, &site.home).unwrap();
            return None;
        }
        let from = aside.join(".");
        assert!(run("cp", &["-a", from.to_str().unwrap(), site.home_str()]));
        assert!(run("sync", &["-f", site.home_str()]));
        fs::remove_dir_all(aside).unwrap();
        Some(volume)
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join(self.cuts.to_string())
    }

    pub(crate) fn mount(&self) -> bool {
        run("mount", &["-o", "loop", self.image().to_str().unwrap(), self.home.to_str().unwrap()])
    }

    /// Takes away everything that is mounted, as a reboot does, and mounts the volume again.
    pub(crate) fn reboot(&self) {
        self.unmount_all();
        assert!(self.mount());
    }

    /// The same, but with what the disk holds at this instant: what was not synced is lost.
    pub(crate) fn cut_power(&mut self) {
        let before = self.image();
        self.cuts += 1;
        let (from, to) = (before.to_str().unwrap().to_owned(), self.image());
        assert!(run("cp", &["--sparse=always", &from, to.to_str().unwrap()]));
        self.unmount_all();
        fs::remove_file(before).unwrap();
        assert!(self.mount());
    }

    fn unmount_all(&self) {
        let below = self.home.parent().unwrap();
        for at in mounts_below(below) {
            assert!(run("umount", &["-l", at.to_str().unwrap()]), "{}", at.display());
        }
        wait_until("nothing is mounted", || mounts_below(below).is_empty());
    }
}

/// The kinds of file systems that are mounted at exactly this path, the lowest first.
pub(crate) fn kinds_at(path: &Path) -> Vec<String> {
    let list = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = path.to_str();
    let of = |line: &str| {
        let mut fields = line.split(' ');
        (fields.nth(4) == at)
            .then(|| fields.skip_while(|f| *f != "-").nth(1).unwrap_or("").to_owned())
    };
    list.lines().filter_map(of).collect()
}
