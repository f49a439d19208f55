//! Sidecars: what is written is read, and anything else is refused in words.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tiersmith_dir::{Dir, NumberText, PathText, Sidecar, Unfit};

const NOTE: Sidecar =
    Sidecar { kind: "note", version: 3, comment: "A note of a test.\nDo not edit.", most: 400 };

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    size: u64,
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    members: Vec<PathText>,
}

fn sealed(text: &str) -> String {
    format!("{text}# checksum {:016x}\n", xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
}

#[test]
fn what_is_written_is_read_whatever_the_names_are() {
    let bytes = OsStr::from_bytes(b"/a b/%41\xff\"\n# checksum \\");
    let body = Body {
        size: 1 << 62,
        name: Some("# checksum \"\n\u{1b}".into()),
        members: vec![PathText(bytes.into())],
    };
    let text = NOTE.encode(&body).unwrap();
    assert!(
        text.starts_with("# A note of a test.\n# Do not edit.\nkind = \"note\"\nversion = 3\n"),
        "{text}"
    );
    assert_eq!(NOTE.decode(text.as_bytes()), Ok(body.clone()));
    // A file of fixed length is filled up with line ends.
    assert_eq!(NOTE.decode((text + "\n\n").as_bytes()), Ok(body.clone()));
    let scratch = tempfile::tempdir().unwrap();
    let dir = Dir::open(scratch.path()).unwrap();
    assert_eq!(NOTE.read::<Body>(&dir, "n").unwrap_err().kind(), ErrorKind::NotFound);
    NOTE.replace(&dir, "n", &Body::default(), 0o600, None).unwrap();
    NOTE.replace(&dir, "n", &body, 0o600, None).unwrap();
    assert_eq!(NOTE.read::<Body>(&dir, "n").unwrap(), body);
    std::fs::write(scratch.path().join("n"), [b'x'; 401]).unwrap();
    assert_eq!(NOTE.read::<Body>(&dir, "n").unwrap_err().kind(), ErrorKind::FileTooLarge);
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    for (size, name) in [(u64::MAX, None), (1, Some("x".repeat(400)))] {
        let error = NOTE.encode(&Body { size, name, ..Body::default() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("the note "), "{error}");
    }
}

#[test]
fn a_number_of_64_bits_is_read_back_as_text_and_nothing_else_is_one() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Inode {
        inode: NumberText,
    }
    for number in [0, 1 << 63, u64::MAX] {
        let body = Inode { inode: NumberText(number) };
        assert_eq!(NOTE.decode(NOTE.encode(&body).unwrap().as_bytes()), Ok(body));
    }
    let says = |inode: &str| {
        let text = sealed(&format!("kind = \"note\"\nversion = 3\ninode = {inode}\n"));
        NOTE.decode::<Inode>(text.as_bytes())
    };
    assert_eq!(says("\"7\""), Ok(Inode { inode: NumberText(7) }));
    for wrong in ["7", "\"\"", "\"-1\"", "\"18446744073709551616\""] {
        assert!(matches!(says(wrong), Err(Unfit::Damaged(_))), "{wrong}");
    }
}

#[test]
fn every_changed_or_missing_byte_is_noticed() {
    let body = Body { size: 7, name: Some("x".into()), members: vec![PathText("/m".into())] };
    let text = NOTE.encode(&body).unwrap().into_bytes();
    for at in 0..text.len() - 1 {
        for flip in 0..8 {
            let mut other = text.clone();
            other[at] ^= 1 << flip;
            assert!(NOTE.decode::<Body>(&other).is_err(), "byte {at}, bit {flip}");
        }
        assert!(NOTE.decode::<Body>(&text[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn another_version_kind_or_program_is_refused_in_words() {
    let says = |text: &str| NOTE.decode::<Body>(text.as_bytes()).unwrap_err();
    let other = says("kind = \"note\"\nversion = 4\nwhatever = 1\n");
    assert!(matches!(&other, Unfit::OtherVersion(why) if why.contains("version 4")), "{other}");
    let other = says(&sealed("version = 2\nsize = 7\n"));
    assert!(
        matches!(&other, Unfit::OtherVersion(why) if why.contains("development build")),
        "{other}"
    );
    for (text, words) in [
        (sealed("kind = \"list\"\nversion = 3\nsize = 7\n"), "is of the kind `list`, not `note`"),
        (sealed("kind = \"note\"\nversion = 3\nsize = \"many\"\n"), "does not say what it should"),
        (
            sealed("kind = \"note\"\nversion = 3\nsize = 7\ncolour = 1\n"),
            "does not say what it should",
        ),
        (sealed("kind = \"note\"\nversion = 3\nsize = 7\nmembers = [\"/a%4\"]\n"), "does not say"),
        (sealed("kind = \"note\"\nversion = 3\nsize = 7\nmembers = [\"/a%00\"]\n"), "does not say"),
        (sealed("kind = \"note\"\nsize = 7\n"), "does not say its version"),
        ("kind = \"note\"\nversion = 3\nsize = 7\n".into(), "has lost its last line"),
        ("{\"a\": 1}".into(), "cannot be read as TOML"),
        (String::new(), "does not end with a checksum"),
        ("#".repeat(401), "is longer than 400 bytes"),
    ] {
        let other = says(&text);
        assert!(matches!(&other, Unfit::Damaged(why) if why.contains(words)), "{text}: {other}");
    }
    assert!(NOTE.decode::<Body>(b"\xff").is_err());
    assert_eq!(PathBuf::from("/a%"), PathText("/a%".into()).0);
}
