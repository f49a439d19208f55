//! A home that is attached and mounted for as long as it is used, in this process.
//!
//! **Invariants**: what was mounted is unmounted when the value goes, also when something still
//! uses it; the mount is noted before it is made, so that an interruption takes it away.
//! **Deliberately absent**: a daemon, and attaching for good: `tiersmith attach`.

use std::path::{Path, PathBuf};

use tiersmith_mount::Mounted;
use tiersmith_store::home::model::HomeModel;
use tiersmith_store::{AttachedHome, Medium, Options, Profile, Stats, TierSpec};

use crate::error::{Error, Result};
use crate::place::Leftovers;

/// What to attach to a home.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// Which files are redo and data.
    pub profile: Profile,
    /// The tier's member.
    pub member: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// What that is.
    pub medium: Medium,
    /// Nothing is put on the tier: the home is reached by the mount, and stays what it is.
    pub holds_nothing: bool,
    /// Data pages are atomic; else they are in the page cache.
    pub atomic_pages: bool,
    /// A latency profile of slow storage laid over the home, by name.
    pub home_model: Option<String>,
}

/// The latency profile of this name.
///
/// # Errors
/// There is none; those there are.
pub fn home_model(name: &str) -> Result<HomeModel> {
    let known =
        || HomeModel::builtin().map(|model| model.name().to_owned()).collect::<Vec<_>>().join(", ");
    HomeModel::named(name).ok_or_else(|| Error::Setting {
        setting: "home_model",
        value: name.to_owned(),
        reason: format!("give one of {}", known()),
    })
}

/// A mounted home. Dropping it unmounts.
#[derive(Debug)]
pub struct MountedHome {
    mounted: Option<Mounted>,
    stats: AttachedHome,
}

impl MountedHome {
    /// Attaches `home` and mounts it at its own path.
    ///
    /// # Errors
    /// What the store or the mount says; the home is then what `attach` left.
    pub fn new(home: &Path, wishes: &Wishes, leftovers: &Leftovers) -> Result<MountedHome> {
        let failed = |what: &str, reason: String| Error::Target {
            what: what.into(),
            database: home.into(),
            reason,
        };
        let mut spec = TierSpec::new("fast", &wishes.member, wishes.medium, wishes.bytes);
        spec.holds_redo = !wishes.holds_nothing;
        spec.holds_data = !wishes.holds_nothing;
        let mut options = Options {
            profile: Some(wishes.profile.clone()),
            lent_rest: Options::LENT_REST,
            ..Options::default()
        };
        if let Some(name) = &wishes.home_model {
            options.home_model = Some(home_model(name)?);
        }
        let attached = tiersmith_store::attach(home, &[spec], options)
            .map_err(|e| failed("attaching", e.to_string()))?;
        leftovers.note_mount(home);
        // As `tiersmith attach` would. A home whose tier holds nothing stands for the plain one,
        // which syncs when it is asked to.
        let (sync_on_write, _) = tiersmith_mount::sync_on_write_for(wishes.profile.name());
        let asked = tiersmith_mount::Options {
            sync_on_write: sync_on_write && !wishes.holds_nothing && !wishes.medium.is_on_disk(),
            sync_in_redo_only: true,
            atomic_pages: wishes.atomic_pages,
            xattrs_if_any: tiersmith_mount::xattrs_if_any_for(wishes.profile.name()),
            ..tiersmith_mount::Options::default()
        };
        let mounted = tiersmith_mount::mount(attached.clone(), home, &asked)
            .map_err(|e| failed("mounting", e.to_string()))?;
        Ok(MountedHome { mounted: Some(mounted), stats: attached })
    }

    /// What the store counts.
    pub fn stats(&self) -> Stats {
        self.stats.stats()
    }

    /// What the mount turned out to be, in a sentence.
    pub fn remark(&self) -> Option<String> {
        let report = self.mounted.as_ref()?.report();
        let because = |reason: &Option<String>| {
            reason.as_ref().map_or_else(String::new, |why| format!(" ({why})"))
        };
        Some(format!(
            "The mount's transport was {}{}, files of class pass {} through the kernel alone{}, {} \
             threads; fsync {} the mount's process.",
            report.transport,
            because(&report.transport_because),
            if report.passthrough { "went" } else { "did not go" },
            because(&report.passthrough_because),
            report.threads,
            if report.fsync_reaches_server { "reached" } else { "did not reach" },
        ))
    }

    /// Unmounts. The home stays attached.
    ///
    /// # Errors
    /// Somebody uses it still; it is unmounted lazily then.
    pub fn unmount(mut self) -> Result<()> {
        let Some(mounted) = self.mounted.take() else { return Ok(()) };
        let at = mounted.at().to_path_buf();
        mounted.unmount().map(drop).map_err(|(_, e)| Error::Target {
            what: "unmounting".into(),
            database: at,
            reason: e.to_string(),
        })
    }
}
