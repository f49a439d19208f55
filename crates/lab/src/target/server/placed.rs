//! Where a run's directory and redo lie: on the home's storage, on a disk over the medium, in a
//! directory of it, or on the tier; and the tier that a server maps itself.
//!
//! **Invariant**: what is mounted here is noted before, and unmounted before the directory below it
//! is removed.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tiersmith_store::{Medium, Profile, Stats};

use crate::case::{Case, Placement};
use crate::error::{During, Error, Result};
use crate::installed::system_program;
use crate::mounted::{MountedHome, Wishes};
use crate::place::{Places, TierPlace, unmount};
use crate::server::{Product, Site, account};
use crate::target::{Ground, room};

/// Programs that make a file system on a loop device.
const DISK_PROGRAMS: [&str; 2] = ["mkfs.ext4", "mount"];

/// What stands beneath a server. Dropping it takes it away.
#[derive(Debug, Default)]
pub(super) struct Placed {
    mounted: Option<MountedHome>,
    disk: Option<Disk>,
    /// Files and directories on the medium.
    made: Vec<PathBuf>,
}

/// A file system on a loop device. Dropping it unmounts, which frees the device.
#[derive(Debug)]
struct Disk {
    at: PathBuf,
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.at);
    }
}

/// What a case needs that is not here.
pub(super) fn cannot(ground: &Ground<'_>) -> Option<String> {
    let placement = ground.case.placement;
    let is_root = rustix::process::geteuid().is_root();
    let missing_program = || DISK_PROGRAMS.into_iter().find(|name| system_program(name).is_none());
    match placement {
        Placement::Disk if !is_root => Some("a loop device and its mount need root".into()),
        Placement::Disk if !Path::new("/dev/loop-control").exists() => Some(
            "there is no /dev/loop-control: no loop devices in this system or container".into(),
        ),
        Placement::Disk if missing_program().is_some() => {
            missing_program().map(|name| format!("the program {name} is not installed"))
        }
        Placement::Disk | Placement::Directory | Placement::Mapped
            if matches!(ground.places.tier, TierPlace::Member(_)) =>
        {
            Some(
                "the medium is one file or device, and a directory is needed; give --fast a \
                 directory"
                    .into(),
            )
        }
        Placement::Mapped if ground.places.medium == Medium::Flash => Some(
            "the server maps persistent memory, and the medium is a disk; give --fast a directory \
             of a DAX file system, or let a file stand for it with --emulate"
                .into(),
        ),
        _ => {
            let disk = (placement == Placement::Disk).then(|| cannot_mount_a_disk(ground.places));
            disk.flatten().or_else(|| {
                needs_mount(ground).then(|| cannot_mount(is_root, ground.places)).flatten()
            })
        }
    }
}

/// Root in a container may be kept from mounting in several ways, so it is tried.
fn cannot_mount_a_disk(places: &Places) -> Option<String> {
    let image = on_medium_path(places, "probe").ok()?;
    let made =
        fs::File::create(&image).and_then(|file| file.set_len(8 << 20)).during("make", &image);
    let tried = made
        .and_then(|()| run("mkfs.ext4", &["-q", "-F"], &[&image]))
        .and_then(|()| try_to_mount(places, &["-t", "ext4", "-o", "loop"], &image));
    let _ = fs::remove_file(&image);
    tried.err().map(|e| format!("a loop device cannot be mounted: {e}"))
}

/// Mounts something for a moment.
fn try_to_mount(places: &Places, arguments: &[&str], what: &Path) -> Result<()> {
    let at = places.home.join("probe");
    fs::create_dir(&at).during("make", &at)?;
    places.leftovers.note_mount(&at);
    let tried = run("mount", arguments, &[what, &at]);
    unmount(&at);
    fs::remove_dir(&at).during("remove", &at).and(tried)
}

fn needs_mount(ground: &Ground<'_>) -> bool {
    match ground.case.placement {
        Placement::Redo | Placement::All => true,
        // Nothing of it is at home.
        Placement::Mapped => false,
        Placement::Home | Placement::Disk | Placement::Directory => ground.home_model.is_some(),
    }
}

fn cannot_mount(is_root: bool, places: &Places) -> Option<String> {
    use rustix::fs::{Mode, OFlags, open};
    if let Err(e) = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        return Some(format!("/dev/fuse cannot be opened: {e}"));
    }
    if is_root && system_program("mount").is_some() {
        let tried = try_to_mount(places, &["-t", "tmpfs"], Path::new("probe"));
        return tried.err().map(|e| format!("nothing can be mounted here: {e}"));
    }
    let without = !is_root && system_program("fusermount3").is_none();
    without.then(|| "fusermount3 is not installed; on Debian: apt-get install fuse3".into())
}

impl Placed {
    /// Moves and mounts what the case says; `site` is told where the redo is.
    ///
    /// # Errors
    /// What the system, the store or the mount says; what was made is taken away again.
    pub(super) fn new(
        ground: &Ground<'_>,
        product: &dyn Product,
        site: &mut Site,
    ) -> Result<Placed> {
        let (case, places) = (ground.case, ground.places);
        let mut placed = Placed::default();
        match case.placement {
            Placement::Disk => {
                let at = placed.disk(case, places, site)?;
                move_redo(product, site, &at.join("redo"))?;
            }
            Placement::Directory => {
                let dir = on_medium(places, "redo")?;
                placed.made.push(dir.clone());
                move_redo(product, site, &dir)?;
            }
            Placement::Mapped => {
                let dir = on_medium(places, "keys")?;
                placed.made.push(dir.clone());
                move_tier(product, site, &dir, places.emulated())?;
            }
            Placement::Home | Placement::Redo | Placement::All => {}
        }
        if needs_mount(ground) {
            let member = places.member(0);
            if places.members_are_ours() {
                placed.made.push(member.clone());
            }
            let holds_nothing = !matches!(case.placement, Placement::Redo | Placement::All);
            let wishes = Wishes {
                profile: profile(case, product)?,
                member,
                bytes: if holds_nothing { SMALL_TIER } else { room::tier_bytes(case) },
                medium: places.medium,
                holds_nothing,
                atomic_pages: case.server.atomic_pages,
                home_model: ground.home_model.map(str::to_owned),
            };
            placed.mounted = Some(MountedHome::new(&site.data, &wishes, &places.leftovers)?);
        }
        Ok(placed)
    }

    /// ext4 on a loop device over a file of the medium, mounted beside the data.
    fn disk(&mut self, case: &Case, places: &Places, site: &Site) -> Result<PathBuf> {
        let image = on_medium_path(places, "disk")?;
        self.made.push(image.clone());
        fs::File::create(&image)
            .and_then(|file| file.set_len(room::tier_bytes(case)))
            .during("make", &image)?;
        run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"], &[&image])?;
        let at = site.data.with_file_name("disk");
        fs::create_dir(&at).during("make", &at)?;
        places.leftovers.note_mount(&at);
        // The loop device goes with the mount.
        run("mount", &["-t", "ext4", "-o", "loop"], &[&image, &at])?;
        self.disk = Some(Disk { at: at.clone() });
        Ok(at)
    }

    /// What the store counts; nothing without a mount.
    pub(super) fn stats(&self) -> Option<Stats> {
        self.mounted.as_ref().map(MountedHome::stats)
    }

    /// What a reader of the figures has to know of the mount.
    pub(super) fn remark(&self) -> Option<String> {
        self.mounted.as_ref().and_then(MountedHome::remark)
    }

    /// Unmounts everything and frees the medium.
    ///
    /// # Errors
    /// Something is used still.
    pub(super) fn close(mut self) -> Result<()> {
        self.mounted.take().map_or(Ok(()), MountedHome::unmount)
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.mounted = None;
        self.disk = None;
        for path in &self.made {
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

/// A tier that only has to be there.
const SMALL_TIER: u64 = 16 << 20;

fn profile(case: &Case, product: &dyn Product) -> Result<Profile> {
    let of = match case.placement {
        Placement::Redo => {
            Profile::parse(&format!("{}-redo", product.name()), product.redo_profile())
        }
        _ => Profile::named(product.profile()),
    };
    of.map_err(|e| Error::Case {
        case: case.id.clone(),
        reason: format!("its profile cannot be used: {e}"),
    })
}

fn on_medium_path(places: &Places, name: &str) -> Result<PathBuf> {
    match &places.tier {
        TierPlace::Directory(dir) => Ok(dir.join(name)),
        TierPlace::Member(path) => Err(Error::Place {
            what: "tier",
            path: path.clone(),
            reason: "a directory is needed; give --fast a directory".into(),
        }),
    }
}

fn on_medium(places: &Places, name: &str) -> Result<PathBuf> {
    let dir = on_medium_path(places, name)?;
    fs::DirBuilder::new().mode(0o755).create(&dir).during("make", &dir)?;
    Ok(dir)
}

/// Moves the redo to the directory `to`, which is made if it is not there: a directory leaves a
/// symbolic link, a file is named to the server.
fn move_redo(product: &dyn Product, site: &mut Site, to: &Path) -> Result<()> {
    if !to.exists() {
        fs::create_dir(to).during("make", to)?;
    }
    fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .during("change the mode of", to)?;
    // Given away last: in a directory of its own, the account could lead the copy elsewhere.
    let from = site.data.join(product.redo_within());
    if from.is_dir() {
        let inside = to.join(product.redo_within());
        super::copy_tree(&from, &inside)?;
        fs::remove_dir_all(&from).during("remove", &from)?;
        symlink(&inside, &from).during("make a link at", &from)?;
    } else {
        super::copy_tree(&from, &to.join(product.redo_within()))?;
        fs::remove_file(&from).during("remove", &from)?;
    }
    give(to, product)?;
    site.redo = Some(to.to_path_buf());
    Ok(())
}

/// Gives something to the server's account.
fn give(path: &Path, product: &dyn Product) -> Result<()> {
    match account(product)? {
        Some(account) => {
            chown(path, Some(account.uid), Some(account.gid)).during("change the owner of", path)
        }
        None => Ok(()),
    }
}

/// Moves a tier that the server maps itself to the directory `to` of the medium.
fn move_tier(product: &dyn Product, site: &mut Site, to: &Path, emulated: bool) -> Result<()> {
    let (Some(tier), Some(name)) = (&mut site.tier, product.tier_file()) else { return Ok(()) };
    fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .during("change the mode of", to)?;
    let at = to.join(name);
    super::copy_tree(&tier.path, &at)?;
    fs::remove_file(&tier.path).during("remove", &tier.path)?;
    // Given away last, as a redo directory is.
    give(to, product)?;
    (tier.path, tier.emulated) = (at, emulated);
    Ok(())
}

/// Runs a program of the system, which prints only when it fails.
fn run(name: &str, arguments: &[&str], paths: &[&Path]) -> Result<()> {
    let failed = |reason: String| Error::Target {
        what: format!("running {name} {}", arguments.join(" ")),
        database: paths.first().map_or_else(PathBuf::new, |path| path.to_path_buf()),
        reason,
    };
    let program = system_program(name).ok_or_else(|| failed("it is not installed".into()))?;
    let output = Command::new(program).args(arguments).args(paths).stdin(Stdio::null()).output();
    let output = output.map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
