//! What the daemon gives up, so that whoever takes it over through a bug gains less.
//!
//! - Before its first thread ([`drop_capabilities`]): the capabilities it has no use for, in every
//!   set and in the bounding set, and new privileges. They are a thread's own, and inherited.
//! - When the mount is up ([`confine`]): core dumps and debuggers, and the calls it has no use for
//!   ([`DENIED`], and [`RINGS`] where the mount has none). The filter is laid on all threads at
//!   once.
//!
//! A denied call fails with EPERM and ends nothing. Of sockets only local ones are left.
//!
//! What is left is much all the same: with its capabilities the daemon can read and write every
//! file. A mount over io_uring keeps that interface, which has operations of its own for sockets.
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
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, sock_filter,
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

/// Calls through which others can be made past the filter. A mount over io_uring makes them.
const RINGS: [libc::c_long; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

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

/// Gives up the capabilities that are not needed, and the way to new ones; of this thread, and
/// those it starts.
pub(super) fn drop_capabilities() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dropped = rustix::thread::clear_ambient_capability_set().and_then(|()| {
        for n in 0..u64::BITS {
            let one = CapabilitySet::from_bits_retain(1 << n);
            // A number beyond those the kernel has is an error.
            if !KEPT.contains(one) && rustix::thread::capability_is_in_bounding_set(one) == Ok(true)
            {
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
    let dropped = rustix::thread::set_no_new_privs(true).and(dropped);
    if let Err(e) = dropped {
        log::warn!("the daemon keeps capabilities it has no use for: {e}");
    }
}

/// Gives up the rest, of all threads, and says what holds now. `rings`: the mount is over io_uring.
pub(super) fn confine(rings: bool) -> Confined {
    if !rustix::process::geteuid().is_root() {
        let why = "not root: it has its user's rights, and unmounts with fusermount3";
        return Confined { why_not: Some(why.into()), ..Confined::default() };
    }
    let not_dumpable =
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_ok();
    let denied = filter(rings).and_then(|filter| {
        seccompiler::apply_filter_all_threads(&filter).map_err(|e| e.to_string())
    });
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

fn filter(rings: bool) -> Result<BpfProgram, String> {
    let unless =
        |argument, value: libc::c_int| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
            let value = u64::from(value.unsigned_abs());
            let other =
                SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)?;
            Ok(vec![SeccompRule::new(vec![other])?])
        };
    let made = || -> Result<BpfProgram, seccompiler::BackendError> {
        let mut rules: std::collections::BTreeMap<_, _> =
            DENIED.iter().map(|call| (*call, Vec::new())).collect();
        // A thread's own umask, and nothing else.
        if !rings {
            rules.extend(RINGS.map(|call| (call, Vec::new())));
        }
        let _ = rules.insert(libc::SYS_unshare, unless(0, libc::CLONE_FS)?);
        let _ = rules.insert(libc::SYS_socket, unless(0, libc::AF_UNIX)?);
        let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
        let machine = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(rules, SeccompAction::Allow, denied, machine)?.try_into()
    };
    let made: BpfProgram = made().map_err(|e| e.to_string())?;
    Ok(without_second_numbers().into_iter().chain(made).collect())
}

/// Instructions that deny each call by its other number. On x86-64 a kernel may have the interface
/// x32: the same calls, under numbers with a bit set of which a list of calls knows nothing.
fn without_second_numbers() -> Vec<sock_filter> {
    const X32: u32 = 0x4000_0000;
    if !cfg!(target_arch = "x86_64") {
        return Vec::new();
    }
    let instruction = |code: u32, jt, k| sock_filter { code: code as u16, jt, jf: 0, k };
    vec![
        // The number of the call is the first field.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        sock_filter { jf: 1, ..instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, X32) },
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs(),
        ),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;

    #[test]
    fn the_filter_denies_what_it_says_and_leaves_the_rest() {
        // A thread's filter ends with it.
        std::thread::spawn(|| {
            seccompiler::apply_filter(&filter(false).unwrap()).unwrap();
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

    #[test]
    fn a_thread_that_starts_before_the_filter_gains_no_privileges_either() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: what a daemon of root gives up, because this is not root");
            return;
        }
        let begin = || {
            drop_capabilities();
            let status = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
            std::thread::spawn(status).join().unwrap()
        };
        let status = std::thread::spawn(begin).join().unwrap();
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    }

    /// What a filter says to a call: its instructions, as the kernel would take them.
    fn said(program: &[sock_filter], call: i64, argument: u32) -> u32 {
        let (load, and, jump) =
            (libc::BPF_LD | libc::BPF_W, libc::BPF_ALU | libc::BPF_AND, libc::BPF_JMP);
        let (mut at, mut held) = (0, 0);
        loop {
            let now = &program[at];
            at += 1;
            let to = |is_so: bool| usize::from(if is_so { now.jt } else { now.jf });
            match u32::from(now.code) {
                code if code == load | libc::BPF_ABS => {
                    held = match now.k {
                        0 => call as u32,
                        // The audit's number of a machine of 64 bits, little-endian.
                        4 if cfg!(target_arch = "x86_64") => 0xc000_003e,
                        4 => 0xc000_00b7,
                        16 => argument,
                        _ => 0,
                    }
                }
                code if code == and => held &= now.k,
                code if code == jump | libc::BPF_JA => at += now.k as usize,
                code if code == jump | libc::BPF_JEQ => at += to(held == now.k),
                code if code == jump | libc::BPF_JGE => at += to(held >= now.k),
                code if code == jump | libc::BPF_JGT => at += to(held > now.k),
                code if code == libc::BPF_RET => return now.k,
                code => panic!("an instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn no_second_number_and_no_ring_leads_past_the_filter() {
        const DENY: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let (without, with) = (filter(false).unwrap(), filter(true).unwrap());
        for call in DENIED {
            assert_eq!(said(&without, call, 0), DENY, "{call}");
            assert_eq!(said(&with, call, 0), DENY, "{call}");
        }
        for call in RINGS {
            assert_eq!(said(&without, call, 0), DENY, "{call}");
            assert_eq!(said(&with, call, 0), libc::SECCOMP_RET_ALLOW, "{call}");
        }
        for call in [libc::SYS_openat, libc::SYS_write, libc::SYS_mount] {
            assert_eq!(said(&without, call, 0), libc::SECCOMP_RET_ALLOW, "{call}");
            if cfg!(target_arch = "x86_64") {
                assert_eq!(said(&without, call | 0x4000_0000, 0), DENY, "{call}");
            }
        }
        assert_eq!(said(&without, libc::SYS_socket, libc::AF_INET as u32), DENY);
        assert_eq!(said(&without, libc::SYS_socket, libc::AF_UNIX as u32), libc::SECCOMP_RET_ALLOW);
    }
}
