//! The limit of open files: raised for the daemon, and compared with the files of the home.
//!
//! Only the daemon's own process raises its limit. A program that embeds the store keeps its own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tiersmith_store::AttachedHome;

/// As many open files as this process may ask for.
pub(super) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(e) = setrlimit(Resource::Nofile, most) {
            let current = limit.current.map_or("unlimited".to_owned(), |files| files.to_string());
            log::warn!("the limit of open files stays {current}: {e}");
        }
    }
}

/// What to say when the home has more files than this process can hold open.
pub(super) fn remark(home: &AttachedHome) -> Option<String> {
    let limit = getrlimit(Resource::Nofile).current?;
    let mut files = 0;
    let walked = home.home().walk(&mut |_, _| {
        files += 1;
        Ok(())
    });
    // What it could not see of the home others will say.
    walked.ok()?;
    let open = home.home_files_open();
    (files > open).then(|| {
        format!(
            "the home has {files} files, and this process may open {limit}: it holds {open} of the \
             home's \
             open and opens the others when they are needed, which costs time. To hold all open, \
             let it \
             open {} before attaching: `ulimit -n`, or LimitNOFILE= in its unit",
            (files * 2).next_multiple_of(1024)
        )
    })
}
