//! A client as CLIENT LIST and CLIENT KILL look at it. It is made in `connection.rs`.

/// What a client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Replica,
    Subscriber,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) id: u64,
    pub(super) address: String,
    pub(super) here: String,
    pub(super) user: Vec<u8>,
    pub(super) kind: Kind,
    /// As CLIENT LIST has it.
    pub(super) line: String,
}
