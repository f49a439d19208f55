//! Attaches a directory, mounts it over its own path and serves it until it is unmounted; the home
//! stays attached then.
//!
//! For tests of the mount by programs of others (`.ci/mount_suite.sh`). It is not the product's
//! daemon, which is `tiersmith attach`: no profile is looked for, nothing is told to a status
//! command, and the tier is always an emulated one.
//!
//!     serve HOME TIER MIB [--class redo|data|pass] [--block BYTES] [--transport classic|uring]
//!         [--sync-on-write] [--no-passthrough]
//!           [--no-atomic-pages] [--detach]
//!
//! All files are of one class (data unless said otherwise). `--detach` writes everything home and
//! leaves a plain directory instead.

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tiersmith_mount::{Options, Transport, clear_dead, is_dead, mount};
use tiersmith_store::{Medium, Profile, TierSpec, attach};

struct Asked {
    home: PathBuf,
    tier: PathBuf,
    mib: u64,
    class: String,
    block: u32,
    detach: bool,
    mount: Options,
}

fn asked() -> Result<Asked, Box<dyn Error>> {
    let mut places = Vec::new();
    let mut asked = Asked {
        home: PathBuf::new(),
        tier: PathBuf::new(),
        mib: 0,
        class: "data".into(),
        block: 4096,
        detach: false,
        mount: Options::default(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--class" => asked.class = value()?,
            "--block" => asked.block = value()?.parse()?,
            "--transport" => {
                asked.mount.transport =
                    if value()? == "uring" { Transport::Uring } else { Transport::Classic };
            }
            "--sync-on-write" => asked.mount.sync_on_write = true,
            "--no-atomic-pages" => asked.mount.atomic_pages = false,
            "--no-passthrough" => asked.mount.passthrough = false,
            "--detach" => asked.detach = true,
            _ => places.push(argument),
        }
    }
    let [home, tier, mib] = &places[..] else { return Err("give HOME, TIER and MIB".into()) };
    (asked.home, asked.tier, asked.mib) = (home.into(), tier.into(), mib.parse()?);
    Ok(asked)
}

fn main() -> ExitCode {
    match asked().and_then(|asked| serve(&asked)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve(asked: &Asked) -> Result<(), Box<dyn Error>> {
    if is_dead(&asked.home) {
        clear_dead(&asked.home)?;
    }
    let text = format!(
        "description = \"one class\"\n[default]\nclass = \"{}\"\nblock_size = {}\n",
        asked.class, asked.block
    );
    let mut spec = TierSpec::new("fast", &asked.tier, Medium::Emulated, asked.mib << 20);
    spec.unit = 1 << 20;
    spec.slots = 1024;
    spec.lanes = 8;
    let options = tiersmith_store::Options {
        profile: Some(Profile::parse("serve", &text)?),
        redo_keep_bytes: (asked.mib << 20) / 4,
        ..Default::default()
    };
    let home = attach(Path::new(&asked.home), &[spec], options)?;
    println!("{}", home.stats().recovery);
    if asked.detach {
        return Ok(home.detach()?);
    }
    let mounted = mount(home, &asked.home, &asked.mount)?;
    println!("{:?}", mounted.report());
    println!("ready");
    mounted.wait();
    drop(mounted.unmount().map_err(|(_, e)| e)?);
    Ok(())
}
