//! `tiersmith attach` of a single SQLite file: no mount, no daemon. The program that uses the
//! database opens it through the VFS.
//!
//! Root attaches for the database's owner, and with the owner's rights (`tiersmith_sqlite::place`):
//! what is made is the owner's, and names in directories of the owner lead root nowhere. Only the
//! tier's file is made by root, in the directory that the command line names.

use std::path::Path;

use serde_json::json;
use tiersmith_sqlite::place::{FastSpec, Standing, status};

use super::{print, print_json};
use crate::Outcome;
use crate::attach::Attach;
use crate::error::{Error, Result};
use crate::mounted;

/// Attaches the database file, unless it is attached already.
///
/// # Errors
/// Options that are a mount's; and why it cannot be attached, each a sentence with the remedy.
/// Nothing was changed then.
pub(super) fn run(wish: &Attach) -> Result<Outcome> {
    if let Some(option) = wish.of_a_mount() {
        return Err(Error::Usage(format!(
            "{option} is for a directory, which is mounted, and {} is a file: its program opens it \
             through the SQLite VFS. Leave it out",
            wish.home.display()
        )));
    }
    tiersmith_sqlite::register()?;
    let before = status(&wish.home)?;
    let attached = before.standing == Standing::Attached;
    match &wish.fast {
        Some(fast) => attach(wish, &before.database, fast, attached)?,
        None if attached => {}
        None => {
            return Err(Error::Usage(format!(
                "{} is not attached; name the fast storage with --fast, a directory or a file",
                before.database.display()
            )));
        }
    }
    let now = status(&wish.home)?;
    if let Some(trouble) = now.trouble {
        return Err(Error::Usage(trouble));
    }
    if wish.json {
        let members = now.spec.as_ref().map(|spec| spec.members.clone()).unwrap_or_default();
        let is = |what: fn(&FastSpec) -> bool| now.spec.as_ref().is_some_and(what);
        print_json(&json!({
            "path": now.database, "attached": true, "was_attached": attached, "members": members,
            "emulated": is(|spec| spec.emulate),
            "flash": is(|spec| spec.flash),
            "tier_bytes": now.blocks.as_ref().map(|blocks| blocks.tier_bytes),
        }))?;
    } else {
        let database = now.database.display();
        let opened = format!(
            "  open it as file:{database}?vfs=tiersmith in a program that has loaded the \
             extension; where a program cannot give a URI,\n  \
             set TIERSMITH_SQLITE_DEFAULT=1 for it. `tiersmith detach {database}` gives the plain \
             file back\n"
        );
        print(&format!("{now}{opened}"))?;
    }
    Ok(Outcome::Good)
}

fn attach(wish: &Attach, database: &Path, fast: &Path, again: bool) -> Result<()> {
    let found = std::fs::metadata(database).map_err(|source| Error::Io {
        what: "look at",
        path: database.to_path_buf(),
        source,
    })?;
    let (dir, name, member) = mounted::tier_place(fast, database)?;
    if mounted::device::is_one(&member) {
        return Err(Error::Usage(format!(
            "{} is a block device, and only root may open one, where each program that uses the \
             database opens the tier; give a file on a disk. A directory is attached to a device \
             by its daemon",
            member.display()
        )));
    }
    mounted::device::refuse_to_make(&member)?;
    if dir.look(&name).is_ok_and(|found| found.is_some()) {
        // In a directory where others may write, they may have made it.
        mounted::trusted(&member, &found, !again)?;
    }
    if wish.ephemeral.is_none()
        && !wish.emulate
        && let Some(model) = mounted::emptied_at_stop(&member)
    {
        return Err(Error::Usage(format!(
            "{} is on a disk that is emptied when the machine is stopped ({model}), and an \
             attached SQLite database has its newest blocks only there; use another disk, or say \
             --ephemeral=no if that disk keeps its contents",
            member.display()
        )));
    }
    let spec = FastSpec {
        members: vec![member],
        size: Some(wish.size.bytes()),
        emulate: wish.emulate,
        ..FastSpec::default()
    };
    Ok(tiersmith_sqlite::attach(database, spec)?)
}
