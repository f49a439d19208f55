//! A trial of a server that is elsewhere, and names a directory in which another server works here;
//! and of a directory that is exchanged for another before it is attached.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use tiersmith_lab::server::{self, Site as Server};
use tiersmith_lab::trial::service;

use crate::daemon::{Site, command, is_root, output, text, wait_until};
use crate::trial_target::Target;

/// Starts a server in a namespace of its own, in which its directory has another's path, under a
/// name that no server has: as one of another machine, it is not to be seen among those here.
const START: &str = "mount --bind \"$OTHER\" \"$HOME_OF_ONE\" && exec setpriv --clear-groups \
                     --reuid $(stat -c %u \"$OTHER\") --regid $(stat -c %g \"$OTHER\") \
                     \"$PROGRAM\" -D \"$HOME_OF_ONE\" -k \"$SOCKETS\" -c listen_addresses= \
                     -c autovacuum=off";

#[test]
fn a_server_elsewhere_that_names_a_directory_of_one_here_is_refused() {
    let Some(here) = Target::postgres() else { return };
    if !is_root() {
        eprintln!("skipped: a server in a namespace of its own, because this is not root");
        return;
    }
    let product = server::product("postgres").unwrap();
    let programs = server::find(product).unwrap();
    let site = Site::new();
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir(&site.home).unwrap();
    server::create(product, &programs, &Server::new(&site.home, site.path().join("log"))).unwrap();
    let sockets = tempfile::Builder::new().prefix("te").tempdir_in("/tmp").unwrap();
    server::make_reachable(sockets.path(), product).unwrap();
    let program = site.path().join("elsewhere");
    symlink(programs.get("postgres").unwrap(), &program).unwrap();
    let mut started = Command::new("unshare");
    started.args(["--mount", "sh", "-c", START]).current_dir("/").stdin(Stdio::null());
    started.env("OTHER", &site.home).env("HOME_OF_ONE", here.home());
    started.env("PROGRAM", &program).env("SOCKETS", sockets.path());
    started.stdout(Stdio::null()).stderr(Stdio::null());
    let mut elsewhere = started.spawn().unwrap();
    let socket = sockets.path().join(product.socket_name());
    let answers = || product.connect(&socket).is_ok_and(|mut client| client.ping().is_ok());
    wait_until("the other server answers", answers);
    let url = format!("postgresql://postgres@/postgres?host={}", sockets.path().display());
    let trial = |url: &str| {
        let mut trial = command(&["trial", url, "--size", "64M", "--check"]);
        trial.arg("--fast").arg(&site.fast).arg("--state").arg(site.path().join("state"));
        let done = output(trial.spawn().unwrap(), &["trial"]);
        (done.status.code(), text(&done))
    };
    let (code, said) = trial(&url);
    let (own_code, own) = trial(here.url());
    // A fast end, which takes its shared memory with it.
    let _ = Command::new("kill").args(["-INT", &elsewhere.id().to_string()]).status();
    elsewhere.wait().unwrap();
    let named = format!("none of those that work in {} here", here.home().display());
    assert!(code == Some(1) && said.contains(&named), "{code:?}: {said}");
    assert_eq!(own_code, Some(0), "{own}");
    assert!(service::running_in(here.home()).is_some());
}

#[test]
fn a_directory_that_is_exchanged_meanwhile_is_not_attached() {
    let Some(mut target) = Target::mariadb() else { return };
    let (home, aside) = (target.home().to_path_buf(), target.home().with_file_name("aside"));
    target.with_stop(|stop| {
        let (home, aside) = (home.display(), aside.display());
        let pid = stop.trim_start_matches("kill -TERM ");
        format!(
            "pid={pid}; kill -TERM $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done; mv \
             {home} {aside} && cp -a {aside} {home}"
        )
    });
    let done = output(target.trial(&[]).spawn().unwrap(), &["trial"]);
    let said = text(&done);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("not the directory that the trial began with"), "{said}");
    assert!(said.contains("is plain and runs"), "{said}");
    fs::remove_dir_all(&aside).unwrap();
    target.assert_plain_and_running();
}
