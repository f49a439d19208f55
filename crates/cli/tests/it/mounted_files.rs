//! How many files a mounted home's tier has room for, what happens when there are more, and what of
//! a database lies outside its home.

use crate::daemon::{Site, blocks, can_mount, good, json, text, tiersmith};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const FILES: usize = 2_000;

fn relation(site: &Site, n: usize) -> PathBuf {
    site.home.join(format!("base/1/{}", 16_384 + n))
}

fn page(n: usize, version: u8) -> Vec<u8> {
    let mut page = blocks(version, 1);
    page[..8].copy_from_slice(&(n as u64).to_le_bytes());
    page
}

fn write_pages(site: &Site, version: u8) {
    for n in 0..FILES {
        let file =
            fs::OpenOptions::new().create(true).truncate(false).write(true).open(relation(site, n));
        file.unwrap().write_all_at(&page(n, version), 0).unwrap();
    }
}

fn assert_pages(site: &Site, version: u8) {
    for n in 0..FILES {
        assert!(fs::read(relation(site, n)).unwrap() == page(n, version), "relation {n}");
    }
}

#[test]
fn a_database_with_more_files_than_slots_stays_in_the_tier_through_a_killed_daemon() {
    if !can_mount("a database with more files than slots") {
        return;
    }
    let site = Site::postgres_like();
    let attached = site.attach(&[]);
    assert!(attached["fits"].as_str().unwrap().contains("the home has 2"), "{attached}");
    write_pages(&site, 1);
    let segment = site.home.join("pg_wal/000000010000000000000001");
    fs::write(&segment, blocks(5, 8)).unwrap();
    let table = site.live()["tiers"][0]["table"].clone();
    let number = |what: &str| table[what].as_u64().unwrap();
    assert_eq!((number("outside"), table["refused"].as_str()), (0, None), "{table}");
    assert!(number("slots") < FILES as u64 && number("files") <= number("slots"), "{table}");
    site.kill_daemon(&attached);
    let attached = site.attach_again();
    assert_pages(&site, 1);
    write_pages(&site, 2);
    assert_pages(&site, 2);
    assert!(fs::read(&segment).unwrap() == blocks(5, 8));
    site.kill_daemon(&attached);
    site.attach_again();
    assert_pages(&site, 2);
    let log = fs::metadata(site.path().join("db.tiersmith-log")).unwrap().len();
    assert!(log < 64 << 10, "the log has {log} bytes: a line for each file");
    good(&["detach", site.home_str()]);
    site.assert_plain();
    assert_pages(&site, 2);
}

#[test]
fn tablespaces_are_named_at_attach_and_status_finds_full_page_writes_off() {
    if !can_mount("tablespaces outside the home") {
        return;
    }
    let site = Site::postgres_like();
    let space = site.path().join("space");
    fs::create_dir(&space).unwrap();
    fs::create_dir(site.home.join("pg_tblspc")).unwrap();
    std::os::unix::fs::symlink(&space, site.home.join("pg_tblspc/16385")).unwrap();
    let attached = site.attach(&[]);
    let remarks = attached["remarks"].to_string();
    assert!(
        remarks.contains("pg_tblspc/16385") && remarks.contains("full_page_writes = on"),
        "{remarks}"
    );
    let status = || tiersmith(&["status", site.home_str(), "--json"]);
    assert_eq!(status().status.code(), Some(0), "{}", text(&status()));
    let conf = site.home.join("postgresql.auto.conf");
    fs::write(&conf, "full_page_writes = 'off'\n").unwrap();
    let found = status();
    assert_eq!(found.status.code(), Some(1), "{}", text(&found));
    let said = json(&found)["live"]["outside_home"]["unprotected"].as_str().unwrap().to_owned();
    assert!(said.contains("postgresql.auto.conf"), "{said}");
    assert!(
        text(&tiersmith(&["status", site.home_str()])).contains("TO MEND: full_page_writes is off")
    );
    fs::write(&conf, "full_page_writes = 'on'\n").unwrap();
    assert_eq!(status().status.code(), Some(0), "{}", text(&status()));
    good(&["detach", site.home_str()]);
}
