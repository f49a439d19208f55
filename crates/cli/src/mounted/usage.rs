//! What a mounted home's cache did since the mount began, for `status`: by class and by file, with
//! why blocks that were read from home are not in the tier.
//!
//! Oracle's names where the meaning is the same: inserts, skips, evictions that aged out or were
//! invalidated, physical reads optimized.
//!
//! **Deliberately absent**: rates of the last minute; the workload repository has those.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tiersmith_store::{FileClass, FileInTier, FileUse, Skip, Stats, WhatIf};

use super::size;

/// Files that are listed by name, with `--json` and for people.
const FILES_MOST: usize = 100;
const FILES_SHOWN: usize = 10;
/// Characters of a path that a line has room for.
const PATH_SHOWN: usize = 34;
const DAY_S: u64 = 86_400;

/// What became of the reads of a class or of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveUse {
    /// The class, or the file's path inside the home.
    pub(crate) of: String,
    /// Blocks read from the tier, and from home. Hits are absent where nobody counts them.
    pub(crate) hits: Option<u64>,
    pub(crate) misses: u64,
    /// Of both, those from the tier; absent before the first.
    pub(crate) hit_ratio: Option<f64>,
    /// Blocks of home that became clean copies.
    pub(crate) inserts: u64,
    /// Blocks that missed and did not, by the reason.
    pub(crate) skips: BTreeMap<String, u64>,
    /// Clean copies that made room.
    pub(crate) aged_out: u64,
    /// Clean copies that were no longer what home has.
    pub(crate) invalidated: u64,
    /// Written to the tier; absent where nobody counts it.
    pub(crate) bytes_written: Option<u64>,
    /// The same for a day, at the mean rate since the mount began; absent in the first second.
    pub(crate) bytes_written_a_day: Option<u64>,
}

/// Classes and files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveUsage {
    /// Redo and data.
    pub(crate) classes: Vec<LiveUse>,
    /// The files that were read and written most, those first.
    pub(crate) files: Vec<LiveUse>,
    /// Files that were used and are not listed.
    pub(crate) files_not_listed: u64,
}

/// What a tier would do at another size, since the mount began: modelled, of a sample of blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveWhatIf {
    /// One of so many blocks is followed.
    pub(crate) one_in: u64,
    /// Reads that were followed.
    pub(crate) reads: u64,
    /// Requests that were not followed, because another was.
    pub(crate) passed_over: u64,
    /// For how long: since the mount, or since the tier grew.
    #[serde(default)]
    pub(crate) counted_s: u64,
    /// For a quarter, half, once, twice and four times the tier.
    pub(crate) points: Vec<LivePoint>,
}

/// A point of the curves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LivePoint {
    pub(crate) bytes: u64,
    /// Absent before reads enough were followed.
    pub(crate) hit_ratio: Option<f64>,
    /// How far that may be off, since a sample is followed.
    #[serde(default)]
    pub(crate) hit_ratio_off: Option<f64>,
    pub(crate) bytes_written: u64,
    pub(crate) bytes_written_a_day: Option<u64>,
}

impl LiveWhatIf {
    pub(super) fn of(found: &WhatIf) -> LiveWhatIf {
        let counted_s = found.counted.as_secs();
        let a_day = |bytes: f64| (bytes * DAY_S as f64 / counted_s as f64) as u64;
        let point = |point: &tiersmith_store::WhatIfPoint| LivePoint {
            bytes: point.bytes,
            hit_ratio: point.hit_ratio,
            hit_ratio_off: point.hit_ratio_off,
            bytes_written: point.bytes_written as u64,
            bytes_written_a_day: (counted_s > 0).then(|| a_day(point.bytes_written)),
        };
        LiveWhatIf {
            one_in: found.one_in,
            reads: found.reads,
            passed_over: found.passed_over,
            counted_s,
            points: found.points.iter().map(point).collect(),
        }
    }

    /// For people: a table, and of how many reads it is.
    pub(super) fn text(&self, tier: &str) -> String {
        if self.reads < WhatIf::READS_LEAST {
            return format!(
                "\n  what if tier {tier} had another size: not known yet: {} of the {} reads it \
                 needs were followed (one block in {} is)\n",
                self.reads,
                WhatIf::READS_LEAST,
                self.one_in
            );
        }
        let mut out = format!(
            "\n  {:<PATH_SHOWN$} {:>11} {:>6} {:>5} {:>10} {:>10}\n",
            format!("what if tier {tier} had"),
            "",
            "hit %",
            "+-",
            "written",
            "a day"
        );
        for (point, name) in self.points.iter().zip(["1/4", "1/2", "its size", "2 x", "4 x"]) {
            let ratio = point.hit_ratio.map_or("-".into(), |r| format!("{:.1}", 100.0 * r));
            let a_day = point.bytes_written_a_day.map_or("-".to_owned(), size);
            let off = point.hit_ratio_off.map_or("-".into(), |r| format!("{:.1}", 100.0 * r));
            out.push_str(&format!(
                "  {name:<PATH_SHOWN$} {:>11} {ratio:>6} {off:>5} {:>10} {a_day:>10}\n",
                size(point.bytes),
                size(point.bytes_written)
            ));
        }
        out.push_str(&format!(
            "  modelled for {} s: {} reads, of one block in {}; +- is three standard errors\n",
            self.counted_s, self.reads, self.one_in
        ));
        out
    }
}

impl LiveUse {
    fn of(of: String, usage: &FileUse, up_s: u64) -> LiveUse {
        let reads = usage.hits + usage.misses;
        let counted = !usage.uncounted;
        let a_day = u128::from(usage.bytes_written) * u128::from(DAY_S);
        let skips = Skip::ALL.iter().zip(usage.skips).filter(|(_, blocks)| *blocks > 0);
        LiveUse {
            of,
            hits: counted.then_some(usage.hits),
            misses: usage.misses,
            hit_ratio: (reads > 0 && counted).then(|| usage.hits as f64 / reads as f64),
            inserts: usage.inserts,
            skips: skips.map(|(skip, blocks)| (skip.name().to_owned(), blocks)).collect(),
            aged_out: usage.aged_out,
            invalidated: usage.invalidated,
            bytes_written: counted.then_some(usage.bytes_written),
            bytes_written_a_day: (up_s > 0 && counted)
                .then(|| u64::try_from(a_day / u128::from(up_s)).unwrap_or(u64::MAX)),
        }
    }

    /// What puts a file at the top of the list.
    fn work(usage: &FileUse, block: u64) -> u64 {
        usage.hits + usage.misses + usage.bytes_written / block
    }

    fn line(&self) -> String {
        let ratio = self.hit_ratio.map_or("-".to_owned(), |ratio| format!("{:.1}", 100.0 * ratio));
        let a_day = self.bytes_written_a_day.map_or("-".to_owned(), size);
        format!(
            "  {:<PATH_SHOWN$} {:>11} {:>11} {ratio:>6} {:>11} {:>11} {:>11} {:>10} {a_day:>10}\n",
            end_of(&self.of),
            self.hits.map_or("-".to_owned(), |hits| hits.to_string()),
            self.misses,
            self.inserts,
            self.aged_out,
            self.invalidated,
            self.bytes_written.map_or("-".to_owned(), size),
        )
    }
}

/// As much of a path's end as a line has room for.
fn end_of(path: &str) -> String {
    let long = path.chars().count();
    if long <= PATH_SHOWN {
        return path.to_owned();
    }
    "...".chars().chain(path.chars().skip(long + 3 - PATH_SHOWN)).collect()
}

impl LiveUsage {
    pub(super) fn of(mut files: Vec<FileInTier>, stats: &Stats, up_s: u64) -> LiveUsage {
        let of_class = |class: FileClass| LiveUse::of(class.to_string(), &stats.usage(class), up_s);
        let work = |file: &FileInTier| LiveUse::work(&file.usage, file.block_size.bytes() as u64);
        files.retain(|file| work(file) > 0);
        files.sort_by_key(|file| std::cmp::Reverse(work(file)));
        let not_listed = files.len().saturating_sub(FILES_MOST) as u64;
        let of_file =
            |file: &FileInTier| LiveUse::of(file.path.display().to_string(), &file.usage, up_s);
        LiveUsage {
            classes: vec![of_class(FileClass::Redo), of_class(FileClass::Data)],
            files: files.iter().take(FILES_MOST).map(of_file).collect(),
            files_not_listed: not_listed,
        }
    }

    /// For people: a table of the classes, why blocks were not copied, and a table of files.
    pub(super) fn text(&self) -> String {
        let heading = |of: &str| {
            format!(
                "\n  {of:<PATH_SHOWN$} {:>11} {:>11} {:>6} {:>11} {:>11} {:>11} {:>10} {:>10}\n",
                "hits", "misses", "hit %", "inserts", "aged out", "invalidated", "written", "a day"
            )
        };
        let mut out = heading("cache use since the mount, blocks");
        self.classes.iter().for_each(|class| out.push_str(&class.line()));
        let of_all = |skip: &Skip| -> u64 {
            self.classes.iter().filter_map(|class| class.skips.get(skip.name())).sum()
        };
        let skips = Skip::ALL.iter().map(|skip| (skip.name(), of_all(skip)));
        let skips = skips.filter(|(_, blocks)| *blocks > 0);
        let skips: Vec<String> = skips.map(|(name, blocks)| format!("{blocks} {name}")).collect();
        if !skips.is_empty() {
            out.push_str(&format!("  missed and not inserted, why: {}\n", skips.join(", ")));
        }
        if self.files.is_empty() {
            return out;
        }
        out.push_str(&heading("files used most"));
        self.files.iter().take(FILES_SHOWN).for_each(|file| out.push_str(&file.line()));
        let more = self.files.len().saturating_sub(FILES_SHOWN) as u64 + self.files_not_listed;
        if more > 0 {
            out.push_str(&format!("  and {more} more; --json lists the first {FILES_MOST}\n"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_line_up_and_long_paths_keep_their_ends() {
        let mut usage = FileUse::default();
        usage.skips[Skip::Outside as usize] = 3;
        usage.uncounted = true;
        let none = LiveUse::of("redo".into(), &usage, 0);
        assert_eq!((none.hits, none.hit_ratio, none.bytes_written), (None, None, None));
        usage.uncounted = false;
        usage.hits = 12_345_678_901;
        usage.misses = 1;
        usage.skips[Skip::Scan as usize] = 7;
        usage.skips[Skip::Outside as usize] = 5;
        usage.bytes_written = 9 << 40;
        let much = LiveUse::of("data".into(), &usage, 1);
        let long = format!("base/16384/{}ö/16401.12", "d".repeat(60));
        let file = LiveUse::of(long, &usage, 60);
        let usage =
            LiveUsage { classes: vec![none, much], files: vec![file; 12], files_not_listed: 5 };
        let text = usage.text();
        let tables: Vec<&str> = text
            .lines()
            .filter(|line| !line.is_empty() && !line.contains("why:") && !line.contains("and 7"))
            .collect();
        assert_eq!(tables.len(), 2 + 2 + FILES_SHOWN, "{text}");
        let wide = tables[0].chars().count();
        assert!(tables.iter().all(|line| line.chars().count() == wide), "{text}");
        let why = "missed and not inserted, why: 7 scan, 8 file without copies\n";
        assert!(text.contains(why), "the reasons of both classes, in their order: {text}");
        assert!(text.contains(" ...") && text.contains("ö/16401.12 "), "{text}");
        assert!(text.contains("and 7 more"), "{text}");
    }

    #[test]
    fn a_curve_lines_up_once_there_are_reads_enough_for_one() {
        let point = |bytes, hit_ratio| LivePoint {
            bytes,
            hit_ratio: Some(hit_ratio),
            hit_ratio_off: Some(hit_ratio / 2.0),
            bytes_written: bytes,
            bytes_written_a_day: None,
        };
        let points =
            [(1 << 20, 0.01), (2 << 20, 0.1), (4 << 20, 0.2), (8 << 20, 0.3), (1 << 50, 1.0)];
        let mut curve = LiveWhatIf {
            one_in: 64,
            reads: 999,
            passed_over: 0,
            counted_s: 60,
            points: points.map(|(bytes, ratio)| point(bytes, ratio)).to_vec(),
        };
        assert!(
            curve
                .text("fast")
                .contains("not known yet: 999 of the 1000 reads it needs were followed"),
            "{}",
            curve.text("fast")
        );
        curve.reads = 1000;
        let text = curve.text("fast");
        let table: Vec<&str> = text.lines().skip(1).take(6).collect();
        let wide = table[0].chars().count();
        assert!(table.iter().all(|line| line.chars().count() == wide), "{text}");
        assert!(
            text.contains("  100.0 ") && text.contains("1000 reads, of one block in 64"),
            "{text}"
        );
    }

    #[test]
    fn what_is_written_in_a_day_is_the_mean_since_the_mount() {
        let mut usage = FileUse::default();
        usage.bytes_written = 1000;
        let a_day = |up_s| LiveUse::of(String::new(), &usage, up_s).bytes_written_a_day;
        assert_eq!((a_day(0), a_day(100), a_day(2 * DAY_S)), (None, Some(864_000), Some(500)));
        usage.bytes_written = u64::MAX;
        assert_eq!(LiveUse::of(String::new(), &usage, 1).bytes_written_a_day, Some(u64::MAX));
    }
}
