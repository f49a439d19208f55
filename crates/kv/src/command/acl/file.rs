//! The file of users: a line `user NAME RULE...` for each. It is read at the start and with ACL
//! LOAD, and written with ACL SAVE.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::{Context, Done, Refusal};
use super::user::{User, has_spaces};
use super::{Acl, DEFAULT, Users, WrongRule, merged};

/// The users as lines.
pub(super) fn lines(users: &Users) -> Vec<Vec<u8>> {
    let line = |(name, user): (&Vec<u8>, &Arc<User>)| {
        [b"user ", name.as_slice(), b" ", &user.describe()].concat()
    };
    users.iter().map(line).collect()
}

/// The users as the configuration has them, names and rules; nothing if they are those whom this
/// password makes, so that `requirepass` alone says it.
///
/// # Errors
/// A name or a rule is no text.
pub(crate) fn for_configuration(
    acl: &Acl,
    password: &str,
) -> Result<BTreeMap<String, String>, String> {
    if lines(&acl.users) == lines(&Acl::new(password).users) {
        return Ok(BTreeMap::new());
    }
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| {
            format!(
                "the user `{}` has bytes that are no text, which a line cannot hold",
                bytes.escape_ascii()
            )
        })
    };
    let each = |(name, user): (&Vec<u8>, &Arc<User>)| Ok((text(name)?, text(&user.describe())?));
    acl.users.iter().map(each).collect()
}

/// The users that a text has; otherwise everything that is wrong with it, without passwords.
fn parse(text: &str, path: &str) -> Result<BTreeMap<Vec<u8>, Arc<User>>, String> {
    let (mut users, mut errors) = (BTreeMap::new(), String::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let ["user", name, rules @ ..] = words.as_slice() else {
            errors += &format!(
                "{path}:{number} should start with user keyword followed by the username. "
            );
            continue;
        };
        if has_spaces(name.as_bytes()) {
            errors += &format!("'{path}:{number}: username '{name}' contains invalid characters. ");
            continue;
        }
        if users.contains_key(name.as_bytes()) {
            errors += &format!("WARNING: Duplicate user '{name}' found on line {number}. ");
            continue;
        }
        let mut user = User::new();
        let rules: Vec<&[u8]> = rules.iter().map(|rule| rule.as_bytes()).collect();
        match merged(&rules) {
            Err(_) => {
                errors += &format!("{path}:{number}: Unmatched parenthesis in selector definition.")
            }
            Ok(rules) => {
                for rule in rules {
                    if let Err(why) = user.apply(rule.trim_ascii()) {
                        errors += &format!(
                            "{path}:{number}: {}. ",
                            WrongRule::Rule(rule, why).without_password()
                        );
                    }
                }
            }
        }
        users.insert(name.as_bytes().to_vec(), Arc::new(user));
    }
    if errors.is_empty() {
        users.entry(DEFAULT.to_vec()).or_insert_with(|| Arc::new(User::default_user()));
        return Ok(users);
    }
    Err(format!(
        "{errors}WARNING: ACL errors detected, no change to the previously active ACL rules was \
         performed"
    ))
}

fn load(path: &str) -> Result<BTreeMap<Vec<u8>, Arc<User>>, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("Error loading ACLs, opening file '{path}': {error}"))?;
    parse(&text, path)
}

/// Reads the file of users that the configuration names.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn load_at_start(acl: &mut Acl, path: &str) -> Result<(), String> {
    acl.replace(load(path)?);
    Ok(())
}

/// Puts the file in the place of the old one, whole or not at all.
fn save(path: &Path, lines: &[Vec<u8>]) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".tmp-{}", std::process::id()));
    let new = PathBuf::from(name);
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        // Hashes of passwords are nobody else's.
        let mut file = options.write(true).create_new(true).mode(0o600).open(&new)?;
        for line in lines {
            file.write_all(line)?;
            file.write_all(b"\n")?;
        }
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        std::fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    };
    let done = write();
    if done.is_err() {
        // Best effort: it has no name that anybody reads.
        let _ = std::fs::remove_file(&new);
    }
    done
}

/// ACL LOAD and ACL SAVE.
pub(super) fn load_or_save(context: &mut Context<'_>, loads: bool) -> Done {
    let path = context.shared.configuration.text("aclfile").to_owned();
    if path.is_empty() {
        return Err(Refusal::Said(
            "ERR This Redis instance is not configured to use an ACL file. You may want to specify \
             users via \
             the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis \
             configuration \
             file set) in order to store users in the Redis configuration.",
        ));
    }
    if loads {
        let users = load(&path).map_err(|why| Refusal::Words(format!("ERR {why}")))?;
        // As in Redis, who is not the default user says again who it is.
        let before: Vec<Vec<u8>> = context.shared.acl.users.keys().cloned().collect();
        context.shared.acl.replace(users);
        context.shared.acl.reloaded.extend(before.into_iter().filter(|name| name != DEFAULT));
    } else {
        save(Path::new(&path), &lines(&context.shared.acl.users)).map_err(|error| {
            Refusal::Words(format!(
                "ERR There was an error trying to save the ACLs to '{path}': {error}"
            ))
        })?;
    }
    context.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_come_back_as_they_were_written_and_no_message_has_a_password() {
        let text = "user default on nopass ~* &* +@all\nuser anna on >secret ~a:* resetchannels &x \
                    -@all +get \
                    (%R~b:* resetchannels -@all +@read)\n";
        let users = Arc::new(parse(text, "f").expect("it is sound"));
        let written = lines(&users).join(&b'\n');
        let written = String::from_utf8(written).expect("text");
        assert!(
            !written.contains("secret") && written.contains("2bb80d537b1da3e38bd30361aa855686bde0")
        );
        let again = Arc::new(parse(&written, "f").expect("it is sound"));
        assert_eq!(lines(&users), lines(&again));
        for wrong in [
            "user anna <secret",
            "user anna #secret",
            "user anna >secret x",
            "user anna (+get",
            "user",
            "anna on",
            "user a on\nuser a on",
        ] {
            let said = parse(wrong, "f").expect_err(wrong);
            assert!(!said.contains("secret") && said.contains("no change"), "{said}");
        }
    }
}
