//! The health of disks, for people: of those that `probe` finds, and of those below a tier.
//!
//! **Invariant**: a disk that says nothing is not called good.
//! **Deliberately absent**: asking a disk, which is `tiersmith_block`'s.

use std::path::PathBuf;

use tiersmith_awr::{Cell, Table, figure};
use tiersmith_block::{Disk, Health};

/// Of each disk below the members of a tier, once. A member that is not there has none: what is
/// below its folder may be another disk.
pub(crate) fn below(members: &[PathBuf]) -> Vec<Health> {
    let mut disks: Vec<Disk> = Vec::new();
    for disk in members.iter().filter(|member| member.exists()).flat_map(|path| Disk::below(path)) {
        if !disks.contains(&disk) {
            disks.push(disk);
        }
    }
    disks.iter().map(Disk::health).collect()
}

/// Whether none of them has something to mend.
pub(crate) fn is_well(all: &[Health]) -> bool {
    all.iter().all(|health| health.warnings.is_empty())
}

/// A line for each disk, and one for each thing to mend.
pub(crate) fn lines(all: &[Health]) -> String {
    let mut out = String::new();
    for health in all {
        out.push_str(&format!("  disk {}: {}\n", health.disk, said(health)));
    }
    for health in all {
        for warning in &health.warnings {
            out.push_str(&format!("  TO MEND: disk {}: {warning}\n", health.disk));
        }
    }
    out
}

/// What a disk says, in one line.
fn said(health: &Health) -> String {
    let mut said = Vec::new();
    if let Some(degrees) = health.temperature_c {
        said.push(format!("{degrees:.0} C"));
    }
    if let Some(used) = health.used_pct {
        said.push(format!("{used} % of its life used"));
    }
    if let (Some(left), Some(least)) = (health.spare_pct, health.spare_least_pct) {
        said.push(format!("{left} % of its spare blocks left (at least {least} %)"));
    }
    if let Some(errors) = health.media_errors {
        said.push(format!("{errors} media errors"));
    }
    if let Some(bytes) = health.written_bytes {
        said.push(format!("{} written", figure::bytes(bytes as f64)));
    }
    if let Some(bytes) = health.bad_bytes {
        said.push(format!("{bytes} bytes cannot be read"));
    }
    if let Some(why) = &health.untold {
        said.push(format!("its health is not known: {why}"));
    }
    said.join(", ")
}

/// A row for each disk; below it why one does not say more, and what is to mend.
pub(crate) fn table(all: &[Health]) -> Table {
    let mut table = Table::new("Health of disks")
        .text("Name", "As the kernel calls it.")
        .text("State", "Whether the disk or the kernel warns of something.")
        .figures("Celsius", "", "Its temperature.")
        .figures("Used %", "", "Of the life that its maker expects.")
        .figures("Spare %", "", "Of its spare blocks, how many are left.")
        .figures("Media errors", "", "Reads and writes that failed for its medium, ever.")
        .figures("Written", "", "Bytes that were written to it, ever.")
        .figures("Unreadable", "", "Bytes of which the kernel knows that they cannot be read.");
    for health in all {
        let state = match (health.warnings.is_empty(), &health.untold) {
            (false, _) => "TO MEND",
            (true, Some(_)) => "not known",
            (true, None) => "good",
        };
        table.row(vec![
            Cell::text(&health.disk),
            Cell::text(state),
            Cell::text(
                health.temperature_c.map_or(String::new(), |degrees| format!("{degrees:.0}")),
            ),
            Cell::count(health.used_pct.map(u64::from)),
            Cell::count(health.spare_pct.map(u64::from)),
            Cell::count(health.media_errors),
            health.written_bytes.map_or(Cell::text(""), |bytes| Cell::bytes(bytes as f64)),
            health.bad_bytes.map_or(Cell::text(""), |bytes| Cell::bytes(bytes as f64)),
        ]);
        let (disk, warnings) = (&health.disk, health.warnings.iter());
        for warning in warnings {
            table.note(format!("TO MEND: {disk}: {warning}"));
        }
        if let Some(why) = &health.untold {
            table.note(format!("{disk}: {why}"));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worn() -> Health {
        Health {
            disk: "nvme0n1".into(),
            warnings: vec!["replace it".into()],
            temperature_c: Some(41.4),
            used_pct: Some(103),
            spare_pct: Some(9),
            spare_least_pct: Some(10),
            media_errors: Some(7),
            written_bytes: Some(3 << 40),
            ..Health::default()
        }
    }

    #[test]
    fn what_a_disk_says_is_one_line_and_what_to_mend_another() {
        let virtual_disk = Health {
            disk: "vda".into(),
            untold: Some("only its host knows".into()),
            ..Health::default()
        };
        assert!(is_well(std::slice::from_ref(&virtual_disk)));
        let all = [worn(), virtual_disk];
        assert!(!is_well(&all));
        assert_eq!(
            lines(&all),
            "  disk nvme0n1: 41 C, 103 % of its life used, 9 % of its spare blocks left (at \
             least 10 %), 7 media errors, 3.0 TiB written\n  \
             disk vda: its health is not known: only its host knows\n  \
             TO MEND: disk nvme0n1: replace it\n"
        );
    }

    #[test]
    fn the_table_calls_only_a_disk_good_that_says_so() {
        let mut text = String::new();
        let good = Health { warnings: Vec::new(), used_pct: Some(3), ..worn() };
        let mute = Health { disk: "vda".into(), untold: Some("who".into()), ..Health::default() };
        tiersmith_awr::write_table(&mut text, &table(&[worn(), good, mute]));
        let states: Vec<&str> = ["TO MEND", "good", "not known"]
            .into_iter()
            .filter(|state| text.contains(state))
            .collect();
        assert_eq!(states.len(), 3, "{text}");
        assert!(text.contains("TO MEND: nvme0n1: replace it") && text.contains("vda: who"));
    }

    #[test]
    fn a_member_that_is_not_there_has_no_disk() {
        assert!(
            below(&[PathBuf::from("/nowhere/tier"), PathBuf::from("/tmp/no-such-tier")]).is_empty()
        );
    }
}
