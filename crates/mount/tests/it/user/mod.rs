//! Work as another user, in a thread of this process that changes its user and group for good, for
//! itself only.

/// Runs as another user, in a thread of its own: the system calls used change one thread only.
pub(crate) fn as_user<T: Send>(
    uid: u32,
    gid: u32,
    groups: &[u32],
    work: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(move || {
                // SAFETY: the raw calls change the credentials of this thread only, which ends with
                // the closure.
                unsafe {
                    assert_eq!(
                        libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()),
                        0
                    );
                    assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
                    assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
                }
                work()
            })
            .join()
            .unwrap()
    })
}
