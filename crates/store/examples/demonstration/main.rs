//! The store's demonstration: the same small load on plain files and on an attached home, then a
//! killed writer.
//!
//! `./study` runs it; `--help` prints what it takes. It makes a directory of its own and takes it
//! away again, and touches nothing else.
//!
//! What it is not: a benchmark (that is `benches/block_write.rs`, with peers and rounds), and no
//! test of power cuts (those are simulated: `./check --crash`). The plain files and the attached
//! home are measured one after the other, each figure once.
//!
//! Read next: `place.rs` (where things are put), `measure.rs` (the load), `kill.rs` (the killed
//! writer), `print.rs` (the output).

#![forbid(unsafe_code)]

mod kill;
mod measure;
mod place;
mod print;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// What goes wrong here is said and ends the program.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const HELP: &str = "\
The store's demonstration: durable writes and reads on plain files and on an attached home, then a \
killed writer.

usage: demonstration [OPTION...]

  --home DIR     make the demonstration's directory in DIR, a place on the slower storage \
  (default: the build directory)
  --fast PATH    the fast storage: a directory, a new file, an empty file, or a DAX device
                 (default: a DAX file system if one is mounted, else /dev/shm if it is large \
                 enough, else a file beside the home)
  --seconds N    seconds per figure (default 3; there are seven figures)
  --json FILE    write the results to FILE as JSON as well
  --help         this text

exit code: 0 all is well; 1 something acknowledged was lost, or a file differs; 2 the \
demonstration could not run
";

/// The command line.
struct Arguments {
    home: Option<PathBuf>,
    fast: Option<PathBuf>,
    seconds: f64,
    json: Option<PathBuf>,
}

/// Parses the command line; nothing when only the help was asked for.
fn arguments() -> Result<Option<Arguments>> {
    let mut found = Arguments { home: None, fast: None, seconds: 3.0, json: None };
    let mut rest = std::env::args_os().skip(1);
    while let Some(option) = rest.next() {
        let option = option.to_string_lossy().into_owned();
        let mut value = || rest.next().ok_or_else(|| format!("{option} needs a value; see --help"));
        match option.as_str() {
            "--help" | "-h" => return Ok(None),
            "--home" => found.home = Some(value()?.into()),
            "--fast" => found.fast = Some(value()?.into()),
            "--json" => found.json = Some(value()?.into()),
            "--seconds" => {
                let text = value()?.to_string_lossy().into_owned();
                found.seconds =
                    text.parse().ok().filter(|s| (0.05..=3600.0).contains(s)).ok_or_else(|| {
                        format!("--seconds {text} is not a number from 0.05 to 3600")
                    })?;
            }
            _ => return Err(format!("there is no option {option}; see --help").into()),
        }
    }
    Ok(Some(found))
}

fn main() -> ExitCode {
    let mut first = std::env::args().skip(1);
    if first.next().as_deref() == Some(kill::CHILD) {
        return kill::child(first.next());
    }
    let arguments = match arguments() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            eprintln!("demonstration: {e}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(e) => {
            eprintln!("demonstration: {e}");
            ExitCode::from(2)
        }
    }
}

/// The whole demonstration; returns what it found wrong.
fn run(arguments: &Arguments) -> Result<Vec<String>> {
    let began = Instant::now();
    let place = place::choose(arguments)?;
    let mut report = print::Report::new(&place, arguments.seconds);
    report.head();

    place.make_files(&place.plain)?;
    let plain = measure::Plain::open(&place)?;
    let mut figures = measure::figures(&plain, &place, arguments.seconds, "plain files")?;
    drop(plain);

    place.make_files(&place.home)?;
    let attached = place.attach()?;
    report.medium(&attached.stats().tiers[0].media.join("\n"));
    let files = measure::Attached::open(&attached)?;
    let mut fast = measure::figures(&files, &place, arguments.seconds, "attached home")?;
    fast.push(measure::zero_copy(&files, &place, arguments.seconds)?);
    report.figures(std::mem::take(&mut figures), fast);
    report.waits(&attached.stats().waits);

    let mut model = kill::Model::read(&files, &place)?;
    drop(files);
    drop(attached);
    for round in 1..=kill::ROUNDS {
        let outcome = kill::round(&place, &mut model)?;
        report.kill(round, &outcome);
    }

    let attached = place.attach()?;
    let started = Instant::now();
    let destaged = attached.flush_all()?;
    let flushed = started.elapsed();
    attached.detach()?;
    let plain_faults = model.compare_with_plain(&place)?;
    report.detached(destaged, flushed, &plain_faults);

    report.finish(began.elapsed());
    if let Some(file) = &arguments.json {
        report.write_json(file)?;
    }
    Ok(report.faults())
}
