//! Devices that are described and not there.

#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use std::os::unix::fs::symlink;

/// What a fake loop device is over: numbers in a file.
fn ask_loop(node: &Node) -> Option<LoopFile> {
    let said = text(&node.folder.join("loop/status"))?;
    let mut numbers = said.split(' ').map(|number| number.parse().unwrap());
    let mut next = || numbers.next().unwrap();
    Some(LoopFile { device: next(), inode: next(), rdevice: next(), offset: next() })
}

fn kernel<'a>(sysfs: &'a Path, proc: &'a Path) -> Kernel<'a> {
    Kernel { sysfs, proc, ask_loop, patience: Duration::from_millis(60) }
}

/// One more device of a machine.
fn add(top: &Path, name: &str, number: &str) -> PathBuf {
    let real = top.join("sys/devices").join(name);
    fs::create_dir_all(real.join("slaves")).unwrap();
    fs::write(real.join("dev"), number).unwrap();
    let last = name.rsplit('/').next().unwrap();
    symlink(&real, top.join("sys/dev/block").join(number)).unwrap();
    symlink(&real, top.join("sys/class/block").join(last)).unwrap();
    real
}

fn put(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A machine with a disk `sda` of two partitions, a volume over the second, and a loop device.
fn machine() -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = top.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let devices = "sys/devices";
    for (name, number) in [
        ("sda", "8:0"),
        ("sda/sda1", "8:1"),
        ("sda/sda2", "8:2"),
        ("dm-0", "253:0"),
        ("loop0", "7:0"),
    ] {
        put(&format!("{devices}/{name}/dev"), &format!("{number}\n"));
        put(&format!("{devices}/{name}/size"), "2048\n");
        put(&format!("{devices}/{name}/ro"), "0\n");
        let real = top.path().join(devices).join(name);
        let last = name.rsplit('/').next().unwrap();
        for link in [format!("sys/dev/block/{number}"), format!("sys/class/block/{last}")] {
            let link = top.path().join(link);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(&real, link).unwrap();
        }
    }
    put("sys/devices/sda/device/wwid", "naa.5000 c500\n");
    put("sys/devices/sda/sda1/partition", "1\n");
    put("sys/devices/sda/sda1/uevent", "DEVNAME=sda1\nPARTUUID=aaaa-01\n");
    put("sys/devices/sda/sda2/partition", "2\n");
    put("sys/devices/dm-0/dm/name", "vg-root\n");
    put("sys/devices/dm-0/dm/uuid", "LVM-abc\n");
    fs::create_dir_all(top.path().join("sys/devices/dm-0/slaves")).unwrap();
    symlink(
        top.path().join("sys/devices/sda/sda2"),
        top.path().join("sys/devices/dm-0/slaves/sda2"),
    )
    .unwrap();
    put("proc/self/mountinfo", "");
    put("proc/swaps", "Filename Type Size Used Priority\n");
    top
}

fn node(top: &Path, major: u32, minor: u32) -> Option<String> {
    let (sysfs, proc) = (top.join("sys"), top.join("proc"));
    let kernel = kernel(&sysfs, &proc);
    let node = Node::of(kernel, rustix::fs::makedev(major, minor)).unwrap();
    node.used(kernel, &Loops::ask(kernel))
}

fn doubt(top: &Path, major: u32, minor: u32) -> Option<String> {
    let (sysfs, proc) = (top.join("sys"), top.join("proc"));
    let kernel = kernel(&sysfs, &proc);
    let node = Node::of(kernel, rustix::fs::makedev(major, minor)).unwrap();
    node.doubt(kernel, &Loops::ask(kernel))
}

#[test]
fn what_is_mounted_or_held_is_in_use_with_its_disk_and_its_partitions() {
    let top = machine();
    let used = |major, minor| node(top.path(), major, minor);
    assert_eq!((used(8, 0), used(8, 1), used(253, 0)), (None, None, None));
    let mountinfo = top.path().join("proc/self/mountinfo");
    fs::write(&mountinfo, "22 1 8:1 / /mnt/a\\040b rw - ext4 /dev/sda1 rw\n").unwrap();
    assert_eq!(used(8, 1).unwrap(), "mounted at /mnt/a b");
    assert!(used(8, 0).unwrap().contains("/dev/sda1, which is mounted at"));
    assert_eq!(used(8, 2), None, "partitions beside each other are not of one piece");
    fs::write(&mountinfo, "").unwrap();
    let holders = top.path().join("sys/devices/sda/sda2/holders");
    fs::create_dir(&holders).unwrap();
    symlink(top.path().join("sys/devices/dm-0"), holders.join("dm-0")).unwrap();
    assert_eq!(used(8, 2).unwrap(), "held by dm-0 (vg-root)");
    assert!(used(8, 0).unwrap().contains("held by dm-0"));
}

#[test]
fn a_device_is_told_by_its_serial_or_uuid_and_knows_what_it_is_made_of() {
    let top = machine();
    let (sysfs, proc) = (top.path().join("sys"), top.path().join("proc"));
    let kernel = kernel(&sysfs, &proc);
    let node = |major, minor| Node::of(kernel, rustix::fs::makedev(major, minor)).unwrap();
    assert_eq!(node(8, 0).ids(), ["naa.5000_c500"]);
    assert_eq!(node(8, 1).ids(), ["aaaa-01"]);
    assert_eq!(node(253, 0).ids(), ["LVM-abc"]);
    assert_eq!(node(7, 0).ids(), [""; 0]);
    assert_eq!(node(8, 0).bytes(), 1 << 20);
    assert_eq!(Node::all(kernel).len(), 5);
    let below: Vec<String> = node(253, 0).below(kernel).iter().map(Node::name).collect();
    assert_eq!(below, ["sda2", "sda"]);
    assert_eq!(node(8, 0).not_kept(kernel), None);
}

#[test]
fn what_two_devices_have_names_neither_and_the_serial_number_of_nvme_names_no_disk() {
    let top = machine();
    let (sysfs, proc) = (top.path().join("sys"), top.path().join("proc"));
    let kernel = kernel(&sysfs, &proc);
    let of = |minor| Node::of(kernel, rustix::fs::makedev(259, minor)).unwrap();
    for n in 1..=2 {
        let disk = add(top.path(), &format!("nvme0n{n}"), &format!("259:{n}"));
        put(&disk, "device/serial", "CONTROLLER\n");
        if n == 1 {
            put(&disk, "wwid", "eui.1\n");
        }
    }
    assert_eq!(of(1).ids_of_its_own(kernel), (vec!["eui.1".into()], vec![]));
    assert_eq!(of(2).ids_of_its_own(kernel), (vec![], vec![]), "the controller's");
    for n in 3..=4 {
        let disk = add(top.path(), &format!("vd{n}"), &format!("259:{n}"));
        put(&disk, "serial", "CLONED\n");
    }
    assert_eq!(of(3).ids_of_its_own(kernel), (vec![], vec![of(4)]));
    assert_eq!(of(4).ids_of_its_own(kernel), (vec![], vec![of(3)]));
}

#[test]
fn a_disk_that_is_in_use_by_its_other_name_is_in_doubt_and_a_wwn_alone_is_no_other_name() {
    let top = machine();
    let other = add(top.path(), "sdb", "8:16");
    put(&other, "device/wwid", "naa.5000 c500\n");
    put(&other, "size", "2048\n");
    assert_eq!(doubt(top.path(), 8, 0), None);
    let mountinfo = top.path().join("proc/self/mountinfo");
    fs::write(mountinfo, "22 1 8:16 / /mnt rw - ext4 /dev/sdb rw\n").unwrap();
    for minor in [0, 1] {
        let by = doubt(top.path(), 8, minor).unwrap();
        assert!(by.contains("the same disk as /dev/sdb"), "{by}");
        assert_eq!(node(top.path(), 8, minor), None, "a tier that is proved ours is locked out");
    }
    // A maker that gives all its disks one WWN.
    put(&other, "size", "4096\n");
    assert_eq!(doubt(top.path(), 8, 0), None);
}

#[test]
fn a_loop_device_says_itself_what_it_is_over_and_if_it_does_not_nothing_is_taken() {
    let top = machine();
    let over = top.path().join("sys/devices/loop0");
    put(&over, "loop/backing_file", "/somewhere/else\n");
    assert!(doubt(top.path(), 8, 0).unwrap().contains("cannot be asked"));
    assert_eq!(node(top.path(), 8, 0), None);
    put(&over, "loop/status", "5 6 0 0");
    assert_eq!((node(top.path(), 8, 0), doubt(top.path(), 8, 0)), (None, None));
    let number = rustix::fs::makedev(8, 1);
    put(&over, "loop/status", &format!("5 6 {number} 0"));
    assert_eq!(node(top.path(), 8, 1).unwrap(), "held by loop0");
    assert!(node(top.path(), 8, 0).unwrap().contains("held by loop0"));
}

#[test]
fn a_loop_device_that_goes_while_it_is_asked_and_one_on_a_server_are_over_nothing() {
    let top = machine();
    let over = top.path().join("sys/devices/loop0");
    put(&over, "loop/backing_file", "/srv/image\n");
    let gone = over.join("loop");
    let going = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        fs::remove_dir_all(gone).unwrap();
    });
    assert_eq!(doubt(top.path(), 8, 0), None);
    going.join().unwrap();
    put(&over, "loop/backing_file", "/srv/image\n");
    assert!(doubt(top.path(), 8, 0).is_some());
    let mountinfo = top.path().join("proc/self/mountinfo");
    fs::write(mountinfo, "22 1 0:50 / /srv rw - nfs4 host:/srv rw\n").unwrap();
    assert_eq!(doubt(top.path(), 8, 0), None, "a server would be asked");
}

#[test]
fn what_uses_the_device_below_a_loop_device_uses_that_too() {
    let top = machine();
    let over = top.path().join("sys/devices/loop0");
    put(&over, "loop/backing_file", "/dev/sda1\n");
    put(&over, "loop/status", &format!("5 6 {} 512", rustix::fs::makedev(8, 1)));
    assert_eq!(node(top.path(), 7, 0), None);
    let mountinfo = top.path().join("proc/self/mountinfo");
    for (number, name) in [("8:1", "sda1"), ("8:0", "sda")] {
        fs::write(&mountinfo, format!("22 1 {number} / /mnt rw - ext4 /dev/x rw\n")).unwrap();
        let by = node(top.path(), 7, 0).unwrap();
        assert_eq!(by, format!("over /dev/{name}, which is mounted at /mnt"));
    }
    fs::write(&mountinfo, "22 1 8:2 / /mnt rw - ext4 /dev/x rw\n").unwrap();
    assert_eq!(node(top.path(), 7, 0), None, "another partition of that disk");
}

#[test]
fn two_loop_devices_over_the_same_bytes_are_one_use_and_beside_each_other_they_are_none() {
    let top = machine();
    for (name, number, offset) in [("loop1", "7:1", 0), ("loop2", "7:2", 1 << 19)] {
        let folder = add(top.path(), name, number);
        put(&folder, "size", "2048\n");
        put(&folder, "loop/backing_file", "/image\n");
        put(&folder, "loop/status", &format!("5 6 0 {offset}"));
    }
    assert_eq!(node(top.path(), 7, 1), None);
    assert_eq!(doubt(top.path(), 7, 1).unwrap(), "over the same bytes as /dev/loop2");
    let mountinfo = top.path().join("proc/self/mountinfo");
    fs::write(&mountinfo, "22 1 7:2 / /mnt rw - ext4 /dev/loop2 rw\n").unwrap();
    assert!(node(top.path(), 7, 1).unwrap().contains("/dev/loop2, which is mounted at"));
    put(&top.path().join("sys/devices/loop2"), "loop/status", &format!("5 6 0 {}", 1 << 20));
    assert_eq!((node(top.path(), 7, 1), doubt(top.path(), 7, 1)), (None, None));
}

#[test]
fn memory_is_found_below_volumes_and_loop_devices_and_what_is_unknown_is_not_kept() {
    let top = machine();
    let (sysfs, proc) = (top.path().join("sys"), top.path().join("proc"));
    let kernel = kernel(&sysfs, &proc);
    let kept = |major, minor| {
        Node::of(kernel, rustix::fs::makedev(major, minor)).unwrap().not_kept(kernel)
    };
    let over = sysfs.join("devices/loop0");
    put(&over, "loop/backing_file", "/gone (deleted)\n");
    assert!(kept(7, 0).unwrap().contains("nobody can say what /dev/loop0"));
    let device = rustix::fs::makedev(0, 99);
    put(&over, "loop/status", &format!("{device} 7 0 0"));
    assert!(kept(7, 0).unwrap().contains("nobody can say"));
    let mounts = |kind| {
        let line = format!("9 1 0:99 / /x rw - {kind} {kind} rw\n");
        fs::write(proc.join("self/mountinfo"), line).unwrap();
    };
    mounts("tmpfs");
    assert_eq!(kept(7, 0).unwrap(), "/dev/loop0 is over a file in memory");
    mounts("xfs");
    assert_eq!(kept(7, 0), None);
    // Over a disk, whose node is on devtmpfs.
    put(&over, "loop/status", &format!("5 7 {} 0", rustix::fs::makedev(8, 2)));
    assert_eq!(kept(7, 0), None);
    let below: Vec<String> = Node::of(kernel, rustix::fs::makedev(7, 0))
        .unwrap()
        .below(kernel)
        .iter()
        .map(Node::name)
        .collect();
    assert_eq!(below, ["sda2", "sda"]);
    // A volume over compressed memory, and a loop device over that.
    let volume = add(top.path(), "dm-1", "253:1");
    let memory = add(top.path(), "zram0", "252:0");
    symlink(&memory, volume.join("slaves/zram0")).unwrap();
    assert_eq!(kept(253, 1).unwrap(), "/dev/zram0 is memory");
    put(&over, "loop/status", &format!("5 7 {} 0", rustix::fs::makedev(253, 1)));
    assert_eq!(kept(7, 0).unwrap(), "/dev/zram0 is memory");
}

#[test]
fn what_waits_for_somebody_is_stopped_and_persistent_memory_is_known_by_its_name() {
    let top = machine();
    let volume = add(top.path(), "dm-1", "253:1");
    put(&volume, "dm/suspended", "0\n");
    let at = |folder: &Path| Node::at(folder).unwrap();
    assert!(!at(&volume).is_stopped());
    put(&volume, "dm/suspended", "1\n");
    assert!(at(&volume).is_stopped());
    let disk = top.path().join("sys/devices/sda");
    put(&disk, "device/state", "running\n");
    assert!(!at(&disk).is_stopped());
    put(&disk, "device/state", "offline\n");
    assert!(at(&disk).is_stopped());
    for (n, name) in ["pmem0", "pmem1s", "pmem0.1", "pmem0/pmem0p1"].into_iter().enumerate() {
        let folder = add(top.path(), name, &format!("259:{}", 50 + n));
        if name.contains('/') {
            put(&folder, "partition", "1");
        }
        assert!(at(&folder).is_persistent_memory(), "{name}");
    }
    assert!(!at(&disk).is_persistent_memory());
}
