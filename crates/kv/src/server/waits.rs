//! The server's wait events.

use tiersmith_events::wait_events;

wait_events! {
    /// The waits of the server.
    pub(crate) const EVENTS;
    /// The changes of a batch become durable in the tier.
    COMMIT = "tier commit", Commit;
    /// No client sends anything.
    IDLE = "client message", Idle;
    /// What a FLUSHDB took away is freed.
    TRASH = "trash emptied", SystemIo, background;
}
