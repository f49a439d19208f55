//! Many threads record, come and go while others read: nothing is lost, nothing is counted twice,
//! nothing goes back.

use std::sync::atomic::{AtomicBool, Ordering};

use tiersmith_events::{Registry, Totals, WaitClass, counters, wait_events};

wait_events! {
    /// Events for the tests.
    const EVENTS;
    /// A read.
    READ = "read", UserIo;
    /// A write.
    WRITE = "write", UserIo;
    /// A write in the background.
    DESTAGE = "destage", UserIo, background;
}
counters! {
    /// Counters for the tests.
    const COUNTERS;
    /// Operations.
    OPERATIONS = "operations", "operations";
}

const THREADS: u64 = 8;
const LIVES: u64 = 25;
const RECORDS: u64 = 400;

#[test]
fn threads_that_come_and_go_lose_nothing_and_count_nothing_twice() {
    let registry = Registry::new(EVENTS, COUNTERS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let registry = &registry;
            scope.spawn(move || {
                for _ in 0..LIVES {
                    let registry = registry.clone();
                    let short = std::thread::spawn(move || {
                        for at in 0..RECORDS {
                            registry.record_ns(READ, at * (thread + 1), 2);
                            registry.count(OPERATIONS, 1);
                        }
                    });
                    short.join().unwrap();
                }
            });
        }
    });
    let totals = registry.read();
    assert_eq!(totals.event(READ).count(), THREADS * LIVES * RECORDS);
    assert_eq!(totals.event(READ).bytes(), 2 * THREADS * LIVES * RECORDS);
    assert_eq!(totals.counter(OPERATIONS), THREADS * LIVES * RECORDS);
    let one_life: u64 = (0..RECORDS).sum();
    assert_eq!(
        totals.event(READ).total_ns(),
        (1..=THREADS).map(|thread| thread * one_life * LIVES).sum::<u64>()
    );
    assert_eq!(totals.event(READ).max_ns(), THREADS * (RECORDS - 1));
}

#[test]
fn readings_taken_while_threads_record_never_go_back_and_their_differences_add_up() {
    let registry = Registry::new(EVENTS, COUNTERS);
    let done = AtomicBool::new(false);
    let sum = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for at in 0..100_000u64 {
                        registry.record_ns(WRITE, at % 5_000, 1);
                        registry.count(OPERATIONS, 1);
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut earlier = registry.read();
            let (mut waits, mut operations) =
                (earlier.event(WRITE).count(), earlier.counter(OPERATIONS));
            let mut last = false;
            while !last {
                last = done.load(Ordering::Acquire);
                let now = registry.read();
                not_before(&now, &earlier);
                let difference = now.since(&earlier);
                waits += difference.event(WRITE).count();
                operations += difference.counter(OPERATIONS);
                earlier = now;
            }
            (waits, operations)
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap()
    });
    assert_eq!(sum, (300_000, 300_000));
}

fn not_before(now: &Totals, earlier: &Totals) {
    let (now_event, before) = (now.event(WRITE), earlier.event(WRITE));
    assert!(now_event.count() >= before.count() && now_event.total_ns() >= before.total_ns());
    assert!(
        now_event.bytes() >= before.bytes()
            && now.counter(OPERATIONS) >= earlier.counter(OPERATIONS)
    );
}

#[test]
fn a_class_is_added_up_apart_for_requests_and_background() {
    let registry = Registry::new(EVENTS, COUNTERS);
    registry.record_ns(READ, 10, 0);
    registry.record_ns(WRITE, 20, 0);
    registry.record_ns(DESTAGE, 40, 0);
    let totals = registry.read();
    let requests = totals.class(WaitClass::UserIo, false);
    assert_eq!((requests.count, requests.total_ns), (2, 30));
    assert_eq!(totals.class(WaitClass::UserIo, true).total_ns, 40);
    assert_eq!(totals.class(WaitClass::Commit, false).count, 0);
}

#[test]
fn two_registries_in_one_thread_stay_apart() {
    let (one, two) = (Registry::new(EVENTS, COUNTERS), Registry::new(EVENTS, COUNTERS));
    for _ in 0..3 {
        one.count(OPERATIONS, 1);
        two.count(OPERATIONS, 10);
    }
    assert_eq!((one.read().counter(OPERATIONS), two.read().counter(OPERATIONS)), (3, 30));
}
