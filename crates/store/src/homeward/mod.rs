//! Changing a home file: what is said in the tier before, and what is remembered of home
//! afterwards.
//!
//! Before home is touched its file's state line says so, and since when
//! ([`Homeward::begin_change`]): a home that differs after a crash is ours then and not somebody
//! else's. When home is in step its size and times are taken down ([`Homeward::fingerprint`]); who
//! changes home behind our back shows by them. [`times`] is what programs see meanwhile;
//! [`through`] is for a home that is written past its tier.
//!
//! **Invariant**: a change of home is announced, durably, with the time home will get, before home
//! is touched.

mod through;
pub(crate) mod times;

use crate::environment::Environment;
use crate::error::Result;
use crate::format::slot::{DESTAGING, TRUNCATING, encode_time};
use crate::home::FileTime;
use crate::known::{FileState, Meta, Placed};
use crate::ledger::Ledger;
use crate::planted::Planted;
use std::sync::Arc;

/// How long changes of home may share what the state line says of them. Much less than recovery
/// gives them.
pub(super) const RENEW_AFTER_NS: u64 = 10_000_000_000;

/// Whether what was said of changes of home then covers one that begins now. Not when the clock was
/// set back meanwhile: home would get a time from before.
pub(crate) fn still_holds(said_ns: u64, now: u64) -> bool {
    (said_ns..said_ns.saturating_add(RENEW_AFTER_NS)).contains(&now)
}

/// Announces changes of home files, and remembers their fingerprints.
pub(crate) struct Homeward {
    pub(crate) env: Arc<Environment>,
}

impl Homeward {
    /// Before every change of the home file: the state line says that it is ours, durable on
    /// return. Returns the modification time to give home.
    ///
    /// The line knows one change. An earlier one that it knows of is made durable and stamped
    /// first, unless it began just now and gives home the same time: its own time at home must stay
    /// one that recovery takes for ours.
    pub(crate) fn begin_change(
        &self,
        file: &FileState,
        placed: &Placed,
        flag: u64,
    ) -> Result<FileTime> {
        self.begin_change_to(file, placed, flag, None)
    }

    /// Before a change that leaves home the time at which it happens, as reserving space does.
    /// Recovery takes any such time for ours for a while, so one line covers all that begin soon
    /// after it, whatever times programs see meanwhile: none of them goes home.
    pub(crate) fn begin_change_now(&self, file: &FileState, placed: &Placed) -> Result<()> {
        let is_said = {
            let line = &placed.meta.lock().line;
            line.flags & DESTAGING != 0 && still_holds(line.since_ns, self.env.home.now_ns())
        };
        if !is_said {
            return self.begin_change(file, placed, DESTAGING).map(drop);
        }
        file.home.widen_own();
        self.times_before_change(file, placed)?;
        self.word_is_kept(&placed.tier)
    }

    /// The same as [`Homeward::begin_change`], with a new size of the file in the same line.
    pub(crate) fn begin_change_to(
        &self,
        file: &FileState,
        placed: &Placed,
        flag: u64,
        size: Option<u64>,
    ) -> Result<FileTime> {
        file.home.widen_own();
        let mtime = self.times_before_change(file, placed)?;
        let mut meta = placed.meta.lock();
        let now = self.env.home.now_ns();
        let word = encode_time(mtime);
        let under_way = meta.line.flags & (DESTAGING | TRUNCATING) != 0;
        let goes_on = under_way && meta.line.mtime == word && still_holds(meta.line.since_ns, now);
        if goes_on && meta.line.flags & flag != 0 && size.is_none() {
            if placed.tier.has_log {
                // What goes home now may be half of a batch that nobody has synced.
                placed.tier.fence();
            }
            return self.word_is_kept(&placed.tier).map(|()| mtime);
        }
        if under_way && !goes_on {
            file.home.sync().map_err(file.io("cannot sync"))?;
            self.fingerprint(file, placed, &mut meta)?;
            self.times_before_change(file, placed)?;
        }
        meta.line.flags |= flag;
        meta.line.mtime = word;
        if !goes_on {
            // Not `now`: the sync above may have taken minutes.
            meta.line.since_ns = self.env.home.now_ns();
        }
        if let Some(size) = size {
            meta.line.size = size;
        }
        if !placed.tier.planted.is(Planted::ChangeUnsaid) {
            placed.persist_line(&mut meta);
        }
        self.word_is_kept(&placed.tier)?;
        Ok(mtime)
    }

    /// Home is not touched on the word of a medium that did not take it down; but for one that is
    /// given up then.
    pub(crate) fn word_is_kept(&self, tier: &Ledger) -> Result<()> {
        match tier.sound() {
            Err(e) if tier.is_ephemeral() => self.give_up(tier, &e),
            other => other,
        }
    }

    /// Takes down what home looks like now that it is in step. Durable on return.
    pub(crate) fn fingerprint(
        &self,
        file: &FileState,
        placed: &Placed,
        meta: &mut Meta,
    ) -> Result<()> {
        let stat = self.times_after_change(file, placed, &mut meta.line)?;
        meta.line.flags &= !DESTAGING;
        meta.line.home_size = stat.size;
        meta.line.home_mtime_ns = stat.mtime_ns;
        meta.line.since_ns = 0;
        placed.persist_line(meta);
        Ok(())
    }
}
