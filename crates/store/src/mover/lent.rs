//! Bringing home up to date with a lent file ([`crate::lend`]).

use super::Mover;
use crate::error::Result;
use crate::format::slot::DESTAGING;
use crate::home::FileTime;
use crate::homeward::times::give_mtime;
use crate::known::{FileState, Placed};
use crate::plain::Plain;
use crate::planted::Planted;
use crate::sync::atomic::Ordering;

/// Bytes that are copied at a time, and compared with home's.
const PART_BYTES: usize = 256 << 10;

impl Mover {
    /// Step 1 of giving back; alone it is what destaging is to other files. The caller holds
    /// `moving`. Returns how many bytes home got.
    pub(crate) fn copy_home(
        &self,
        file: &FileState,
        placed: &Placed,
        plain: &Plain,
    ) -> Result<u64> {
        let loan = &placed.loan;
        let changes = loan.changes.load(Ordering::Acquire);
        let quiet = !placed.is_plain_in_use(plain);
        let stat = plain.file.stat().map_err(file.io("cannot stat the lent"))?;
        if placed.end_of(stat.size, 0).is_none() {
            return Err(file.invalid(
                "give back",
                format!("its {} bytes are more than a map can hold", stat.size),
            ));
        }
        placed.times.show(FileTime::from_ns(stat.mtime_ns));
        let mut mtime = self.homeward.begin_change(file, placed, DESTAGING)?;
        let compare = !loan.home_in_doubt.swap(true, Ordering::AcqRel);
        if file.home.stat().map_err(file.io("cannot stat"))?.size != stat.size {
            file.home.set_len(stat.size).map_err(file.io("cannot resize"))?;
        }
        let (mut ours, mut homes) =
            (vec![0; PART_BYTES], vec![0; if compare { PART_BYTES } else { 0 }]);
        let (mut at, mut copied) = (0, 0);
        while at < stat.size {
            let want = (stat.size - at).min(PART_BYTES as u64) as usize;
            let got = plain
                .file
                .read_at(at, &mut ours[..want])
                .map_err(file.io("cannot read the lent"))?;
            // Cut meanwhile: what is not there any more is zero until the next copy.
            ours[got..want].fill(0);
            let same = compare && {
                let found =
                    file.home.read_at(at, &mut homes[..want]).map_err(file.io("cannot read"))?;
                homes[..found] == ours[..want]
            };
            if !same {
                // Said again for each part: of a long copy, on slow or hanging storage, the first
                // word would be too old for the last bytes.
                mtime = self.homeward.begin_change(file, placed, DESTAGING)?;
                file.home.write_at(at, &ours[..want]).map_err(file.io("cannot destage to"))?;
                copied += want as u64;
            }
            at += want as u64;
        }
        give_mtime(file, mtime);
        if !placed.tier.planted.is(Planted::GivenBackBeforeSync) {
            file.home.sync().map_err(file.io("cannot sync"))?;
        }
        self.homeward.fingerprint(file, placed, &mut placed.meta.lock())?;
        loan.home_in_doubt.store(false, Ordering::Release);
        if quiet {
            *loan.at_home.lock() = Some((changes, stat.size));
        }
        Ok(copied)
    }

    /// Brings home up to date with a lent file, which stays lent. Returns how many blocks went.
    pub(crate) fn destage_lent(&self, file: &FileState, placed: &Placed) -> Result<u64> {
        let _moving = placed.moving.lock();
        let Some(plain) = placed.loan.plain().filter(|_| !placed.is_gone()) else { return Ok(0) };
        if placed.loan.is_at_home() {
            return Ok(0);
        }
        Ok(self.copy_home(file, placed, &plain)?.div_ceil(placed.block_size.bytes() as u64))
    }
}
