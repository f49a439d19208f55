//! The last recording in a repository: what a report is of when nobody says which snapshots.
//!
//! A recorder gives every snapshot the name of its sampler, another one for each recording of each
//! source, so the snapshots with the name of the newest one are its recording. Snapshots that no
//! recorder took (one by one, imported, of a study) have none: of those the newest two are taken.
//!
//! Invariant: a report of the last recording covers all of it that is still there, never a
//! remainder.

use crate::{AnyRepository, Result, SnapshotId};

/// The snapshots of one source that one recorder took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// What was recorded.
    pub source: String,
    /// Its first snapshot.
    pub first: SnapshotId,
    /// Its last one; the same as the first if there is no other yet.
    pub last: SnapshotId,
    /// The name that was given to it, if one was.
    pub name: Option<String>,
}

impl AnyRepository {
    /// The recording that the newest snapshot belongs to; nothing in an empty repository.
    ///
    /// # Errors
    /// If the repository cannot be read. A snapshot that is damaged is no error: it is passed over.
    pub fn last_recording(&self) -> Result<Option<Recording>> {
        let entries = self.list()?.entries;
        let Some(newest) = entries.last() else { return Ok(None) };
        let of_source = entries.iter().filter(|entry| entry.source == newest.source);
        let ids: Vec<SnapshotId> = of_source.map(|entry| entry.id).collect();
        let first = match self.sampler_of(newest.id) {
            Some(sampler) => self.first_of(&ids, &sampler),
            None => ids.len().checked_sub(2).and_then(|at| ids.get(at).copied()),
        };
        let (first, last) = (first.unwrap_or(newest.id), newest.id);
        let (baselines, _) = self.baselines_and_gaps()?;
        let name = baselines.into_iter().find(|of| (of.first, of.last) == (first, last));
        Ok(Some(Recording {
            source: newest.source.clone(),
            first,
            last,
            name: name.map(|baseline| baseline.name),
        }))
    }

    fn sampler_of(&self, id: SnapshotId) -> Option<String> {
        self.find(id).ok()?.sampling.map(|sampling| sampling.sampler)
    }

    /// The first snapshot of the recorder that took the last of these. A source has one recorder at
    /// a time, so what it took is together, and a few snapshots tell where that begins: reading all
    /// of them would take seconds in a repository of a month.
    fn first_of(&self, ids: &[SnapshotId], sampler: &str) -> Option<SnapshotId> {
        // What is before `others` is an earlier recorder's; `first` is the earliest of ours that
        // was seen.
        let (mut others, mut end) = (0, ids.len().checked_sub(1)?);
        let mut first = end;
        while others < end {
            let middle = others + (end - others) / 2;
            // Somebody may have taken a snapshot by hand meanwhile: the next one of a recorder
            // tells.
            let found = (middle..end).find_map(|at| Some((at, self.sampler_of(ids[at])?)));
            match found {
                Some((at, name)) if name != sampler => others = at + 1,
                Some((at, _)) => (first, end) = (at, middle),
                None => end = middle,
            }
        }
        ids.get(first).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sampling, Snapshot, Source};

    /// A repository of snapshots of one source, each by the sampler of this name or by nobody's.
    fn repository(dir: &std::path::Path, samplers: &[&str]) -> AnyRepository {
        let repository = AnyRepository::open(dir).expect("a repository");
        for (at, sampler) in (1..).zip(samplers) {
            let source = Source { path: "s".to_owned(), ..Source::default() };
            let mut snapshot = Snapshot::at(source, at, at);
            snapshot.sampling =
                (!sampler.is_empty()).then(|| Sampling::new((*sampler).to_owned(), 1000));
            repository.take(&snapshot).expect("taken");
        }
        repository
    }

    fn ends(samplers: &[&str]) -> (u64, u64) {
        let dir = tempfile::tempdir().expect("a directory");
        let found = repository(dir.path(), samplers).last_recording().expect("read");
        found.map_or((0, 0), |found| (found.first.number(), found.last.number()))
    }

    #[test]
    fn the_last_recording_is_all_that_its_recorder_took_wherever_it_begins() {
        assert_eq!(ends(&[]), (0, 0));
        assert_eq!(ends(&["a"]), (1, 1), "one snapshot so far");
        assert_eq!(ends(&["a", "a", "b"]), (3, 3), "not together with another recording");
        for before in 0..20 {
            for ours in 1..20 {
                let samplers = [vec!["a"; before], vec!["b"; ours]].concat();
                let (first, last) = (before as u64 + 1, (before + ours) as u64);
                assert_eq!(ends(&samplers), (first, last), "{samplers:?}");
            }
        }
    }

    #[test]
    fn snapshots_taken_by_hand_do_not_cut_a_recording() {
        assert_eq!(ends(&["a", "", "b", "", "", "b", "", "b"]), (3, 8));
        assert_eq!(ends(&["", "", "", "b", "", "", "", "b"]), (4, 8));
        assert_eq!(
            ends(&["a", "a", "", ""]),
            (3, 4),
            "the newest two of those by nobody's sampler"
        );
        assert_eq!(ends(&[""]), (1, 1));
    }
}
