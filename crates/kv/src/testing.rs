//! A server without sockets: one client, commands in, replies out; tests only.

use std::collections::BTreeMap;

use tiersmith_pmem::Mapping;

use crate::command::{
    Bystanders, Configuration, Identity, Running, Session, Shared, Told, check_libraries, step,
};
use crate::error::Error;
use crate::format::LIBRARIES;
use crate::format::entry::kind;
use crate::heap::Heap;
use crate::import::{Imported, import_into};
use crate::keyspace::{Copied, Keyspace};
use crate::planted::Planted;
use crate::rdb::Item;
use crate::server::request::{Limits, Next, Request};

/// What the databases hold: value, and when it expires, by database and key.
pub type Contents = BTreeMap<(u8, Vec<u8>), (Vec<u8>, Option<u64>)>;

/// Others who say SCRIPT KILL as soon as they can.
#[derive(Debug)]
struct Impatient;

impl Bystanders for Impatient {
    fn answer(&mut self, _running: &Running) -> Told {
        Told::Kill
    }
}

/// One client and its server.
#[derive(Debug)]
pub struct Local {
    keys: Keyspace,
    shared: Shared,
    session: Session,
}

impl Local {
    /// Makes an empty tier.
    ///
    /// # Errors
    /// Those of [`Heap::create`].
    pub fn create(map: Mapping, log_bytes: u64, planted: Planted) -> Result<Local, Error> {
        Ok(Local::of(Heap::create(map, log_bytes, planted)?))
    }

    /// Opens a tier as it was left.
    ///
    /// # Errors
    /// Those of [`Heap::open`].
    pub fn open(map: Mapping, planted: Planted) -> Result<Local, Error> {
        Ok(Local::of(Heap::open(map, planted)?))
    }

    fn of(heap: Heap) -> Local {
        let session = Session::new(1, "test".into(), "test".into(), Identity::unlimited());
        let mut keys = Keyspace::new(heap);
        keys.set_now_ms(1000);
        Local { keys, shared: Shared::new(Configuration::default()), session }
    }

    /// Sets the time.
    pub fn set_now_ms(&mut self, now_ms: u64) {
        self.keys.set_now_ms(now_ms);
    }

    /// Executes a command; nothing is durable before [`Local::commit`].
    pub fn run(&mut self, arguments: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        step(&mut self.keys, &mut self.shared, &mut self.session, arguments, &mut out);
        out
    }

    /// Executes a line of words.
    pub fn say(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8_lossy(&self.run(&words)).into_owned()
    }

    /// Takes what a client sends, as the server does, until it is used up or is no request; what
    /// was executed is durable then. The replies: a client that waits is told that it waited long
    /// enough.
    pub fn hear(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut request, mut done, mut out) = (Request::default(), 0, Vec::new());
        while !self.session.closing && !self.shared.shutdown && !self.shared.shutdown_now {
            let limits =
                Limits { bulk: self.shared.configuration.hot.bulk, allowed: self.session.allowed };
            let Next::Whole(len) = request.read(&bytes[done..], limits) else { break };
            let mut arguments = smallvec::SmallVec::new();
            request.arguments(&bytes[done..], &mut arguments);
            // A script that does not end is ended.
            let _ = self.shared.configuration.set("busy-reply-threshold", "200");
            self.shared.bystanders = Some(Box::new(Impatient));
            step(&mut self.keys, &mut self.shared, &mut self.session, &arguments, &mut out);
            drop(arguments);
            self.shared.line_up(&self.session, &mut self.keys);
            self.shared.wait_no_more(&mut self.session, &mut self.keys);
            self.shared.ready.clear();
            self.shared.wanted = None;
            self.shared.deliveries.take();
            done += len;
            request.reset();
        }
        self.commit();
        out
    }

    /// Imports a dump, or an append-only file; nothing may be there.
    ///
    /// # Errors
    /// Those of [`crate::import()`].
    pub fn import(&mut self, mut bytes: &[u8]) -> Result<Imported, Error> {
        import_into(&mut self.keys, &mut [&mut bytes])
    }

    /// Whether the libraries of functions can be made.
    pub fn has_sound_libraries(&mut self) -> bool {
        check_libraries(&mut self.shared, &self.keys).is_ok()
    }

    /// Makes what was executed durable.
    pub fn commit(&mut self) {
        self.keys.heap_mut().commit();
    }

    /// Copies a primary's data: these keys, and what is known of them.
    pub fn copy(&mut self, items: &[Item], history: &str, position: u64) {
        self.keys.begin_copy();
        for item in items {
            self.keys.load(item).expect("the tier has room");
            self.commit();
        }
        self.keys.set_history(history);
        self.keys.set_position(position, 0);
        self.keys.set_copied(Copied::Whole);
        self.commit();
    }

    /// Puts a key that comes from elsewhere; nothing is durable before [`Local::commit`].
    ///
    /// # Errors
    /// There is no space.
    pub fn load(&mut self, item: &Item) -> Result<(), String> {
        self.keys.load(item)
    }

    /// Executes a primary's command, behind which its stream is at `position`.
    pub fn obey(&mut self, line: &str, position: u64) {
        self.shared.position = Some(position);
        self.say(line);
        self.commit();
    }

    /// Nothing if these are the server's own data; otherwise whether they are a whole copy, and up
    /// to which position.
    pub fn copied(&self) -> Option<(bool, u64)> {
        match self.keys.copied() {
            Copied::Own => None,
            copied => Some((copied == Copied::Whole, self.keys.position())),
        }
    }

    /// Holds what the last commit made; [`Local::as_it_was`] reads it.
    pub fn hold(&mut self) {
        self.keys.heap_mut().hold();
    }

    /// Everything that was there when it was held. Nothing may be changed and not committed.
    pub fn as_it_was(&mut self) -> Contents {
        self.keys.heap_mut().look_back();
        let all = self.contents();
        self.keys.heap_mut().look_back();
        all
    }

    /// Forgets the moment that is held.
    pub fn let_go(&mut self) {
        self.keys.heap_mut().let_go();
    }

    /// Does what the server does between two batches.
    pub fn tidy(&mut self) {
        self.keys.empty_trash(8);
        self.keys.remove_expired(8);
        self.commit();
    }

    /// The databases.
    pub fn keys(&self) -> &Keyspace {
        &self.keys
    }

    /// The medium's bytes as this process sees them.
    pub fn image(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.keys.heap().plan().len as usize];
        self.keys.heap().read(0, &mut bytes);
        bytes
    }

    /// Everything; libraries of functions are in a database of their own.
    pub fn contents(&self) -> Contents {
        let mut all = Contents::new();
        for db in 0..=LIBRARIES {
            self.keys.for_each(db, |key, found| {
                let value = match found.header.kind {
                    kind::STRING => self.keys.value(found),
                    kind::LIST | kind::LIST_NODE => {
                        let elements = self.keys.elements(found, 0, u64::MAX);
                        assert_eq!(
                            elements.len() as u64,
                            self.keys.list_len(found),
                            "a wrong count"
                        );
                        elements.join(&b", "[..])
                    }
                    kind::STREAM => format!("{:?}", self.keys.content(found)).into_bytes(),
                    _ => {
                        let mut fields = self.keys.fields(found);
                        fields.sort();
                        fields
                            .into_iter()
                            .flat_map(|(field, value)| [field, value])
                            .flatten()
                            .collect()
                    }
                };
                let value = (value, found.header.expires);
                assert!(all.insert((db, key.to_vec()), value).is_none(), "a key is there twice");
            });
        }
        all
    }
}
