//! The programs in `examples/` run and are right: each asserts what it says.

#[path = "../../../../examples/first_steps.rs"]
#[allow(dead_code, reason = "its main is for `cargo run`")]
mod first_steps;

#[test]
fn first_steps_run_to_the_end() {
    let place = tempfile::tempdir().unwrap();
    first_steps::run(place.path()).unwrap();
}
