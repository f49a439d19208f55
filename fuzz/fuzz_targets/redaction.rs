//! Statements with literals in them: no literal survives, and a second pass finds nothing more.

#![no_main]

use tiersmith_awr::Redaction;

/// What no statement has by itself.
const SECRET: &str = "zq7xsecretx7qz";

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input).replace("secret", "");
    let redact = |sql: &str| Redaction::Literals.statement(sql);
    let once = redact(&text);
    assert!(once.chars().count() <= 2000);
    // A literal behind whatever text is not inside quotes or comments of its own: what lies between was taken for a literal or a comment
    // as well, or this is one.
    for literal in [format!("'{SECRET}'"), format!("$q${SECRET}$q$"), format!("'a''{SECRET}'"), format!("/* {SECRET} */"), format!("-- {SECRET}\n")] {
        let clean: String = text.chars().filter(|c| !"'\"`$\\/*#-".contains(*c)).collect();
        let sql = format!("select {clean} , {literal} , {clean}");
        assert!(!redact(&sql).contains(SECRET), "{sql}");
    }
    // Inside a literal nothing passes, whatever stands in it, if it is quoted as SQL quotes.
    let sql = format!("select '{}{SECRET}'", text.replace('\'', "''"));
    assert!(!redact(&sql).contains(SECRET), "{sql}");
    // Nor a number that stands alone.
    let clean: String = text.chars().filter(|c| !"'\"`$\\/*#-".contains(*c)).collect();
    assert!(!redact(&format!("select {clean} 918273645 , {clean}")).contains("918273645") || clean.contains("918273645"));
});
