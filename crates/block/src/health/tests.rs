//! Disks that are not here, described in a sysfs of our own; the bytes of a SMART log by hand.

use std::os::unix::fs::symlink;

use super::*;

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A link, as sysfs is made of.
fn link(root: &Path, from: &str, to: &str) {
    let from = root.join(from);
    fs::create_dir_all(from.parent().unwrap()).unwrap();
    symlink(root.join(to), from).unwrap();
}

/// The log page of a disk: 41 degrees, 3 % used, 97 % spare of at least 10, 2.048 MB written, five
/// sudden losses of power, seven media errors.
fn page(critical: u8) -> [u8; 512] {
    let mut page = [0; 512];
    page[0] = critical;
    page[1..3].copy_from_slice(&314_u16.to_le_bytes());
    page[3..6].copy_from_slice(&[97, 10, 3]);
    page[32] = 9;
    page[48] = 4;
    page[144] = 5;
    page[160] = 7;
    page
}

#[test]
fn the_log_of_an_nvme_disk_is_read_byte_by_byte() {
    let sysfs = tempfile::tempdir().unwrap();
    write(sysfs.path(), "block/nvme0n1/size", "8\n");
    let disk = Disk::in_sysfs(sysfs.path(), "nvme0n1").unwrap();
    let health = disk.health_by(|name| {
        assert_eq!(name, "nvme0n1");
        SmartLog::of_page(&page(0))
    });
    let expected = Health {
        disk: "nvme0n1".into(),
        temperature_c: Some(41.0),
        used_pct: Some(3),
        spare_pct: Some(97),
        spare_least_pct: Some(10),
        media_errors: Some(7),
        written_bytes: Some(2_048_000),
        unsafe_shutdowns: Some(5),
        ..Health::default()
    };
    assert_eq!(health, expected);
}

#[test]
fn each_bit_of_the_critical_warning_and_a_used_life_are_warnings() {
    let sysfs = tempfile::tempdir().unwrap();
    write(sysfs.path(), "block/nvme0n1/size", "8\n");
    let disk = Disk::in_sysfs(sysfs.path(), "nvme0n1").unwrap();
    let words = ["spare", "temperature", "reliable", "read-only", "backup", "region"];
    for (bit, word) in words.into_iter().enumerate() {
        let health = disk.health_by(|_| SmartLog::of_page(&page(1 << bit)));
        assert_eq!(health.warnings.len(), 1, "{health:?}");
        assert!(health.warnings[0].contains(word), "bit {bit}: {health:?}");
    }
    let mut worn = page(0);
    worn[5] = 99;
    assert!(disk.health_by(|_| SmartLog::of_page(&worn)).warnings.is_empty());
    worn[5] = 100;
    let health = disk.health_by(|_| SmartLog::of_page(&worn));
    assert!(health.warnings[0].contains("100 % of the life"), "{health:?}");
    // What a disk counts beyond 64 bits is not wrapped round to little.
    worn[160..176].fill(0xff);
    worn[48..64].fill(0xff);
    let health = disk.health_by(|_| SmartLog::of_page(&worn));
    assert_eq!((health.media_errors, health.written_bytes), (Some(u64::MAX), Some(u64::MAX)));
}

#[test]
fn a_disk_that_does_not_answer_is_not_called_good() {
    let sysfs = tempfile::tempdir().unwrap();
    write(sysfs.path(), "block/nvme0n1/size", "8\n");
    write(sysfs.path(), "block/nvme0n1/device/hwmon3/temp1_input", "38850\n");
    let disk = Disk::in_sysfs(sysfs.path(), "nvme0n1").unwrap();
    let health = disk.health_by(|_| SmartLog::of_page(&[0; 512]));
    assert!(health.untold.as_ref().unwrap().contains("empty log"), "{health:?}");
    assert_eq!((health.temperature_c, health.spare_pct), (Some(38.85), None));
    // A node that is no NVMe disk refuses the command, and says so.
    let why = nvme::smart_log(Path::new("/dev/null")).unwrap_err();
    assert!(why.contains("/dev/null"), "{why}");
    let why = nvme::smart_log(Path::new("/nowhere/nvme9n9")).unwrap_err();
    assert!(why.contains("cannot open /nowhere/nvme9n9"), "{why}");
}

#[test]
fn other_disks_say_who_knows_their_health() {
    let sysfs = tempfile::tempdir().unwrap();
    write(sysfs.path(), "block/sda/device/hwmon/hwmon1/temp1_input", "29000\n");
    write(sysfs.path(), "block/vda/size", "8\n");
    let never = |_: &str| -> Result<SmartLog, String> { panic!("it is no NVMe disk") };
    let sda = Disk::in_sysfs(sysfs.path(), "sda").unwrap().health_by(never);
    assert!(sda.untold.unwrap().contains("smartctl -a /dev/sda"));
    assert_eq!(sda.temperature_c, Some(29.0));
    let vda = Disk::in_sysfs(sysfs.path(), "vda").unwrap().health_by(never);
    assert!(vda.untold.unwrap().contains("its host"));
    assert!(Disk::in_sysfs(sysfs.path(), "sdz").is_none());
}

#[test]
fn bad_blocks_and_modules_of_persistent_memory_are_warned_of() {
    let sysfs = tempfile::tempdir().unwrap();
    let root = sysfs.path();
    let region = "devices/ndbus0/region0";
    let pmem = format!("{region}/namespace0.0/block/pmem0");
    write(root, &format!("{pmem}/badblocks"), "");
    write(root, &format!("{region}/mapping0"), "nmem0,0,1073741824,0\n");
    write(root, &format!("{region}/mapping1"), "nmem1,0,1073741824,1\n");
    write(root, "devices/ndbus0/nmem0/nfit/flags", "\n");
    write(root, "devices/ndbus0/nmem1/nfit/flags", "smart_notify\n");
    link(root, "block/pmem0", &pmem);
    let health = || Disk::in_sysfs(root, "pmem0").unwrap().health();
    let sound = health();
    assert_eq!((sound.bad_bytes, sound.warnings.len(), sound.untold), (Some(0), 0, None));

    write(root, &format!("{pmem}/badblocks"), "8 1\n4096 16\n");
    write(root, "devices/ndbus0/nmem1/nfit/flags", "not_armed smart_notify flush_fail\n");
    let ill = health();
    assert_eq!(ill.bad_bytes, Some(17 * 512));
    assert_eq!(ill.warnings.len(), 3, "{ill:?}");
    assert!(ill.warnings[0].contains("8704 bytes cannot be read"), "{ill:?}");
    assert!(ill.warnings[1].contains("nmem1") && ill.warnings[1].contains("not_armed"), "{ill:?}");
    assert!(ill.warnings[2].contains("flush_fail"), "{ill:?}");

    // An empty line is no list: that of a disk whose driver keeps none.
    for odd in ["\n", "8\n", "x 1\n"] {
        write(root, &format!("{pmem}/badblocks"), odd);
        let odd = health();
        assert!(odd.bad_bytes.is_none() && odd.untold.is_some(), "{odd:?}");
    }
}

/// The kernel shows a page, and what does not fit is cut off.
#[test]
fn a_list_of_bad_blocks_that_is_cut_is_a_warning_whatever_it_says() {
    let sysfs = tempfile::tempdir().unwrap();
    let root = sysfs.path();
    let many: String = (0..500).map(|n| format!("{} 8\n", 1_000_000 + n * 64)).collect();
    let page = 4095;
    for cut in [4000, page - 2, page - 1, page] {
        write(root, "block/pmem0/badblocks", &many[..cut]);
        let health = Disk::in_sysfs(root, "pmem0").unwrap().health();
        let bytes = many[..cut].matches(" 8\n").count() as u64 * 8 * 512;
        assert_eq!(health.bad_bytes, Some(bytes), "{cut}");
        // Nor is it known how its modules are.
        assert!(health.untold.as_ref().unwrap().contains("modules"), "{health:?}");
        assert!(health.warnings[0].contains(&format!("at least {bytes} bytes")), "{health:?}");
    }
    write(root, "block/pmem0/badblocks", "1 18446744073709551615\n2 1\n");
    let health = Disk::in_sysfs(root, "pmem0").unwrap().health();
    assert_eq!(health.bad_bytes, Some(u64::MAX));
}

/// What asks a controller that is being reset waits as long as it does.
#[test]
fn a_disk_is_asked_only_if_one_of_its_controllers_works() {
    let sysfs = tempfile::tempdir().unwrap();
    let root = sysfs.path();
    write(root, "devices/subsystem0/nvme0n1/size", "8\n");
    for way in ["nvme0", "nvme1"] {
        write(root, &format!("devices/pci/{way}/state"), "live\n");
        write(root, &format!("devices/pci/{way}/subsystem"), "");
        link(root, &format!("devices/subsystem0/{way}"), &format!("devices/pci/{way}"));
    }
    link(root, "devices/subsystem0/nvme0n1/device", "devices/subsystem0");
    link(root, "block/nvme0n1", "devices/subsystem0/nvme0n1");
    write(root, "block/nvme9n1/device/size", "8\n");
    write(root, "devices/pci/nvme9/state", "resetting\n");
    link(root, "block/nvme8n1/device", "devices/pci/nvme9");
    let asked = |name: &str| {
        let mut asked = false;
        let health = Disk::in_sysfs(root, name).unwrap().health_by(|_| {
            asked = true;
            SmartLog::of_page(&page(0))
        });
        (asked, health.untold)
    };
    assert_eq!(asked("nvme0n1"), (true, None));
    write(root, "devices/pci/nvme0/state", "connecting\n");
    assert_eq!(asked("nvme0n1"), (true, None));
    write(root, "devices/pci/nvme1/state", "dead\n");
    assert!(!asked("nvme0n1").0);
    // A kernel that does not say.
    assert!(asked("nvme9n1").0);
    let (asked, why) = asked("nvme8n1");
    assert!(!asked && why.unwrap().contains("nvme9 is not asked: it is `resetting`"));
}

#[test]
fn the_disks_of_volumes_and_partitions_are_found_each_once() {
    let sysfs = tempfile::tempdir().unwrap();
    let root = sysfs.path();
    write(root, "devices/nvme0n1/size", "8\n");
    write(root, "devices/nvme0n1/nvme0n1p1/partition", "1\n");
    write(root, "devices/nvme0n1/nvme0n1p2/partition", "2\n");
    write(root, "devices/nvme1n1/device/model", "Fast One  \n");
    write(root, "devices/dm-0/dm/name", "volume\n");
    link(root, "devices/dm-0/slaves/nvme0n1p1", "devices/nvme0n1/nvme0n1p1");
    link(root, "devices/dm-0/slaves/nvme0n1p2", "devices/nvme0n1/nvme0n1p2");
    link(root, "devices/dm-0/slaves/nvme1n1", "devices/nvme1n1");
    link(root, "dev/block/253:0", "devices/dm-0");
    let disks = Disk::below_number(root, 253, 0);
    assert_eq!(disks.iter().map(Disk::name).collect::<Vec<_>>(), ["nvme0n1", "nvme1n1"]);
    assert_eq!(disks[1].model().as_deref(), Some("Fast One"));
    // By its name, too, a volume is no disk.
    link(root, "block/dm-0", "devices/dm-0");
    link(root, "block/nvme1n1", "devices/nvme1n1");
    assert_eq!(Disk::in_sysfs(root, "dm-0"), None);
    assert_eq!(Disk::in_sysfs(root, "nvme1n1").as_ref(), Some(&disks[1]));
    // A circle, which no sysfs has, ends.
    link(root, "devices/dm-1/slaves/dm-1", "devices/dm-1");
    link(root, "dev/block/253:1", "devices/dm-1");
    assert!(Disk::below_number(root, 253, 1).is_empty());
    assert!(Disk::below_number(root, 253, 2).is_empty());
    assert!(Disk::below(Path::new("/proc/self")).is_empty());
}
