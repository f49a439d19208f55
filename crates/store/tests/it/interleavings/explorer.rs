//! Runs small concurrent programs in every order, on a memory that is as weak as a processor may
//! make it.
//!
//! A program is some threads (`async` functions) whose every access to shared memory goes through
//! [`Thread`]. [`explore`] runs them again and again, each time with other decisions: who goes
//! next, and which of the values that a load may return it returns. It ends with the first
//! violation, or when there is no decision left to change.
//!
//! # The memory
//! A location is the list of all that was ever stored there. A thread has a *view*: for each
//! location the oldest value that it may still load. A stored value carries a view too, and who
//! loads it with acquire takes that view over. What the carried view holds depends on the machine:
//!
//! - [`Machine::Weak`], the rules of C11 and Rust, which aarch64 implements: a release store
//!   carries everything that the thread has seen and done. A relaxed one carries what was there at
//!   the last release fence; a relaxed load gives its view to the next acquire fence.
//! - [`Machine::X86`]: each load acquires, each store releases, except that data goes past the
//!   caches: it may be seen before anything that was stored since the last locked instruction or
//!   `sfence`, and later than anything before the next one.
//!
//! What a view lends as a slice must not be written while somebody reads it:
//! [`Thread::reads_slice`] and [`Thread::writes_frame`] find two accesses that nothing orders.
//!
//! Deliberately absent: loads that see what is stored after them in time (load buffering), and
//! stores that overtake others to the same place. Fairness: a program has no loops that wait, only
//! locks; when all threads wait that is a violation.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Which rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    Weak,
    X86,
}

/// Of a load, a store or a read-modify-write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Relaxed,
    Acquire,
    Release,
}

/// A word of shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loc(usize);

/// The oldest value of each location that may still be loaded.
type View = Vec<u32>;

struct Stored {
    value: u64,
    view: View,
}

#[derive(Clone, Default)]
struct Views {
    /// What the thread itself sees.
    own: View,
    /// What a release store of it carries.
    given: View,
    /// What a relaxed store of it, or one past the caches, carries.
    at_fence: View,
    /// What an acquire fence will take over.
    taken: View,
}

/// The decisions of a run, those of the run before first.
#[derive(Default)]
struct Decisions {
    taken: Vec<(u32, u32)>,
    next: usize,
}

impl Decisions {
    fn choose(&mut self, of: usize) -> usize {
        if of <= 1 {
            return 0;
        }
        if self.next == self.taken.len() {
            self.taken.push((0, of as u32));
        }
        let (choice, all) = self.taken[self.next];
        assert_eq!(all, of as u32, "the program does not do the same under the same decisions");
        self.next += 1;
        choice as usize
    }

    /// The next run's; `false` when there is none.
    fn advance(&mut self) -> bool {
        self.next = 0;
        while let Some((choice, of)) = self.taken.pop() {
            if choice + 1 < of {
                self.taken.push((choice + 1, of));
                return true;
            }
        }
        false
    }
}

struct World {
    machine: Machine,
    memory: Vec<Vec<Stored>>,
    views: Vec<Views>,
    /// The lock that a thread waits for.
    waits: Vec<Option<Loc>>,
    decisions: Decisions,
    failure: Option<String>,
}

fn join(view: &mut View, other: &View) {
    if view.len() < other.len() {
        view.resize(other.len(), 0);
    }
    for (mine, theirs) in view.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

fn raise(view: &mut View, at: Loc, to: u32) {
    if view.len() <= at.0 {
        view.resize(at.0 + 1, 0);
    }
    view[at.0] = view[at.0].max(to);
}

impl World {
    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    fn oldest(&self, id: usize, at: Loc) -> usize {
        self.views[id].own.get(at.0).copied().unwrap_or(0) as usize
    }

    fn take(&mut self, id: usize, at: Loc, index: usize, order: Order) -> u64 {
        let Stored { value, view } = &self.memory[at.0][index];
        let (value, views) = (*value, &mut self.views[id]);
        raise(&mut views.own, at, index as u32);
        raise(&mut views.given, at, index as u32);
        if order == Order::Acquire || self.machine == Machine::X86 {
            join(&mut views.own, view);
            join(&mut views.given, view);
        } else {
            join(&mut views.taken, view);
        }
        value
    }

    fn put(
        &mut self,
        id: usize,
        at: Loc,
        value: u64,
        order: Order,
        past_caches: bool,
        also: Option<View>,
    ) {
        let index = self.memory[at.0].len() as u32;
        let x86 = self.machine == Machine::X86;
        let views = &mut self.views[id];
        raise(&mut views.own, at, index);
        if !(past_caches && x86) {
            raise(&mut views.given, at, index);
        }
        let whole = !past_caches && (x86 || order == Order::Release);
        let mut view = if whole { views.given.clone() } else { views.at_fence.clone() };
        raise(&mut view, at, index);
        if let Some(also) = also {
            join(&mut view, &also);
        }
        self.memory[at.0].push(Stored { value, view });
    }

    fn fence_all(&mut self, id: usize) {
        let views = &mut self.views[id];
        let own = views.own.clone();
        join(&mut views.given, &own);
        views.at_fence = own;
    }
}

/// Gives the others a chance to go first.
struct Turn(bool);

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A thread's way to the memory.
#[derive(Clone)]
pub(crate) struct Thread {
    world: Rc<RefCell<World>>,
    id: usize,
}

impl Thread {
    /// One of the values that may be seen.
    pub(crate) async fn load(&self, at: Loc, order: Order) -> u64 {
        Turn(false).await;
        let mut world = self.world.borrow_mut();
        let (oldest, all) = (world.oldest(self.id, at), world.memory[at.0].len());
        // The newest first: what a program does mostly.
        let index = all - 1 - world.decisions.choose(all - oldest);
        world.take(self.id, at, index, order)
    }

    /// The newest value, for who keeps others from storing there: that it sees it for certain is
    /// checked.
    pub(crate) fn load_own(&self, at: Loc) -> u64 {
        let mut world = self.world.borrow_mut();
        let newest = world.memory[at.0].len() - 1;
        if world.oldest(self.id, at) != newest {
            world.fail(format!(
                "location {} is not the thread's own: it may see an older value",
                at.0
            ));
        }
        world.take(self.id, at, newest, Order::Relaxed)
    }

    /// The newest value, for a look at the end that is no part of the program.
    pub(crate) fn newest(&self, at: Loc) -> u64 {
        self.world.borrow().memory[at.0].last().map_or(0, |stored| stored.value)
    }

    pub(crate) async fn store(&self, at: Loc, value: u64, order: Order) {
        Turn(false).await;
        self.world.borrow_mut().put(self.id, at, value, order, false, None);
    }

    /// A store past the caches.
    pub(crate) async fn stream(&self, at: Loc, value: u64) {
        Turn(false).await;
        self.world.borrow_mut().put(self.id, at, value, Order::Relaxed, true, None);
    }

    /// A locked instruction; `change` says the new value, if there is to be one. Returns the old
    /// one.
    pub(crate) async fn modify(
        &self,
        at: Loc,
        (load, store): (Order, Order),
        change: impl Fn(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        Turn(false).await;
        let mut world = self.world.borrow_mut();
        let newest = world.memory[at.0].len() - 1;
        let now = world.memory[at.0][newest].value;
        let Some(new) = change(now) else {
            // A load that may be old says the same or worse; the newest is what matters here.
            return Err(world.take(self.id, at, newest, Order::Relaxed));
        };
        world.take(self.id, at, newest, load);
        if world.machine == Machine::X86 {
            world.fence_all(self.id);
        }
        // A read-modify-write goes on with what the value before carried.
        let before = world.memory[at.0][newest].view.clone();
        world.put(self.id, at, new, store, false, Some(before));
        Ok(now)
    }

    /// Waits until the lock is free.
    pub(crate) async fn lock(&self, at: Loc) {
        self.world.borrow_mut().waits[self.id] = Some(at);
        Turn(false).await;
        {
            let mut world = self.world.borrow_mut();
            world.waits[self.id] = None;
            let newest = world.memory[at.0].len() - 1;
            world.take(self.id, at, newest, Order::Acquire);
            if world.machine == Machine::X86 {
                world.fence_all(self.id);
            }
            let before = world.memory[at.0][newest].view.clone();
            world.put(self.id, at, 1, Order::Relaxed, false, Some(before));
        }
    }

    /// With a plain release store.
    pub(crate) async fn unlock(&self, at: Loc) {
        self.store(at, 0, Order::Release).await;
    }

    pub(crate) fn fence_acquire(&self) {
        let mut world = self.world.borrow_mut();
        let views = &mut world.views[self.id];
        let taken = std::mem::take(&mut views.taken);
        join(&mut views.own, &taken);
        join(&mut views.given, &taken);
    }

    /// On x86 it keeps the compiler in order and is no instruction.
    pub(crate) fn fence_release(&self) {
        let mut world = self.world.borrow_mut();
        if world.machine == Machine::Weak {
            let views = &mut world.views[self.id];
            views.at_fence = views.given.clone();
        }
    }

    /// `sfence`, or `dsb`.
    pub(crate) fn fence_medium(&self) {
        self.world.borrow_mut().fence_all(self.id);
    }

    /// Remembers that a slice of the frame with this mark was read.
    pub(crate) fn reads_slice(&self, mark: Loc) {
        self.world.borrow_mut().put(self.id, mark, 0, Order::Relaxed, false, None);
    }

    /// All readers of slices must have come before.
    pub(crate) fn writes_frame(&self, mark: Loc) {
        let mut world = self.world.borrow_mut();
        if world.oldest(self.id, mark) + 1 != world.memory[mark.0].len() {
            world.fail("a frame is written while a slice of it may be read".into());
        }
    }

    /// Something that may be either way.
    pub(crate) fn either(&self) -> bool {
        self.world.borrow_mut().decisions.choose(2) == 0
    }

    pub(crate) fn check(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.world.borrow_mut().fail(otherwise());
        }
    }
}

/// A thread's program.
type Program = Pin<Box<dyn Future<Output = ()>>>;

/// What is built anew for each run.
pub(crate) struct Scene {
    world: Rc<RefCell<World>>,
    programs: Vec<(Program, bool)>,
}

impl Scene {
    pub(crate) fn word(&mut self, value: u64) -> Loc {
        let mut world = self.world.borrow_mut();
        world.memory.push(vec![Stored { value, view: View::new() }]);
        Loc(world.memory.len() - 1)
    }

    /// A thread that goes on at any moment.
    pub(crate) fn thread<F: Future<Output = ()> + 'static>(
        &mut self,
        program: impl FnOnce(Thread) -> F,
    ) {
        self.add(program, false);
    }

    /// A thread that changes nothing. It begins when the others have ended: then it can load all
    /// that it could have loaded while they ran.
    pub(crate) fn observer<F: Future<Output = ()> + 'static>(
        &mut self,
        program: impl FnOnce(Thread) -> F,
    ) {
        self.add(program, true);
    }

    fn add<F: Future<Output = ()> + 'static>(
        &mut self,
        program: impl FnOnce(Thread) -> F,
        last: bool,
    ) {
        let id = self.programs.len();
        let mut world = self.world.borrow_mut();
        world.views.push(Views::default());
        world.waits.push(None);
        drop(world);
        let program = program(Thread { world: self.world.clone(), id });
        self.programs.push((Box::pin(program), last));
    }

    /// One run. `switches`: how often a thread that could go on may be made to wait.
    fn run(mut self, mut switches: u32) {
        let mut done = vec![false; self.programs.len()];
        let mut running = None;
        while self.world.borrow().failure.is_none() {
            let others_done =
                self.programs.iter().zip(&done).all(|((_, last), done)| *last || *done);
            let may_go = |id: &usize| {
                let world = self.world.borrow();
                let free = world.waits[*id]
                    .is_none_or(|lock| world.memory[lock.0].last().is_some_and(|s| s.value == 0));
                !done[*id] && free && (others_done || !self.programs[*id].1)
            };
            let mut ready: Vec<usize> = (0..done.len()).filter(may_go).collect();
            if ready.is_empty() {
                if !done.iter().all(|done| *done) {
                    self.world.borrow_mut().fail("all threads wait for each other".into());
                }
                return;
            }
            if let Some(at) = ready.iter().position(|id| Some(*id) == running) {
                // First the one that goes on.
                ready.swap(0, at);
                if switches == 0 {
                    ready.truncate(1);
                }
            }
            let choice = self.world.borrow_mut().decisions.choose(ready.len());
            switches -= u32::from(choice > 0 && Some(ready[0]) == running);
            let id = ready[choice];
            running = Some(id);
            done[id] = self.programs[id]
                .0
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready();
        }
    }
}

/// How an exploration ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) runs: u64,
    pub(crate) violation: Option<String>,
}

/// Runs what `build` makes in all orders in which a thread is made to wait at most `switches` times
/// while it could go on.
pub(crate) fn explore(machine: Machine, switches: u32, build: impl Fn(&mut Scene)) -> Outcome {
    let mut decisions = Decisions::default();
    for runs in 1.. {
        let world = World {
            machine,
            memory: Vec::new(),
            views: Vec::new(),
            waits: Vec::new(),
            decisions,
            failure: None,
        };
        let mut scene = Scene { world: Rc::new(RefCell::new(world)), programs: Vec::new() };
        build(&mut scene);
        let world = scene.world.clone();
        scene.run(switches);
        let mut world = world.borrow_mut();
        if let Some(violation) = world.failure.take() {
            return Outcome { runs, violation: Some(violation) };
        }
        decisions = std::mem::take(&mut world.decisions);
        if !decisions.advance() {
            return Outcome { runs, violation: None };
        }
        assert!(runs < 20_000_000, "too many orders to look at");
    }
    unreachable!("BUG: the loop above has no end of its own")
}
