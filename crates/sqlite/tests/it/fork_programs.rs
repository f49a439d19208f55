//! Python programs that fork with a database open, as `multiprocessing` and gunicorn do
//! (`support/fork_models.py`), through the loadable extension: every child is refused with a
//! sentence, and the parent loses nothing.

use crate::programs::{library, program, run};
use std::process::Command;

/// Runs the model in WAL and in DELETE mode.
fn model(name: &str) {
    let (Some(library), Some(python)) = (library(), program("/usr/bin/python3")) else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/fork_models.py");
    for journal in ["wal", "delete"] {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(python);
        command.args([script, name]).arg(library.with_extension("")).arg(dir.path()).arg(journal);
        let said = run(&mut command);
        assert!(said.starts_with("done") || said.starts_with("SKIPPED"), "{journal}: {said}");
    }
}

#[test]
fn children_that_open_the_database_are_refused() {
    model("new_connections");
}

#[test]
fn children_that_use_the_connection_they_inherited_are_refused() {
    model("inherited_connection");
}

#[test]
fn a_pragma_on_an_inherited_connection_answers_with_the_sentence() {
    model("inherited_pragma");
}

#[test]
fn children_that_end_an_inherited_transaction_do_not_end_the_parents() {
    model("inherited_in_transaction");
}

#[test]
fn workers_of_a_multiprocessing_pool_are_refused() {
    model("pool");
}

#[test]
fn workers_of_a_preloaded_server_are_refused_and_their_end_changes_nothing() {
    model("preload");
}

#[test]
fn a_child_that_never_touches_the_database_ends_without_changing_it() {
    model("never_touched");
}

#[test]
fn a_child_forked_before_the_database_was_opened_is_refused_as_any_process() {
    model("forked_before");
}

#[test]
fn a_child_opens_what_the_parent_has_closed() {
    model("opens_after_parent_closed");
}

#[test]
fn a_worker_that_opens_the_database_after_the_fork_works() {
    model("opens_in_the_worker");
}

#[test]
fn programs_started_by_the_parent_inherit_nothing() {
    model("programs");
}
