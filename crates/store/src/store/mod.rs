//! A home with its tiers: the rooms, put together, and nothing else.
//!
//! Who opens a door goes from here down: [`Store::names`] opens files, [`Store::io`] reads and
//! changes them, [`Store::mover`] brings blocks home.

mod stats;

use crate::environment::Environment;
use crate::error::Result;
use crate::file::FileIo;
use crate::home::{HomeFiles, HomeStat};
use crate::homeward::Homeward;
use crate::known::files::Files;
use crate::ledger::Ledger;
use crate::lend::Lender;
use crate::mover::Mover;
use crate::names::Namespace;
use crate::profile::Profile;
use crate::stats::RecoveryReport;
use crate::sync::Mutex;
use crate::sync::atomic::AtomicU64;
use std::sync::Arc;

/// What all handles share.
pub(crate) struct Store {
    pub(crate) env: Arc<Environment>,
    pub(crate) homeward: Arc<Homeward>,
    pub(crate) files: Arc<Files>,
    pub(crate) mover: Arc<Mover>,
    pub(crate) io: Arc<FileIo>,
    pub(crate) lender: Arc<Lender>,
    pub(crate) names: Namespace,
    pub(crate) tiers: Vec<Arc<Ledger>>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) recovery: RecoveryReport,
}

/// How often background work looks whether there is something to do.
pub(crate) const STEP_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

impl Store {
    /// Puts the rooms together. `identity` is that of home's directory.
    pub(crate) fn new(
        env: Arc<Environment>,
        tiers: Vec<Arc<Ledger>>,
        profile: Profile,
        home_files: Arc<HomeFiles>,
        identity: &HomeStat,
    ) -> Self {
        let profile = Arc::new(profile);
        let files = Arc::new(Files::default());
        let homeward = Arc::new(Homeward { env: env.clone() });
        let mover = Arc::new(Mover::new(&env, &homeward, &files, &tiers));
        let io = Arc::new(FileIo {
            events: env.events.clone(),
            env: env.clone(),
            homeward: homeward.clone(),
            mover: mover.clone(),
        });
        let lender = Arc::new(Lender {
            env: env.clone(),
            homeward: homeward.clone(),
            files: files.clone(),
            mover: mover.clone(),
            io: io.clone(),
            tiers: tiers.clone(),
            profile: profile.clone(),
            lending: Mutex::default(),
        });
        let names = Namespace {
            events: env.events.clone(),
            env: env.clone(),
            homeward: homeward.clone(),
            files: files.clone(),
            mover: mover.clone(),
            io: io.clone(),
            lender: lender.clone(),
            tiers: tiers.clone(),
            profile: profile.clone(),
            home_files,
            dev: identity.dev,
            owner: identity.uid,
            changing: Mutex::new(()),
            closes: AtomicU64::new(1),
            departed: Mutex::default(),
            unsettled: Mutex::default(),
            settling: Mutex::new(()),
        };
        let recovery = RecoveryReport::default();
        Self { env, homeward, files, mover, io, lender, names, tiers, profile, recovery }
    }

    /// One step of background work; see [`crate::AttachedHome::background_step`].
    pub(crate) fn background_step(&self) -> Result<()> {
        let mut failed = self.names.settle_step().err();
        failed = self.mover.retry_refused().err().or(failed);
        self.mover.admit_waiting();
        failed = self.lender.lending_step().err().or(failed);
        for tier in &self.tiers {
            tier.settle_idle_lanes();
            self.mover.seed_what_if(tier);
            tier.what_if.play_waiting();
            self.mover.keep_budget(tier);
            failed = self.names.keep_slots(tier).err().or(failed);
            failed = self.mover.keep_free(tier).err().or(failed);
            if tier.is_ephemeral() {
                failed = self.homeward.rest_all(&self.files.on(tier)).err().or(failed);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
