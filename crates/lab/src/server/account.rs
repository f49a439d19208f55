//! As whom a server runs: an unprivileged account when the caller is root, else the caller.
//!
//! **Invariant**: a server never runs as root.

use std::fs;
use std::path::Path;

use super::Product;
use crate::account::{Account, account_in, can_reach};
use crate::error::{During, Error, Result};

/// The account a server of this product runs as; nothing if it runs as the caller, who is not root.
///
/// # Errors
/// The caller is root, and /etc/passwd has neither the product's account nor `nobody`.
pub fn account(product: &dyn Product) -> Result<Option<Account>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").during("read", "/etc/passwd")?;
    let found =
        [product.account_name(), "nobody"].into_iter().find_map(|name| account_in(&passwd, name));
    found.map(Some).ok_or_else(|| Error::Target {
        what: format!("looking for an account for {}", product.title()),
        database: "/etc/passwd".into(),
        reason: format!(
            "it must not run as root, and there is neither {} nor nobody",
            product.account_name()
        ),
    })
}

/// Makes the account own one directory, and looks whether it can get there through those above.
///
/// # Errors
/// A directory above that the account may not pass; what to do.
pub fn make_reachable(dir: &Path, product: &dyn Product) -> Result<()> {
    let Some(account) = account(product)? else { return Ok(()) };
    std::os::unix::fs::chown(dir, Some(account.uid), Some(account.gid))
        .during("change the owner of", dir)?;
    can_reach(dir, &account)
}
