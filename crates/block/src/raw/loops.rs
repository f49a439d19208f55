//! Loop devices, which claim nothing of what they are over: each is asked.
//!
//! **Invariants**: nobody is waited for for long; one that gave no answer counts as over anything.
//! **Deliberately absent**: what follows from it (`sysfs.rs`).

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::ioctls::LoopFile;
use super::sysfs::{Kernel, Node, unescaped};

/// How long all may take to answer. Who asks waits only where a kill ends the wait.
const ANSWER: Duration = Duration::from_secs(2);

/// File systems of other machines and of programs, which may hang.
const SERVED: [&str; 11] =
    ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs", "lustre", "gfs2", "ocfs2", "fuse"];

/// All loop devices of the machine that are over something.
#[derive(Debug)]
pub(crate) struct Loops(Vec<(Node, Option<LoopFile>)>);

impl Loops {
    /// Asks them. One that is being set up or taken away gives no answer for an instant.
    pub(crate) fn ask(kernel: Kernel<'_>) -> Self {
        let all = Node::all(kernel).into_iter().filter(Node::is_loop);
        let mut loops: Vec<(Node, Option<LoopFile>)> = all.map(|node| (node, None)).collect();
        let began = Instant::now();
        loop {
            ask(kernel, &mut loops);
            loops.retain(|(node, file)| file.is_some() || node.is_loop());
            if loops.iter().all(|(_, file)| file.is_some()) || began.elapsed() >= kernel.patience {
                return Self(loops);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Those that have answered.
    pub(crate) fn asked(&self) -> impl Iterator<Item = (&Node, &LoopFile)> {
        self.0.iter().filter_map(|(node, file)| Some((node, file.as_ref()?)))
    }

    /// The loop device that is over a device, as something that uses it. Its path says little: the
    /// node may have been anywhere.
    pub(crate) fn over(&self, lower: &Node) -> Option<String> {
        let is_over = |(node, file): &&(Node, Option<LoopFile>)| match file {
            Some(file) => file.rdevice == lower.number(),
            None => node.backing_path().is_some_and(|path| lower.is(&path)),
        };
        let above = self.0.iter().find(is_over)?;
        Some(format!("held by {}", above.0.name()))
    }

    /// One that has not answered, and may be over the device.
    pub(crate) fn silent(&self, device: &Node) -> Option<String> {
        let (node, _) = self.0.iter().find(|(node, file)| file.is_none() && node != device)?;
        Some(format!(
            "perhaps below {}, which cannot be asked what it is over (work as root, where all loop \
             devices are in /dev)",
            node.name()
        ))
    }
}

/// Fills in what those say that have not said anything yet.
fn ask(kernel: Kernel<'_>, loops: &mut [(Node, Option<LoopFile>)]) {
    let mounts = std::fs::read(kernel.proc.join("self/mountinfo")).unwrap_or_default();
    let mounts = String::from_utf8_lossy(&mounts).into_owned();
    let mut left = Vec::new();
    for (n, (node, file)) in loops.iter_mut().enumerate().filter(|(_, (_, file))| file.is_none()) {
        match node.backing_path().is_some_and(|path| is_served(&mounts, &path)) {
            // To ask would be to ask the server.
            true => *file = Some(LoopFile { device: 0, inode: 0, rdevice: 0, offset: 0 }),
            false => left.push((n, node.clone())),
        }
    }
    let (tell, told) = mpsc::channel();
    let ask = kernel.ask_loop;
    let asking = move || {
        for (n, node) in left {
            // Nobody may listen any more.
            let _ = tell.send((n, ask(&node)));
        }
    };
    if std::thread::Builder::new().stack_size(256 << 10).spawn(asking).is_err() {
        return;
    }
    let began = Instant::now();
    while let Ok((n, file)) = told.recv_timeout(ANSWER.saturating_sub(began.elapsed())) {
        loops[n].1 = file;
    }
}

/// Whether a path is on a file system of [`SERVED`], by the kernel's list of mounts: the path
/// itself is not looked at.
fn is_served(mounts: &str, path: &Path) -> bool {
    let mount = mounts.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let at = unescaped(front.split(' ').nth(4)?);
        let kind = back.split(' ').next()?;
        path.starts_with(&at).then_some((at.len(), kind))
    });
    // The last of several at one place is the one that is seen.
    let kind = mount.max_by_key(|(len, _)| *len).map(|(_, kind)| kind);
    kind.is_some_and(|kind| SERVED.contains(&kind.split('.').next().unwrap_or(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_on_a_server_is_told_by_the_list_of_mounts() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      2 1 0:5 / /srv rw - nfs4 host:/x rw\n\
                      3 2 8:2 / /srv/here rw - xfs /dev/sda2 rw\n\
                      4 1 0:6 / /a\\040b rw shared:1 - fuse.sshfs h:/ rw\n";
        let is = |path: &str| is_served(mounts, Path::new(path));
        assert!(is("/srv/image") && is("/a b/image") && is("/srv/hereafter"));
        assert!(!is("/srv/here/image") && !is("/image") && !is("/dev/sda"));
    }
}
