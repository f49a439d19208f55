//! Clients that wait for a key: who is woken, when, and what is executed then.

use std::time::Instant;

use super::Server;
use super::client::Client;
use crate::command::{Reply, Waiting, step};

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

/// Why a client waits no more, other than that it got what it waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// Its time is over.
    TimeOut,
    /// CLIENT UNBLOCK, as if its time were over.
    Told,
    /// CLIENT UNBLOCK ... ERROR.
    Error,
}

impl Server {
    /// Lets those who wait for keys that have changed try again, the longest first.
    pub(super) fn wake(&mut self) {
        while let Some((db, key)) = self.shared.ready.pop_front() {
            let line = self.shared.waiting.get(&(db, key.clone()));
            for id in line.into_iter().flatten().copied().collect::<Vec<u64>>() {
                let kind = self.keys.get(db, &key).map(|found| found.header.kind);
                let Some(mut client) = self.clients.remove(&id) else { continue };
                if client.session.waiting.as_ref().is_some_and(|waiting| waiting.takes(kind)) {
                    self.try_again(&mut client, &key);
                }
                self.clients.insert(id, client);
            }
        }
    }

    fn try_again(&mut self, client: &mut Client, key: &[u8]) {
        let Some(waiting) = client.session.waiting.take() else { return };
        let arguments: Vec<&[u8]> = waiting.arguments.iter().map(Vec::as_slice).collect();
        self.shared.waking = Some(key.to_vec());
        let before = client.output.len();
        step(&mut self.keys, &mut self.shared, &mut client.session, &arguments, &mut client.output);
        self.shared.waking = None;
        if client.session.follows {
            // Its output is the stream.
            client.output.truncate(before);
        }
        if client.session.waiting.is_some() {
            // It keeps its place in line, and its time.
            client.session.waiting = Some(waiting);
        } else {
            self.shared.leave_lines(&waiting, client.session.id, &mut self.keys);
            self.go_on(client);
        }
    }

    /// A client has its reply, and may have sent more meanwhile.
    pub(super) fn go_on(&mut self, client: &mut Client) {
        let id = client.session.id;
        if !client.pending {
            client.pending = true;
            self.pending.push(id);
        }
        self.resumed.push(id);
    }

    /// Ends the waiting of those whose time is over, or who are told to.
    pub(super) fn end_waits(&mut self) {
        let now = Instant::now();
        while let Some((_, id)) =
            self.shared.deadlines.first().copied().filter(|(until, _)| *until <= now)
        {
            if !self.end_wait(id, Why::TimeOut) {
                self.shared.deadlines.pop_first();
            }
        }
        for (id, error) in std::mem::take(&mut self.shared.unblock) {
            self.end_wait(id, if error { Why::Error } else { Why::Told });
        }
    }

    fn end_wait(&mut self, id: u64, why: Why) -> bool {
        if why != Why::Error && self.shared.waits_for_replicas.contains(&id) {
            self.end_wait_for_replicas(id);
            return true;
        }
        let Some(mut client) = self.clients.remove(&id) else { return false };
        let waiting: Option<Waiting> =
            self.shared.wait_no_more(&mut client.session, &mut self.keys);
        if waiting.is_some() {
            let (before, resp3) = (client.output.len(), client.session.resp3);
            let mut reply = Reply { out: &mut client.output, resp3 };
            match why {
                Why::Error => reply.error(UNBLOCKED),
                // Of BLMOVE too, as in Redis.
                Why::TimeOut | Why::Told => reply.null_list(),
            }
            if client.session.follows {
                client.output.truncate(before);
            }
            let error = (why == Why::Error).then_some(UNBLOCKED);
            if let Some(waiting) = &waiting {
                self.shared.note_wait(waiting, why != Why::TimeOut, error);
            }
            self.go_on(&mut client);
        }
        self.clients.insert(id, client);
        waiting.is_some()
    }

    /// Executes what clients sent while they waited.
    pub(super) fn resume(&mut self) {
        while let Some(id) = self.resumed.pop() {
            if let Some(mut client) = self.clients.remove(&id) {
                self.execute(&mut client);
                self.count(&mut client);
                self.clients.insert(id, client);
            }
        }
    }
}
