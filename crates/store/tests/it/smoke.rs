//! The first things a door does, on real files.

use tiersmith_store::{FileClass, Medium, OpenMode, Options, Profile, TierSpec, attach};

fn options() -> Options {
    Options {
        profile: Some(Profile::named("postgres").expect("built in")),
        background: false,
        ..Options::default()
    }
}

#[test]
fn what_was_written_is_there_after_reopening_and_after_detaching() {
    let place = tempfile::tempdir().unwrap();
    let home = place.path().join("db");
    std::fs::create_dir_all(home.join("base/1")).unwrap();
    std::fs::create_dir_all(home.join("pg_wal")).unwrap();
    std::fs::write(home.join("base/1/100"), vec![7u8; 20000]).unwrap();
    let spec = TierSpec::new("fast", place.path().join("fast"), Medium::Emulated, 8 << 20);
    let attached = attach(&home, std::slice::from_ref(&spec), options()).unwrap();
    let data = attached.open("base/1/100", OpenMode::WRITE).unwrap();
    assert_eq!(data.class(), FileClass::Data);
    let redo = attached.open("pg_wal/000000010000000000000001", OpenMode::CREATE).unwrap();
    assert_eq!(redo.class(), FileClass::Redo);
    data.write(8192, &[1u8; 8192]).unwrap();
    data.write(100, b"partial").unwrap();
    data.write(30000, b"past the end").unwrap();
    for n in 0..100u64 {
        redo.write(n * 512, &[n as u8; 512]).unwrap();
    }
    data.write_batch(&[(40960, &[5u8; 8192][..]), (0, &[6u8; 8192][..])]).unwrap();
    let expect = |data: &tiersmith_store::File, redo: &tiersmith_store::File| {
        let mut all = vec![0; 60000];
        assert_eq!(data.read(0, &mut all).unwrap(), 49152);
        assert!(all[..8192].iter().all(|b| *b == 6));
        assert!(all[8192..16384].iter().all(|b| *b == 1));
        assert!(all[16384..20000].iter().all(|b| *b == 7));
        assert!(all[20000..30000].iter().all(|b| *b == 0));
        assert_eq!(&all[30000..30012], b"past the end");
        assert!(all[40960..49152].iter().all(|b| *b == 5));
        assert_eq!(&data.read_ref(8192).unwrap()[..], &all[8192..16384]);
        let mut all = vec![0; 60000];
        assert_eq!(redo.read(0, &mut all).unwrap(), 51200);
        for n in 0..100 {
            assert!(all[n * 512..(n + 1) * 512].iter().all(|b| *b == n as u8));
        }
    };
    expect(&data, &redo);
    drop((data, redo));
    drop(attached);
    assert!(!home.join("base").exists(), "the path holds only the note");
    let attached = attach(&home, std::slice::from_ref(&spec), options()).unwrap();
    println!("{}", attached.stats().recovery);
    let data = attached.open("base/1/100", OpenMode::WRITE).unwrap();
    let redo = attached.open("pg_wal/000000010000000000000001", OpenMode::CREATE).unwrap();
    expect(&data, &redo);
    attached.flush_all().unwrap();
    expect(&data, &redo);
    assert!(attached.evict(None, u64::MAX).unwrap() > 0);
    expect(&data, &redo);
    drop((data, redo));
    attached.detach().unwrap();
    let plain = std::fs::read(home.join("base/1/100")).unwrap();
    assert_eq!(plain.len(), 49152);
    assert_eq!(&plain[30000..30012], b"past the end");
    assert!(!home.join(".tiersmith").exists());
}

#[test]
fn blocks_of_every_size_are_written_by_the_same_lanes() {
    let place = tempfile::tempdir().unwrap();
    let home = place.path().join("db");
    std::fs::create_dir_all(&home).unwrap();
    let rules = "description = \"sizes\"\n\
        [default]\nclass = \"data\"\nblock_size = 32768\n\
        [[rule]]\nfiles = [\"small\"]\nclass = \"data\"\nblock_size = 4096\nwhy = \"test\"\n\
        [[rule]]\nfiles = [\"middle\"]\nclass = \"data\"\nblock_size = 16384\nwhy = \"test\"\n";
    let options = Options {
        profile: Some(Profile::parse("sizes", rules).unwrap()),
        background: false,
        ..Options::default()
    };
    let mut spec = TierSpec::new("fast", place.path().join("fast"), Medium::Emulated, 4 << 20);
    (spec.unit, spec.lanes) = (64 << 10, 8);
    let attached = attach(&home, std::slice::from_ref(&spec), options).unwrap();
    // The large blocks first, so that the small ones take what is left, up to the last frame of the
    // tier.
    let sizes = [("large", 32768, 16), ("middle", 16384, 16), ("small", 4096, 700)];
    let files = sizes.map(|(name, block, blocks)| {
        let file = attached.open(name, OpenMode::CREATE).unwrap();
        for n in 0..blocks {
            file.write(n * block as u64, &vec![n as u8; block]).unwrap();
        }
        file
    });
    for round in 0..4000_u64 {
        for (file, (_, block, blocks)) in files.iter().zip(sizes) {
            let at = round * 7919 % blocks;
            file.write(at * block as u64, &vec![round as u8; block]).unwrap();
            let mut back = vec![0; block];
            file.read(at * block as u64, &mut back).unwrap();
            assert!(back == vec![round as u8; block], "round {round}, blocks of {block}");
        }
    }
}
