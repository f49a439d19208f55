//! What the log says when home takes blocks again that it refused, and when there are none to take.
//!
//! In a process of its own: the log is one for all threads.

use crate::place;

use std::path::Path;
use std::sync::{Arc, Mutex};
use tiersmith_pmem::Mapping;
use tiersmith_store::home::SimHome;
use tiersmith_store::{OpenMode, Options, testing};

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Kept;

impl log::Log for Kept {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        SAID.lock().unwrap().push(record.args().to_string());
    }
    fn flush(&self) {}
}

#[test]
fn the_log_tells_blocks_that_went_home_from_those_of_a_removed_file() {
    log::set_logger(&Kept).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    for removed in [false, true] {
        let home = Arc::new(SimHome::new(None));
        let mapping = Arc::new(Mapping::in_memory(&vec![0; 1 << 20], 0));
        let tiers = vec![(place::small("/simulated/fast".into(), 1 << 20), vec![mapping])];
        let options = Options { seed: Some(3), ..place::options() };
        let attached =
            testing::attach_simulated(home.clone(), tiers, &place::profile(), options).unwrap();
        attached.open("a.d8", OpenMode::CREATE).unwrap().write(0, &[1; 8192]).unwrap();
        home.fail_nth_write(1);
        attached.destage(Some(Path::new("a.d8"))).unwrap_err();
        assert_eq!(attached.stats().refused_files, 1);
        if removed {
            attached.unlink("a.d8").unwrap();
        }
        SAID.lock().unwrap().clear();
        (0..60).for_each(|_| attached.background_step().unwrap());
        assert_eq!(attached.stats().refused_files, 0);
        let said = SAID.lock().unwrap().join("\n");
        assert_eq!(said.contains("were removed"), removed, "{said}");
        assert_eq!(said.contains("home takes every file's blocks again"), !removed, "{said}");
    }
}
