//! The first line of a library of functions: its engine and its name.
//!
//! Deliberately absent: what the library does (`command/scripting/libraries.rs`).

use crate::words::words;

/// A name that libraries and functions may have.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name.is_empty() && name.iter().all(fits)
}

/// What the first line says: the engine, and the library's name; and what follows it. An error is
/// in Redis's words.
pub(crate) fn first_line(text: &[u8]) -> Result<(String, String, &[u8]), String> {
    if !text.starts_with(b"#!") {
        return Err("Missing library metadata".into());
    }
    let invalid = || "Invalid library metadata".to_owned();
    let end = text.iter().position(|byte| *byte == b'\n').ok_or_else(invalid)?;
    let words = words(&text[..end]).filter(|words| !words.is_empty()).ok_or_else(invalid)?;
    let shown = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let engine = shown(words[0].get(2..).ok_or_else(invalid)?);
    let mut name = None;
    for word in &words[1..] {
        match word.split_at_checked(5) {
            Some((head, _)) if head.eq_ignore_ascii_case(b"name=") && name.is_some() => {
                let twice = "Invalid metadata value, name argument was given multiple times";
                return Err(twice.into());
            }
            Some((head, rest)) if head.eq_ignore_ascii_case(b"name=") => name = Some(shown(rest)),
            _ => return Err(format!("Invalid metadata value given: {}", shown(word))),
        }
    }
    let name = name.ok_or_else(|| "Library name was not given".to_owned())?;
    Ok((engine, name, &text[end..]))
}

/// The name of a library, if it has one that a library may have.
pub(crate) fn name_of(text: &[u8]) -> Option<Vec<u8>> {
    let (_, name, _) = first_line(text).ok()?;
    is_name(name.as_bytes()).then(|| name.into_bytes())
}
