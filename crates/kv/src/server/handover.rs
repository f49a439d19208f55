//! The steps of a FAILOVER (`command/failover.rs`), and commands that wait for the end of a pause.

use std::time::Instant;

use super::Server;
use super::client::Client;
use crate::command::{
    Link, Phase, Session, Wanted, changes_libraries, changes_nothing, flag, lookup,
};

impl Server {
    /// Whether a command has to wait until the pause is over.
    pub(super) fn holds_back(&self, session: &Session, arguments: &[&[u8]]) -> bool {
        let Some(pause) = &self.shared.pause else { return false };
        if session.follows {
            return false;
        }
        let writes = |command: &[&[u8]]| {
            let Some(name) = command.first() else { return false };
            let script = [&b"eval"[..], b"evalsha", b"fcall"]
                .iter()
                .any(|runs| name.eq_ignore_ascii_case(runs));
            // Of PFCOUNT a Redis tells its replicas, too.
            let tells = [&b"publish"[..], b"spublish", b"pfcount"]
                .iter()
                .any(|tells| name.eq_ignore_ascii_case(tells));
            let row = lookup(name);
            // What is refused anyway is refused at once.
            row.is_some_and(|row| row.takes(command.len()))
                && (tells
                    || script && !changes_nothing(&self.shared, command)
                    || changes_libraries(command)
                    || row.is_some_and(|row| row.flags & flag::WRITE != 0))
        };
        let writes_queued =
            |command: &Vec<Vec<u8>>| writes(&command.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let Some(name) = arguments.first() else { return false };
        let ends = name.eq_ignore_ascii_case(b"exec");
        let queued = session.multi.iter().flat_map(|queued| &queued.commands);
        let own = session.multi.is_none() && writes(arguments);
        // Whoever ended a pause of all would wait for its end.
        let frees = name.eq_ignore_ascii_case(b"client") || name.eq_ignore_ascii_case(b"failover");
        pause.all && !frees || own || ends && queued.into_iter().any(writes_queued)
    }

    /// A client waits with what it sent until the pause is over.
    pub(super) fn hold_back(&mut self, client: &Client) {
        self.held_back.insert(client.session.id);
        self.shared.held_back = self.held_back.len();
    }

    /// Ends a pause whose time is over, and goes on with who waited for that.
    pub(super) fn end_pause(&mut self) {
        let over = |until: Option<Instant>| until.is_some_and(|until| until <= Instant::now());
        if self.shared.pause.is_some_and(|pause| over(pause.until)) {
            self.shared.pause = None;
            self.keys.frozen = false;
        }
        if self.shared.pause.is_none() && !self.held_back.is_empty() {
            self.resumed.extend(std::mem::take(&mut self.held_back));
            self.shared.held_back = 0;
        }
    }

    /// Goes on with a handover, if one is under way.
    pub(super) fn hand_over(&mut self) {
        let Some(failover) = &self.shared.failover else { return };
        let over = failover.until.is_some_and(|until| until <= Instant::now());
        if std::mem::take(&mut self.shared.abort_failover)
            || over && (failover.asked || !failover.force)
        {
            return self.stay_primary();
        }
        if failover.asked {
            match self.shared.following.as_ref().map(|following| following.link) {
                Some(Link::Up | Link::Sync) => self.end_failover(),
                Some(Link::Down) if self.refused_us() => self.stay_primary(),
                _ => {}
            }
            return;
        }
        let end = self.keys.position();
        let has_all = self.shared.replicas.values().find(|one| {
            let wanted =
                failover.to.as_ref().is_none_or(|(ip, port)| one.ip == *ip && one.port == *port);
            wanted
                && one.phase == Phase::Online
                && (one.acknowledged == end || over && failover.force)
        });
        if let Some(replica) = has_all {
            let wanted = Wanted::Primary { host: replica.ip.clone(), port: replica.port };
            self.shared.wanted = Some(wanted);
            if let Some(failover) = &mut self.shared.failover {
                failover.asked = true;
            }
            self.change_primary();
        }
    }

    /// Whether the replica that should be the primary was reached, and said no, or was not reached.
    fn refused_us(&self) -> bool {
        self.shared.following.as_ref().is_some_and(|following| following.tried)
    }

    fn end_failover(&mut self) {
        self.shared.failover = None;
        self.shared.pause = None;
        self.keys.frozen = false;
    }

    /// Gives the handover up.
    fn stay_primary(&mut self) {
        let asked = self.shared.failover.as_ref().is_some_and(|failover| failover.asked);
        self.end_failover();
        if asked {
            self.shared.wanted = Some(Wanted::NoOne);
            self.change_primary();
        }
    }
}
