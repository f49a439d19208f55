//! Names of Oracle's wait events: their classes, and in full where a text report cut them off.
//!
//! RAC's reports give the class of every event, others that of the events at the top only. Of the
//! rest it is known by the name, after the appendix on wait events of the Database Reference.
//!
//! Deliberately absent: what an event means (`snapshot/known.rs`).

use tiersmith_events::WaitClass;

use super::build::short;

/// The class of this name, also where a text report cut it off.
pub(super) fn class_named(name: &str) -> Option<WaitClass> {
    let name = name.trim();
    if name.len() < 5 {
        return None;
    }
    if name == "Sys I/O" {
        return Some(WaitClass::SystemIo);
    }
    WaitClass::ALL.into_iter().find(|class| class.name().starts_with(name))
}

/// Beginnings of names by class. The first list that has a beginning of the name decides, so that
/// exceptions come before the rule.
const CLASSES: &[(WaitClass, &[&str])] = &[
    (
        WaitClass::Concurrency,
        &[
            "buffer busy waits",
            "cursor:",
            "db flash cache invalidate",
            "enq: CB - role",
            "enq: TX - index",
            "latch: In memory undo",
            "latch: MGA",
            "latch: Undo Hint",
            "latch: cache buffers chains",
            "latch: library cache",
            "latch: row cache",
            "latch: shared pool",
            "libcache interrupt",
            "library cache",
            "log file sync: SCN",
            "os thread startup",
            "resmgr:internal state",
            "row cache",
            "securefile chain update",
        ],
    ),
    (WaitClass::Commit, &["log file sync", "remote log force - commit"]),
    (
        WaitClass::Configuration,
        &[
            "Global transaction acquire",
            "checkpoint completed",
            "enq: HW - contention",
            "enq: SQ - contention",
            "enq: SS - contention",
            "enq: SV",
            "enq: TX - allocate ITL",
            "free buffer waits",
            "latch: redo copy",
            "latch: redo writing",
            "log buffer space",
            "log file switch",
            "undo segment extension",
            "write complete waits",
        ],
    ),
    (
        WaitClass::Application,
        &[
            "SQL*Net break",
            "enq: KO - fast object",
            "enq: PW - flush",
            "enq: RC - Result Cache",
            "enq: RO - fast object",
            "enq: TM",
            "enq: TX - row",
            "enq: UL",
        ],
    ),
    (
        WaitClass::Cluster,
        &[
            "gc buffer busy",
            "gc cr ",
            "gc current ",
            "gc remaster",
            "gc domain validation",
            "pi renounce",
        ],
    ),
    (
        WaitClass::Scheduler,
        &[
            "resmgr:become active",
            "resmgr:cpu quantum",
            "resmgr:large I/O queued",
            "resmgr:pq queued",
            "resmgr:small I/O queued",
        ],
    ),
    (WaitClass::Queueing, &["Streams AQ: emn coordinator"]),
    (
        WaitClass::Other,
        &[
            "cell ram cache",
            "db flash cache dynamic",
            "cell worker",
            "Streams AQ: enqueue blocked",
            "log switch",
        ],
    ),
    (
        WaitClass::Idle,
        &[
            "ASM cluster membership",
            "Data Guard: ",
            "GCR sleep",
            "LNS ASYNC",
            "PING",
            "PX Deq Credit: need buffer",
            "PX Deq Credit: send blkd",
            "PX Deq: Execute Reply",
            "PX Deq: Execution Msg",
            "PX Deq: Index Merge",
            "PX Deq: Metadata",
            "PX Deq: Msg Fragment",
            "PX Deq: Par Recov",
            "PX Deq: Parse Reply",
            "PX Deq: Table Q Normal",
            "PX Deq: Table Q Sample",
            "REPL Capture/Apply: RAC AQ",
            "RMA: IPC0",
            "SGA: MMAN sleep",
            "Streams AQ",
            "auto-sqltune",
            "class slave wait",
            "gcs remote message",
            "gcs yield cpu",
            "ges remote message",
            "heartbeat ",
            "i/o slave wait",
            "jobq slave",
            "pipe get",
            "rdbms ipc message",
            "single-task message",
            "virtual circuit next request",
            "wait for unread message on b",
            "watchdog main loop",
        ],
    ),
    (
        WaitClass::Network,
        &[
            "Data Guard network",
            "IPC group service call",
            "TCP Socket",
            "dispatcher listen timer",
            "virtual circuit wait",
        ],
    ),
    (
        WaitClass::SystemIo,
        &[
            "Log archive I/O",
            "RMAN backup",
            "cell smart incremental backup",
            "control file",
            "db file async",
            "db file parallel write",
            "flashback log file read",
            "flashback log file write",
            "io done",
            "kfk: async disk IO",
            "ksfd: async disk IO",
            "log archive",
            "log file",
            "recovery read",
        ],
    ),
    (
        WaitClass::UserIo,
        &[
            "ASM IO for",
            "DG Broker configuration file",
            "Datapump dump file",
            "Disk file",
            "Parameter File I/O",
            "cell ",
            "db file",
            "db flash cache",
            "direct path",
            "flashback log file sync",
            "local write wait",
            "read by other session",
            "securefile",
            "utl_file I/O",
        ],
    ),
];

/// The class of an event that no table of the report gives, by its name.
pub(super) fn class_of(name: &str) -> WaitClass {
    let starts =
        |(_, words): &&(WaitClass, &[&str])| words.iter().any(|word| name.starts_with(word));
    if let Some((class, _)) = CLASSES.iter().find(starts) {
        *class
    } else if name.ends_with("message from client")
        || name.to_lowercase().contains("idle")
        || name.ends_with("timer")
    {
        WaitClass::Idle
    } else if name.starts_with("SQL*Net") {
        WaitClass::Network
    } else {
        WaitClass::Other
    }
}

/// Names that text reports cut off, in full.
const CUT: [&str; 14] = [
    "db flash cache single block physical read",
    "db flash cache multiblock physical read",
    "db flash cache invalidate wait",
    "cell single block physical read",
    "cell multiblock physical read",
    "log file switch (checkpoint incomplete)",
    "log file switch (archiving needed)",
    "log file switch (private strand flush incomplete)",
    "control file sequential read",
    "control file parallel write",
    "SQL*Net message from client",
    "SQL*Net more data to client",
    "write complete waits: flash cache",
    "enq: TX - row lock contention",
];

/// The name of an event, in full if a text report cut it off and only one name fits.
pub(super) fn full_name(name: &str) -> String {
    let name = short(name);
    let mut fits = CUT.iter().filter(|full| full.starts_with(&name) && name.len() >= 20);
    match (fits.next(), fits.next()) {
        (Some(full), None) => (*full).to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_a_text_report_cut_off_is_found_and_no_other_is() {
        for (printed, class) in [
            ("Cluster", WaitClass::Cluster),
            ("Scheduler", WaitClass::Scheduler),
            ("Queueing", WaitClass::Queueing),
            ("Concurrenc", WaitClass::Concurrency),
            ("Configurat", WaitClass::Configuration),
            ("Administra", WaitClass::Administrative),
            ("Sys I/O", WaitClass::SystemIo),
        ] {
            assert_eq!(class_named(printed), Some(class), "{printed}");
        }
        assert_eq!((class_named("Clu"), class_named("Clusters")), (None, None));
    }

    /// Events with the classes that reports give them.
    const GIVEN: &[(WaitClass, &[&str])] = &[
        (
            WaitClass::Application,
            &[
                "SQL*Net break/reset to client",
                "enq: TM - contention",
                "enq: TX - row lock contention",
                "enq: UL - contention",
                "enq: RO - fast object reuse",
                "enq: KO - fast object checkpoint",
            ],
        ),
        (WaitClass::Commit, &["log file sync", "remote log force - commit"]),
        (
            WaitClass::Concurrency,
            &[
                "buffer busy waits",
                "cursor: pin S wait on X",
                "enq: TX - index contention",
                "latch: cache buffers chains",
                "latch: shared pool",
                "library cache lock",
                "library cache: mutex X",
                "log file sync: SCN ordering",
                "row cache mutex",
                "securefile chain update",
            ],
        ),
        (
            WaitClass::Configuration,
            &[
                "enq: HW - contention",
                "enq: SQ - contention",
                "enq: TX - allocate ITL entry",
                "latch: redo copy",
                "latch: redo writing",
                "log buffer space",
                "log file switch completion",
                "log file switch (checkpoint incomplete)",
                "undo segment extension",
                "write complete waits",
                "free buffer waits",
            ],
        ),
        (
            WaitClass::Idle,
            &[
                "SQL*Net message from client",
                "PX Deq: Execution Msg",
                "PX Deq Credit: send blkd",
                "PX Idle Wait",
                "LGWR worker group idle",
                "LNS ASYNC end of log",
                "PL/SQL lock timer",
                "RMA: IPC0 completion sync",
                "Streams AQ: qmn slave idle wait",
                "class slave wait",
                "gcs remote message",
                "heartbeat monitor sleep",
                "jobq slave wait",
                "lreg timer",
                "rdbms ipc message",
                "shared server idle wait",
                "wait for unread message on broadcast channel",
            ],
        ),
        (
            WaitClass::Network,
            &[
                "SQL*Net message to client",
                "SQL*Net message from dblink",
                "SQL*Net more data from dblink",
                "TCP Socket (KGAS)",
                "dispatcher listen timer",
                "virtual circuit wait",
            ],
        ),
        (
            WaitClass::SystemIo,
            &[
                "Log archive I/O",
                "RMAN backup & recovery I/O",
                "control file parallel write",
                "db file async I/O submit",
                "db file parallel write",
                "flashback log file write",
                "kfk: async disk IO",
                "log file parallel write",
                "log file sequential read",
                "log file single write",
            ],
        ),
        (
            WaitClass::UserIo,
            &[
                "Disk file operations I/O",
                "cell single block physical read",
                "cell smart table scan",
                "db file scattered read",
                "db file sequential read",
                "direct path read",
                "direct path write temp",
                "flashback log file sync",
                "local write wait",
                "read by other session",
                "utl_file I/O",
            ],
        ),
        (
            WaitClass::Cluster,
            &[
                "gc buffer busy acquire",
                "gc cr block 2-way",
                "gc cr multi block request",
                "gc current block busy",
                "gc current grant 2-way",
                "gc remaster",
            ],
        ),
        (WaitClass::Scheduler, &["resmgr:cpu quantum", "resmgr:become active"]),
        (
            WaitClass::Other,
            &[
                "ADR block file read",
                "LGWR any worker group",
                "LGWR wait for redo copy",
                "PX Deq: Join ACK",
                "PX Deq: Slave Session Stats",
                "PX qref latch",
                "cell ram cache population",
                "enq: CF - contention",
                "latch free",
                "latch: enqueue hash chains",
                "latch: redo allocation",
                "rdbms ipc reply",
                "reliable message",
            ],
        ),
    ];

    #[test]
    fn classes_are_those_that_reports_give() {
        for (class, names) in GIVEN {
            for name in *names {
                assert_eq!(class_of(name), *class, "{name}");
            }
        }
    }
}
