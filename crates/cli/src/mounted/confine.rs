//! What the daemon gives up, so that whoever takes it over through a bug gains less.
//!
//! - Before its first thread ([`drop_capabilities`]): the capabilities it has no use for, in every set
//!   and in the bounding set. They are a thread's own, and inherited.
//! - When the mount is up ([`confine`]): new privileges, core dumps and debuggers, and the calls it
//!   has no use for ([`DENIED`]). The filter is laid on all threads at once.
//!
//! A denied call fails with EPERM and ends nothing. Of sockets only local ones are left.
//!
//! Without root there is nothing to give up: the daemon has its user's rights, and `fusermount3`,
//! which gains root's to mount and unmount, is what no-new-privileges would stop.
//!
//! **Deliberately absent**: Landlock. Under it the daemon could not see who holds files of the
//! mount, and the places it works in (home, tier, lent files, log) can be anywhere.

use std::fmt;

use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use serde::{Deserialize, Serialize};

/// What the daemon of root keeps.
const KEPT: CapabilitySet = CapabilitySet::empty()
    // The files of the home, whoever owns them.
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::SETFCAP)
    // To work with the rights of the one who asks.
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    // To mount and unmount, and to give the kernel files to go on with itself.
    .union(CapabilitySet::SYS_ADMIN)
    // Whether a lent file is open elsewhere is learnt by a lease.
    .union(CapabilitySet::LEASE)
    // The blocks that a file system keeps for root: what only the tier has must get home.
    .union(CapabilitySet::SYS_RESOURCE)
    // The memory of rings that is accounted to a user.
    .union(CapabilitySet::IPC_LOCK)
    // To say who has files of the mount open.
    .union(CapabilitySet::SYS_PTRACE);

/// Calls that nothing here makes.
const DENIED: [libc::c_long; 42] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_setns,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_mount_setattr,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_personality,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_seccomp,
];

/// What holds for the daemon, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confined {
    /// The capabilities that are left; none without root.
    pub(crate) capabilities: Vec<String>,
    /// No program it started could gain rights.
    pub(crate) no_new_privileges: bool,
    /// Calls it has no use for are denied.
    pub(crate) calls_denied: bool,
    /// It leaves no core dump, and others cannot look into its memory.
    pub(crate) not_dumpable: bool,
    /// Why something of it is not so.
    pub(crate) why_not: Option<String>,
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = Vec::new();
        if self.capabilities.is_empty() {
            said.push("no capabilities".to_owned());
        } else {
            said.push(format!("{} capabilities", self.capabilities.len()));
        }
        if self.no_new_privileges {
            said.push("no new privileges".into());
        }
        if self.calls_denied {
            said.push("needless calls denied".into());
        }
        if self.not_dumpable {
            said.push("no core dumps".into());
        }
        write!(f, "{}", said.join(", "))?;
        match &self.why_not {
            Some(why) => write!(f, " ({why})"),
            None => Ok(()),
        }
    }
}

/// Gives up the capabilities that are not needed; of this thread, and those it starts.
pub(super) fn drop_capabilities() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dropped = rustix::thread::clear_ambient_capability_set().and_then(|()| {
        for n in 0..u64::BITS {
            let one = CapabilitySet::from_bits_retain(1 << n);
            // A number beyond those the kernel has is an error.
            if !KEPT.contains(one) && rustix::thread::capability_is_in_bounding_set(one) == Ok(true) {
                rustix::thread::remove_capability_from_bounding_set(one)?;
            }
        }
        let before = rustix::thread::capabilities(None)?;
        let sets = CapabilitySets {
            effective: before.effective & KEPT,
            permitted: before.permitted & KEPT,
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, sets)
    });
    if let Err(e) = dropped {
        log::warn!("the daemon keeps capabilities it has no use for: {e}");
    }
}

/// Gives up the rest, of all threads, and says what holds now.
pub(super) fn confine() -> Confined {
    if !rustix::process::geteuid().is_root() {
        let why = "not root: it has its user's rights, and unmounts with fusermount3";
        return Confined { why_not: Some(why.into()), ..Confined::default() };
    }
    let not_dumpable = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok();
    let denied =
        filter().and_then(|filter| seccompiler::apply_filter_all_threads(&filter).map_err(|e| e.to_string()));
    // The filter brings this with it, for all threads.
    let no_new_privileges = rustix::thread::no_new_privs().unwrap_or(false);
    let left = rustix::thread::capabilities(None).map(|sets| sets.permitted);
    Confined {
        capabilities: left.map(names).unwrap_or_default(),
        no_new_privileges,
        calls_denied: denied.is_ok(),
        not_dumpable,
        why_not: denied.err().map(|e| format!("calls are not denied: {e}")),
    }
}

fn names(set: CapabilitySet) -> Vec<String> {
    set.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}

fn filter() -> Result<BpfProgram, String> {
    let unless = |argument, value: libc::c_int| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        let value = u64::from(value.unsigned_abs());
        let other = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)?;
        Ok(vec![SeccompRule::new(vec![other])?])
    };
    let made = || -> Result<BpfProgram, seccompiler::BackendError> {
        let mut rules: std::collections::BTreeMap<_, _> =
            DENIED.iter().map(|call| (*call, Vec::new())).collect();
        // A thread's own umask, and nothing else.
        let _ = rules.insert(libc::SYS_unshare, unless(0, libc::CLONE_FS)?);
        let _ = rules.insert(libc::SYS_socket, unless(0, libc::AF_UNIX)?);
        let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        let machine = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(rules, SeccompAction::Allow, denied, machine)?.try_into()
    };
    made().map_err(|e| e.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;

    #[test]
    fn the_filter_denies_what_it_says_and_leaves_the_rest() {
        // A thread's filter ends with it.
        std::thread::spawn(|| {
            seccompiler::apply_filter(&filter().unwrap()).unwrap();
            let refused = std::process::Command::new("/bin/true").status().unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
            let refused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
            drop(std::os::unix::net::UnixDatagram::unbound().unwrap());
            std::thread::spawn(|| std::fs::read("/proc/self/status").unwrap()).join().unwrap();
        })
        .join()
        .unwrap();
    }
}
