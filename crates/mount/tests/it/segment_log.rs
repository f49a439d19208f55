//! The log of segments that `.ci/dax_suite.sh` writes in its guest finds what is there, and misses
//! what is not.

#[path = "../../examples/segments.rs"]
#[allow(dead_code, reason = "its main is the program")]
mod segments;

#[test]
fn a_log_of_segments_is_found_whole_and_what_is_lost_is_missed() {
    let place = tempfile::tempdir().unwrap();
    segments::check_itself(place.path()).unwrap();
}
