//! What the daemon answers at its socket.
//!
//! Each connection has a thread; there are at most [`CONNECTIONS_MAX`]. Requests that end the mount
//! go to the daemon's own thread, which owns it. While such a request is on its way the others are
//! answered as before; when the home is gone they are told so.

use std::collections::HashSet;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tiersmith_awr::{MediumStat, Snapshot, Source, statistic};
use tiersmith_store::{AttachedHome, Candidate, FileClass, Moved, Stats, waits};

use super::control::{self, Done, Listener, Reply, Request, To};
use super::dirty_since::DirtySince;
use super::heat::Heat;
use super::live::{self, Known, Work};
use super::log::say;
use super::moves::{LiveMove, Moves, Running};
use super::scrub::Scrubs;

/// Connections served at one time.
const CONNECTIONS_MAX: usize = 16;
/// Files of a pattern of which it is said why they were left out.
const LEFT_OUT_MAX: usize = 20;
/// How often the daemon looks which files are dirty.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What the daemon's own thread is asked to do.
pub(super) enum Order {
    /// A signal: end when nobody uses the mount.
    Stop,
    /// A command: unmount, with `detach` also bring everything home. The answer is a sentence when
    /// it was not done.
    End {
        /// Not only unmount.
        detach: bool,
        /// Where the answer goes.
        answer: Sender<Result<(), String>>,
    },
}

/// What all connections share.
pub(super) struct Shared {
    home: Mutex<Option<AttachedHome>>,
    known: Known,
    dirty: Mutex<(DirtySince, Instant)>,
    orders: Mutex<Sender<Order>>,
    connections: AtomicUsize,
    scrubs: Scrubs,
    moves: Moves,
    heat: Mutex<Heat>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(home: AttachedHome, known: Known, orders: Sender<Order>) -> Arc<Shared> {
        let dirty = Mutex::new((DirtySince::default(), Instant::now()));
        let mut heat = Heat::default();
        heat.look(&home);
        Arc::new(Shared {
            home: Mutex::new(Some(home)),
            known,
            dirty,
            orders: Mutex::new(orders),
            connections: AtomicUsize::new(0),
            scrubs: Scrubs::default(),
            moves: Moves::default(),
            heat: Mutex::new(heat),
        })
    }

    /// The home, unless it was taken.
    fn home(&self) -> Option<AttachedHome> {
        lock(&self.home).clone()
    }

    /// Takes the home away, or gives it again.
    pub(super) fn put(&self, home: Option<AttachedHome>) {
        let taken = home.is_none();
        *lock(&self.home) = home;
        if taken {
            self.close_work();
        } else {
            self.open_work();
        }
    }

    /// Before the home is given back: nobody reads its tiers or moves its files any more.
    pub(super) fn close_work(&self) {
        self.moves.close();
        self.scrubs.close();
    }

    /// The home stays.
    pub(super) fn open_work(&self) {
        self.moves.open();
        self.scrubs.open();
    }

    /// Remembers which files are dirty, and how hot they are; called now and then.
    pub(super) fn look(&self) {
        if let Some(home) = self.home() {
            lock(&self.heat).look(&home);
            let (dirty, last) = &mut *lock(&self.dirty);
            dirty.look(&home, *last);
            *last = Instant::now();
        }
    }

    /// Whether pages that may be torn are not protected by the database any more. Noted, and said
    /// once.
    pub(super) fn has_unprotected_pages(&self) -> bool {
        let Some(home) = self.home() else { return false };
        let before = self.known.unprotected().is_some();
        let now = self.known.look_at_pages(&home);
        if let Some(why) = now.as_ref().filter(|_| !before) {
            say(why);
        }
        now.is_some()
    }

    /// Waits until no connection but `others` is served, for a while.
    pub(super) fn wait_for_connections(&self, others: usize) {
        let began = Instant::now();
        while self.connections.load(Ordering::Acquire) > others
            && began.elapsed() < control::PATIENCE
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Serves connections until the process ends.
pub(super) fn serve(listener: &Listener, shared: &Arc<Shared>) -> std::io::Result<()> {
    let socket = listener.socket.try_clone()?;
    let shared = shared.clone();
    let accept = move || {
        for stream in socket.incoming() {
            let Ok(mut stream) = stream else {
                // Out of descriptors, most likely; others are being closed.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            if shared.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
                shared.connections.fetch_sub(1, Ordering::AcqRel);
                // Without a word it would look like a daemon that has ended. A buffer that is new
                // has room for this.
                let busy = Reply::Failed { error: shared.known.busy() };
                let _ =
                    stream.set_nonblocking(true).and_then(|()| control::send(&mut stream, &busy));
                continue;
            }
            let of_thread = shared.clone();
            let spawned = std::thread::Builder::new().name("control".into()).spawn(move || {
                let _served = Served(of_thread.clone());
                connection(&of_thread, stream);
            });
            if spawned.is_err() {
                shared.connections.fetch_sub(1, Ordering::AcqRel);
            }
        }
    };
    std::thread::Builder::new().name("control-accept".into()).spawn(accept).map(|_| ())
}

/// Counts a connection down, also after a panic.
struct Served(Arc<Shared>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

fn connection(shared: &Arc<Shared>, mut stream: UnixStream) {
    let limits = [
        stream.set_read_timeout(Some(control::PATIENCE)),
        stream.set_write_timeout(Some(control::PATIENCE)),
    ];
    if !control::is_allowed(&stream) || limits.iter().any(Result::is_err) {
        return;
    }
    let request = match control::receive::<Request>(&mut stream, control::REQUEST_MAX) {
        Ok(Some(request)) => request,
        Ok(None) => return,
        Err(e) => {
            // Who it was learns it; if that fails too there is nobody to tell.
            let _ = control::send(
                &mut stream,
                &Reply::Failed {
                    error: format!("the daemon was not asked anything it knows: {e}"),
                },
            );
            return;
        }
    };
    let reply = match &request {
        Request::Unmount | Request::Detach => {
            let (answer, answered) = channel();
            let detach = request == Request::Detach;
            let asked = lock(&shared.orders).send(Order::End { detach, answer });
            match asked.ok().and_then(|()| wait_with_beats(&mut stream, &answered, || None)) {
                Some(Ok(())) => Reply::Done { done: Done::default() },
                Some(Err(error)) => Reply::Failed { error },
                None => Reply::Ending,
            }
        }
        Request::Status | Request::Hot | Request::Snapshot => answer(shared, &request),
        _ => answer_with_beats(shared, &request, &mut stream),
    };
    let _ = control::send(&mut stream, &reply);
    let ends = matches!(request, Request::Unmount | Request::Detach)
        && matches!(reply, Reply::Done { .. });
    if ends || matches!(reply, Reply::Ending) {
        // Closed by the end of the process, for which the other side waits.
        std::mem::forget(stream);
    }
}

/// Waits for what a thread of its own finds out, and says meanwhile that it is worked on. Whoever
/// has asked may go away; the work goes on. `None`: that thread has gone.
fn wait_with_beats<T>(
    stream: &mut UnixStream,
    answered: &Receiver<T>,
    far: impl Fn() -> Option<LiveMove>,
) -> Option<T> {
    let mut listens = true;
    loop {
        match answered.recv_timeout(control::BEAT) {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                let working = Reply::Working { moves: far().map(Box::new) };
                listens = listens && control::send(stream, &working).is_ok();
            }
        }
    }
}

/// The answer of a request that may take long.
fn answer_with_beats(shared: &Arc<Shared>, request: &Request, stream: &mut UnixStream) -> Reply {
    let (done, answered) = channel();
    let moves = matches!(request, Request::Pin { .. } | Request::Move { .. });
    let far = || shared.moves.live().filter(|job| moves && job.running);
    std::thread::scope(|scope| {
        let work = move || {
            // Who waits for it is below.
            let _ = done.send(answer(shared, request));
        };
        let begun =
            std::thread::Builder::new().name("control-work".into()).spawn_scoped(scope, work);
        let answer = match begun {
            Ok(work) => {
                let answer = wait_with_beats(stream, &answered, far);
                work.join().ok().and(answer)
            }
            Err(e) => Some(Reply::Failed { error: format!("the daemon can start no thread: {e}") }),
        };
        answer.unwrap_or_else(|| Reply::Failed {
            error: "the daemon failed at it; see its log".into(),
        })
    })
}

fn answer(shared: &Arc<Shared>, request: &Request) -> Reply {
    try_to_answer(shared, request).unwrap_or_else(|error| Reply::Failed { error })
}

fn try_to_answer(shared: &Arc<Shared>, request: &Request) -> Result<Reply, String> {
    let Some(home) = shared.home() else { return Ok(Reply::Ending) };
    let done = match request {
        Request::Status => {
            shared.look();
            let work = Work { scrub: shared.scrubs.live(), moves: shared.moves.live() };
            let live = live::look(&home, &shared.known, &lock(&shared.dirty).0, work);
            return Ok(Reply::Status { live: Box::new(live) });
        }
        Request::Hot => {
            shared.look();
            // A home that hangs must not keep the next look waiting.
            let heat = lock(&shared.heat).clone();
            let hot = heat.live(&home, &shared.known);
            return Ok(Reply::Hot { hot: Box::new(hot) });
        }
        Request::Snapshot => {
            return Ok(Reply::Snapshot { snapshot: Box::new(snapshot(shared, &home)) });
        }
        Request::Flush { pattern: None } => {
            let blocks = home.flush_all().map_err(|e| e.to_string())?;
            Done { files: home.files().len() as u64, blocks, ..Done::default() }
        }
        Request::Flush { pattern: Some(pattern) } => each(&matching(&home, pattern)?, |file| {
            if !file.in_tier {
                return Ok(Some(0));
            }
            home.destage(Some(&file.path)).map(Some).map_err(|e| e.to_string())
        }),
        Request::Pin { pattern, bytes_per_s } => {
            let files = matching(&home, pattern)?;
            let job = shared.moves.begin(format!("pin {pattern}"), &files, true, *bytes_per_s)?;
            moved(&job, each(&files, |file| pin(&home, file, &job)))
        }
        Request::Unpin { pattern } => each(&matching(&home, pattern)?, |file| {
            if !file.in_tier {
                return Err("it has nothing in the tier".into());
            }
            // Else it would be pinned all the same when that has come to it.
            if shared.moves.will_pin(&file.path) {
                return Err("a pin of it runs; end that first (tiersmith pin HOME --stop)".into());
            }
            home.unpin(&file.path).map(|()| Some(0)).map_err(|e| e.to_string())
        }),
        Request::Move { pattern, to, bytes_per_s } => {
            let files = matching(&home, pattern)?;
            let pinned: HashSet<PathBuf> =
                home.pinned().into_iter().map(|(path, _)| path).collect();
            let what = format!("move {pattern} --to {}", to.word());
            let job = shared.moves.begin(what, &files, false, *bytes_per_s)?;
            let one =
                |file: &Candidate| move_one(&home, file, *to, &job, pinned.contains(&file.path));
            moved(&job, each(&files, one))
        }
        Request::MoveStop => Done { files: u64::from(shared.moves.end()), ..Done::default() },
        Request::Scrub { bytes_per_s } => {
            shared.scrubs.begin(home, *bytes_per_s)?;
            Done::default()
        }
        Request::ScrubStop => Done { files: u64::from(shared.scrubs.end()), ..Done::default() },
        Request::Unmount | Request::Detach => return Err("BUG: answered before".into()),
    };
    Ok(Reply::Done { done })
}

/// The files of a pattern.
fn matching(home: &AttachedHome, pattern: &str) -> Result<Vec<Candidate>, String> {
    let files = home.candidates(pattern).map_err(|e| e.to_string())?;
    if files.is_empty() {
        return Err(format!(
            "no file of {} matches `{pattern}`; patterns are of paths inside it, as in \
             'base/16384/*'",
            home.home_path().display()
        ));
    }
    Ok(files)
}

/// Does something to every file, until it is ended: `None`.
fn each(
    files: &[Candidate],
    mut act: impl FnMut(&Candidate) -> Result<Option<u64>, String>,
) -> Done {
    let mut done = Done::default();
    let mut failed = 0_u64;
    for file in files {
        match act(file) {
            Ok(Some(blocks)) => {
                done.files += 1;
                done.blocks += blocks;
            }
            Ok(None) => {
                done.ended = true;
                break;
            }
            Err(why) => {
                failed += 1;
                if done.left_out.len() < LEFT_OUT_MAX {
                    done.left_out.push(format!("{}: {why}", file.path.display()));
                }
            }
        }
    }
    if failed > done.left_out.len() as u64 {
        done.left_out.push(format!("and {} more", failed - done.left_out.len() as u64));
    }
    done
}

/// What a pin or a move did, which came to its end if nobody ended it.
fn moved(job: &Running<'_>, done: Done) -> Done {
    if !done.ended {
        job.is_whole();
    }
    done
}

fn can_move(file: &Candidate) -> Result<(), String> {
    match file.class {
        FileClass::Pass => Err("the profile lets it pass; it has no blocks".into()),
        FileClass::Redo | FileClass::Data => Ok(()),
    }
}

fn pin(home: &AttachedHome, file: &Candidate, job: &Running<'_>) -> Result<Option<u64>, String> {
    job.file(file, |goes_on| {
        can_move(file)?;
        home.pin_at(&file.path, job.bytes_per_s, goes_on).map_err(|e| e.to_string())
    })
}

fn move_one(
    home: &AttachedHome,
    file: &Candidate,
    to: To,
    job: &Running<'_>,
    is_pinned: bool,
) -> Result<Option<u64>, String> {
    let (path, rate) = (&file.path, job.bytes_per_s);
    job.file(file, |goes_on| {
        if is_pinned {
            return Err("it is pinned; unpin it first".into());
        }
        if to == To::Tier {
            can_move(file)?;
        } else if !file.in_tier {
            return Ok(Moved::default());
        }
        let moved = match to {
            To::Tier => home.move_in_at(path, rate, goes_on),
            To::Home => home.move_home_at(path, rate, goes_on),
        };
        moved.map_err(|e| e.to_string())
    })
}

/// What the workload repository keeps of this instant.
fn snapshot(shared: &Shared, home: &AttachedHome) -> Snapshot {
    let stats = home.stats();
    let path = home.home_path();
    let mut source = Source {
        database: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        product: format!("a mounted home, profile {}", home.profile_name()),
        // Counters begin anew with each daemon.
        instance: format!("process {} of {}", std::process::id(), started_unix_s(&shared.known)),
        path: path.display().to_string(),
        ..Source::default()
    };
    let door = &shared.known.door;
    let settings = [
        ("mount transport", door.transport.clone()),
        ("mount sync on write", door.sync_on_write.to_string()),
        ("mount atomic pages", if door.atomic_pages { "on" } else { "off" }.to_owned()),
        ("profile", home.profile_name().to_owned()),
        ("home model", stats.home_model.clone().unwrap_or_else(|| "none".into())),
        ("cache rules", cache_rules(home)),
        ("write budget", write_budget(&stats)),
    ];
    source.settings.extend(settings.map(|(name, value)| (name.to_owned(), value)));
    let mut snapshot = Snapshot::now(source);
    fill(&mut snapshot, &stats);
    snapshot.add_level("mount atomic pages", "", u64::from(door.atomic_pages));
    let unprotected = shared.known.look_at_pages(home).is_some();
    snapshot.add_level("mount pages unprotected", "", u64::from(unprotected));
    let pinned = home.pinned();
    snapshot.add_level("files pinned", "files", pinned.len() as u64);
    snapshot.add_level("bytes of pinned files", "bytes", pinned.iter().map(|(_, size)| size).sum());
    for (kind, count) in shared.known.door().requests {
        snapshot.add_counter(&format!("mount requests {kind}"), "requests", count);
    }
    snapshot
}

/// The rules by which files are kept, in a line.
fn cache_rules(home: &AttachedHome) -> String {
    let rules: Vec<String> = home.cache_rules().iter().map(|used| used.rule.to_string()).collect();
    if rules.is_empty() { "none".into() } else { rules.join("; ") }
}

/// The tiers' budgets, in a line.
fn write_budget(stats: &Stats) -> String {
    let budgets = stats.tiers.iter().filter_map(|tier| tier.write_budget);
    let budgets: Vec<String> =
        budgets.map(|budget| format!("{} bytes a day", budget.bytes_a_day)).collect();
    if budgets.is_empty() { "none".into() } else { budgets.join("; ") }
}

fn started_unix_s(known: &Known) -> u64 {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(known.started.elapsed()).as_secs()
}

/// The sizes of what-if curves, of a tier's own.
const SIZES: [&str; 5] = ["a quarter", "a half", "its size", "twice", "four times"];

/// What a home's statistics are in a snapshot, mounted or attached by this process.
pub(crate) fn fill(snapshot: &mut Snapshot, stats: &Stats) {
    snapshot.add_waits(&stats.waits);
    snapshot.add_counters(&stats.waits);
    let event = |id| stats.waits.event(id);
    let reads = [event(waits::CACHED_READ), event(waits::DIRTY_READ)];
    let hits = stats.waits.counter(waits::TIER_HITS) + stats.waits.counter(waits::ZERO_COPY);
    let requests = hits.saturating_sub(stats.waits.counter(waits::MORE_HITS));
    let bytes = reads.iter().map(|read| read.bytes()).sum();
    snapshot.add_counter(statistic::READS_OPTIMIZED, "requests", requests);
    snapshot.add_counter(statistic::BYTES_OPTIMIZED, "bytes", bytes);
    snapshot.add_level("files home takes no blocks of", "", stats.refused_files);
    for tier in &stats.tiers {
        snapshot.add_io_of(&stats.waits, &tier.name);
        snapshot.add_medium(MediumStat {
            name: tier.name.clone(),
            kind: tier.media.first().and_then(|m| m.lines().next()).unwrap_or_default().to_owned(),
            emulated: tier.emulated,
            bytes: tier.bytes,
            used_bytes: tier.usable_bytes.saturating_sub(tier.free_bytes),
        });
        for (point, size) in tier.what_if.iter().flat_map(|w| &w.points).zip(SIZES) {
            if let Some(ratio) = point.hit_ratio {
                let name = format!("what if tier {} had {size}: hits", tier.name);
                snapshot.add_level(&name, "per mille", (1000.0 * ratio).round() as u64);
                let name = format!("what if tier {} had {size}: written", tier.name);
                snapshot.add_level(&name, "bytes", point.bytes_written as u64);
            }
        }
        if let Some(budget) = &tier.write_budget {
            snapshot.add_level("tier write budget", "bytes", budget.bytes_a_day);
            snapshot.add_level("tier written today", "bytes", budget.written_today);
            snapshot.add_level("tier copied today", "bytes", budget.copied_today);
            if let Some(threshold) = budget.threshold {
                let threshold = (1000.0 * threshold).round() as u64;
                snapshot.add_level("tier write budget threshold", "per mille", threshold);
            }
        }
        snapshot.add_level("tier dirty", "bytes", tier.dirty_bytes);
        snapshot.add_level("tier cached", "bytes", tier.cached_bytes);
        snapshot.add_level("tier free", "bytes", tier.free_bytes);
        snapshot.add_level("tier files", "files", tier.files);
        snapshot.add_level("tier file slots", "files", tier.file_slots);
        snapshot.add_level("files outside the tier", "files", tier.files_outside);
    }
}
