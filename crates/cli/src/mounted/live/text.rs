//! A look at a mounted home, for people.
//!
//! **Deliberately absent**: what is to be mended (`trouble.rs`), and how often blocks are hit, by
//! class and file (`usage.rs`).

use tiersmith_store::Durability;

use super::{Live, LiveBudget, LiveTier, size};

impl Live {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        self.write_attachment(&mut out);
        self.write_lent(&mut out);
        for tier in &self.tiers {
            tier.write(&mut out);
        }
        self.write_classes(&mut out);
        self.write_reads(&mut out);
        self.write_lag(&mut out);
        self.write_checking(&mut out);
        self.write_waits(&mut out);
        self.write_remarks(&mut out);
        out
    }

    /// What is attached where, and how requests arrive.
    fn write_attachment(&self, out: &mut String) {
        out.push_str(&format!(
            "{}: attached, mounted at {} by process {}",
            self.home.display(),
            self.at.display(),
            self.pid
        ));
        out.push_str(&format!(" for {} s, profile {}\n", self.up_s, self.profile));
        if self.emulated {
            out.push_str(
                "  EMULATED: the tier stands for persistent memory; no figure here is one \
                          of persistent memory\n",
            );
        }
        if let Some(model) = &self.home_model {
            out.push_str(&format!(
                "  MODELLED: home is delayed as {model} would be; for studies only\n"
            ));
        }
        for rule in &self.cache {
            out.push_str(&format!("  cache:     {rule}\n"));
        }
        for line in self.door.lines() {
            out.push_str(&format!("  {line}\n"));
        }
        if let Some(asked) = self.door.asked() {
            out.push_str(&format!("  asked:     {asked}\n"));
        }
        out.push_str(&format!("  confined:  {}\n", self.confined));
    }

    /// Redo files that the kernel writes itself.
    fn write_lent(&self, out: &mut String) {
        if !self.door.lends && self.lent.files == 0 {
            return;
        }
        let (used, most) = (size(self.lent.bytes), size(self.lent.max_bytes));
        let why = self
            .lent
            .refused
            .as_ref()
            .map(|why| format!("; one was not: {why}"))
            .unwrap_or_default();
        out.push_str(&format!(
            "  lent:      {} files, {used} of {most} at most{why}\n",
            self.lent.files
        ));
        for directory in &self.lent.directories {
            out.push_str(&format!(
                "             in {}: it belongs to the tier, move or copy both\n",
                directory.display()
            ));
        }
    }

    fn write_classes(&self, out: &mut String) {
        out.push_str(&format!(
            "\n  {:<6} {:>7} {:>7} {:>10} {:>10} {:>10}\n",
            "class", "files", "pinned", "size", "dirty", "cached"
        ));
        for class in &self.classes {
            out.push_str(&format!(
                "  {:<6} {:>7} {:>7} {:>10} {:>10} {:>10}\n",
                class.class,
                class.files,
                class.pinned_files,
                size(class.file_bytes),
                size(class.dirty_bytes),
                size(class.cached_bytes)
            ));
        }
    }

    /// How often blocks were read from the tier, and what other sizes of it would do.
    fn write_reads(&self, out: &mut String) {
        let ratio = self
            .hit_ratio
            .map_or("no block was read yet".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio));
        out.push_str(&format!(
            "\n  hit ratio of block reads: {ratio} ({} from the tier, {} from home)\n",
            self.hits, self.misses
        ));
        out.push_str(&self.usage.text());
        for tier in &self.tiers {
            out.push_str(&tier.what_if.as_ref().map_or(String::new(), |w| w.text(&tier.name)));
            if tier.what_if.is_some() && tier.write_budget.is_some() {
                out.push_str("  modelled without the write budget\n");
            }
        }
    }

    /// How far home is behind.
    fn write_lag(&self, out: &mut String) {
        out.push_str(&format!(
            "\n  drain lag: {} of redo not home yet\n",
            size(self.drain_lag_bytes)
        ));
        match self.dirty_age_s_at_most {
            Some(age) => out.push_str(&format!("  dirty age: at most {age} s\n")),
            None if self.lent.not_home_bytes > 0 => {
                out.push_str(
                    "  dirty age: of lent files not known; of all else home has everything\n",
                );
            }
            None => out.push_str("  dirty age: home has everything\n"),
        }
    }

    /// Checksums, the work that runs, and what was repaired.
    fn write_checking(&self, out: &mut String) {
        out.push_str(
            "  checksums: blocks of data files have them; redo has none, nor have files that the \
             kernel writes\n",
        );
        out.push_str(&format!("  scrub:     {}\n", self.scrub));
        if let Some(moves) = &self.moves {
            out.push_str(&format!("  moving:    {moves}\n"));
        }
        if self.repaired_blocks > 0 {
            out.push_str(&format!(
                "  repaired:  {} clean copies were not what was written or could not be read, and \
                 are read from home; look \
                 after the medium\n",
                self.repaired_blocks
            ));
        }
    }

    fn write_waits(&self, out: &mut String) {
        if self.waits.is_empty() {
            return;
        }
        out.push_str(&format!(
            "\n  {:<44} {:>10} {:>10} {:>10}\n",
            "wait event", "waits", "mean us", "p99 us"
        ));
        for wait in &self.waits {
            out.push_str(&format!(
                "  {:<44} {:>10} {:>10.1} {:>10.1}\n",
                wait.event, wait.waits, wait.mean_us, wait.p99_us
            ));
        }
    }

    /// What was found at attach and since, and what is to be mended.
    fn write_remarks(&self, out: &mut String) {
        out.push_str(&format!("\n  at attach: {}\n", self.recovery));
        for line in self.outside_home.lines() {
            out.push_str(&format!("  note: {line}\n"));
        }
        for trouble in self.trouble_with_files() {
            out.push_str(&format!("  TO MEND: {trouble}\n"));
        }
        let media = self.trouble_with_media();
        for trouble in &media {
            out.push_str(&format!("  TO MEND: {trouble}\n"));
        }
        if let Some(error) = &self.background_error {
            let so = if media.is_empty() { "; nothing is lost, it is tried again" } else { "" };
            out.push_str(&format!("  TO MEND: background work fails: {error}{so}\n"));
        }
    }
}

impl LiveTier {
    fn write(&self, out: &mut String) {
        let label = match self.durability {
            _ if self.emulated => " (EMULATED)",
            Durability::Never => " (clean copies only)",
            Durability::OnReturn | Durability::AtSync => "",
        };
        let first = self.media.first().map_or("", String::as_str);
        out.push_str(&format!("\n  tier {}{label}: {}, {first}\n", self.name, size(self.bytes)));
        let rows = [
            ("newest version here (dirty)", self.dirty_bytes),
            ("clean copies (cached)", self.cached_bytes),
            ("block maps", self.map_bytes),
            ("free", self.free_bytes),
        ];
        for (what, bytes) in rows {
            let share = 100.0 * bytes as f64 / self.usable_bytes.max(1) as f64;
            out.push_str(&format!("    {what:<28} {:>10}  {share:>5.1} %\n", size(bytes)));
        }
        let table = &self.table;
        out.push_str(&format!("    {:<28} {:>10}  of {}\n", "files", table.files, table.fits()));
        out.push_str(&self.write_budget.as_ref().map_or(String::new(), LiveBudget::text));
    }
}
