//! What the guide says about commands is what the table in the code says.

#[test]
fn the_guide_lists_the_commands_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/kv.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let table = tiersmith_kv::table_for_people();
    assert!(guide.contains(table.trim()), "docs/guide/kv.md should have:\n{table}");
}
