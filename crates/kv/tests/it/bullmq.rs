//! BullMQ, a library of job queues that lives on scripts, works on this server: where `node` finds
//! its package. `./check --client-suites bullmq` installs it below `target`, of a version that it
//! pins, and runs the same jobs against redis-server and this server.

use std::process::Command;

use crate::served::Served;

#[test]
fn bullmq_does_its_jobs() {
    let there = Command::new("node").args(["-e", "require('bullmq')"]).output();
    if !there.is_ok_and(|tried| tried.status.success()) {
        println!(
            "skipped: BullMQ, because node does not find its package; run \
             ./check --client-suites bullmq, which installs it"
        );
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bullmq/run.js");
    let ran = Command::new("node").arg(script).arg(&served.socket).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && said.starts_with("108 jobs"), "{said}");
}
