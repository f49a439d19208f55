//! The table of commands: what COMMAND says, what is checked before one runs, what the guide lists.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::flag::{
    self, ADMIN, F, FAST, N, NOT_IN_MULTI, NOT_QUEUED, R, RF, SUBSCRIBED, W, WF, WFX, WITHOUT_AUTH,
    WX,
};
use super::{Arguments, Context, Done, acl, subcommands};
use super::{
    acl as a, bitfield as bf, bits as b, configuration as cf, connection as c, dumps as d,
    failover as v, hashes as h, hyperloglog as y, information as i, keys as k, latency as la, lcs,
    lists as l, monitor as mo, pubsub as p, replicas as q, replication as r, scripting as g,
    sets as e, slowlog as sl, sorted as z, sorting as o, streams as x, strings as s,
    transactions as t,
};

/// A command.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Arguments with the name; negative: at least.
    pub(crate) arity: i8,
    pub(crate) flags: u16,
    /// First key, last key (negative: from the end), step.
    pub(crate) keys: [i8; 3],
    pub(crate) group: &'static str,
    /// Its first argument names what it does.
    pub(crate) has_subcommands: bool,
    pub(crate) run: fn(&mut Context<'_>, &Arguments<'_>) -> Done,
    pub(crate) summary: &'static str,
}

impl Row {
    /// Whether it takes so many arguments, its name among them.
    pub(crate) fn takes(&self, count: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= wanted } else { count == wanted }
    }

    /// Whether it leaves nothing of the data, whatever they are.
    pub(crate) fn empties(&self) -> bool {
        self.name == "flushall"
    }

    /// Whether it is about the libraries of functions.
    pub(crate) fn calls_functions(&self) -> bool {
        matches!(self.name, "fcall" | "fcall_ro" | "function")
    }

    /// The names of its flags. Where its keys are found in other ways than by their places, clients
    /// have to ask for them.
    pub(crate) fn flag_names(&self) -> Vec<&'static str> {
        let takes_space = self.flags & (flag::WRITE | flag::FREES) == flag::WRITE;
        [
            (self.flags & flag::WRITE != 0, "write"),
            (self.flags & flag::READ != 0, "readonly"),
            (takes_space, "denyoom"),
            (self.flags & flag::ADMIN != 0, "admin"),
            (self.flags & flag::FAST != 0, "fast"),
            (self.flags & flag::NOT_IN_SCRIPT != 0, "noscript"),
            (self.flags & flag::WITHOUT_AUTH != 0, "no_auth"),
            // PUBSUB itself has it with none of its subcommands.
            (self.group == "pubsub" && self.name != "pubsub", "pubsub"),
            (self.may_wait(), "blocking"),
            (acl::has_movable_keys(self.name), "movablekeys"),
        ]
        .into_iter()
        .filter(|(has, _)| *has)
        .map(|(_, name)| name)
        .collect()
    }

    /// Whether it can wait for elements or entries.
    fn may_wait(&self) -> bool {
        matches!(
            self.name,
            "blmove"
                | "blmpop"
                | "blpop"
                | "brpop"
                | "brpoplpush"
                | "bzmpop"
                | "bzpopmax"
                | "bzpopmin"
                | "xread"
                | "xreadgroup"
        )
    }
}

macro_rules! rows {
    ($($group:literal { $($name:literal $arity:literal $flags:expr,
        [$first:literal $last:literal $step:literal], $run:expr, $summary:literal;)+ })+) => {
        /// Every command.
        pub(crate) static TABLE: &[Row] = &[$($(Row {
            name: $name,
            arity: $arity,
            flags: $flags,
            keys: [$first, $last, $step],
            group: $group,
            has_subcommands: subcommands::are_of($name),
            run: $run,
            summary: $summary,
        },)+)+];
    };
}

rows! {
    "string" {
        "append" 3 WF, [1 1 1], s::append, "Append to a value";
        "decr" 2 WF, [1 1 1], s::decr, "Subtract one";
        "decrby" 3 WF, [1 1 1], s::decrby, "Subtract a number";
        "get" 2 RF, [1 1 1], s::get, "The value of a key";
        "getdel" 2 WFX, [1 1 1], s::getdel, "The value of a key, which is removed";
        "getex" -2 WFX, [1 1 1], s::getex, "The value of a key, and when it expires from now on";
        "getrange" 4 R, [1 1 1], s::getrange, "A part of a value";
        "getset" 3 WF, [1 1 1], s::getset, "Set a value and return the old one";
        "incr" 2 WF, [1 1 1], s::incr, "Add one";
        "incrby" 3 WF, [1 1 1], s::incrby, "Add a number";
        "incrbyfloat" 3 WF, [1 1 1], s::incrbyfloat, "Add a number with a fraction";
        "lcs" -3 R, [1 2 1], lcs::lcs, "The longest common subsequence";
        "mget" -2 RF, [1 -1 1], s::mget, "The values of several keys";
        "mset" -3 W, [1 -1 2], s::mset, "Set several keys, all or none";
        "msetnx" -3 W, [1 -1 2], s::msetnx, "Set several keys if none of them is there";
        "psetex" 4 W, [1 1 1], s::psetex, "Set a value that expires, in milliseconds";
        "set" -3 W, [1 1 1], s::set, "Set a value";
        "setex" 4 W, [1 1 1], s::setex, "Set a value that expires, in seconds";
        "setnx" 3 WF, [1 1 1], s::setnx, "Set a value if the key is not there";
        "setrange" 4 W, [1 1 1], s::setrange, "Overwrite a part of a value";
        "strlen" 2 RF, [1 1 1], s::strlen, "The length of a value";
        "substr" 4 R, [1 1 1], s::getrange, "A part of a value";
    }
    "bitmap" {
        "bitcount" -2 R, [1 1 1], b::bitcount, "Count bits";
        "bitfield" -2 W, [1 1 1], bf::bitfield, "Read and change whole numbers of any width";
        "bitfield_ro" -2 RF, [1 1 1], bf::bitfield_ro, "Read whole numbers of any width";
        "bitop" -4 W, [2 -1 1], b::bitop, "AND, OR, XOR, NOT of values";
        "bitpos" -3 R, [1 1 1], b::bitpos, "The first bit that is 0 or 1";
        "getbit" 3 RF, [1 1 1], b::getbit, "A bit";
        "setbit" 4 W, [1 1 1], b::setbit, "Set a bit";
    }
    "hash" {
        "hdel" -3 WFX, [1 1 1], h::hdel, "Remove fields";
        "hexists" 3 RF, [1 1 1], h::hexists, "Whether a field is there";
        "hget" 3 RF, [1 1 1], h::hget, "The value of a field";
        "hgetall" 2 R, [1 1 1], h::hgetall, "All fields with their values";
        "hincrby" 4 WF, [1 1 1], h::hincrby, "Add a number to a field";
        "hincrbyfloat" 4 WF, [1 1 1], h::hincrbyfloat, "Add a number with a fraction to a field";
        "hkeys" 2 R, [1 1 1], h::hkeys, "All fields";
        "hlen" 2 RF, [1 1 1], h::hlen, "How many fields there are";
        "hmget" -3 RF, [1 1 1], h::hmget, "The values of several fields";
        "hmset" -4 WF, [1 1 1], h::hmset, "Set several fields";
        "hrandfield" -2 R, [1 1 1], h::hrandfield, "Some fields";
        "hscan" -3 R, [1 1 1], h::hscan, "Walk over the fields";
        "hset" -4 WF, [1 1 1], h::hset, "Set fields";
        "hsetnx" 4 WF, [1 1 1], h::hsetnx, "Set a field if it is not there";
        "hstrlen" 3 RF, [1 1 1], h::hstrlen, "The length of a field's value";
        "hvals" 2 R, [1 1 1], h::hvals, "All values";
    }
    "list" {
        "blmove" 6 W | N, [1 2 1], l::blmove, "Move an element, or wait for one";
        "blmpop" -5 W, [0 0 0], l::blmpop, "Take elements from the first list that has some, or \
                                            wait";
        "blpop" -3 W | N, [1 -2 1], l::blpop, "Take the first element of a list, or wait for one";
        "brpop" -3 W | N, [1 -2 1], l::brpop, "Take the last element of a list, or wait for one";
        "brpoplpush" 4 W | N, [1 2 1], l::brpoplpush, "Move the last element, or wait for one";
        "lindex" 3 R, [1 1 1], l::lindex, "An element";
        "linsert" 5 W, [1 1 1], l::linsert, "Put an element beside another one";
        "llen" 2 RF, [1 1 1], l::llen, "How many elements there are";
        "lmove" 5 W, [1 2 1], l::lmove, "Move an element to a list";
        "lmpop" -4 WX, [0 0 0], l::lmpop, "Take elements from the first list that has some";
        "lpop" -2 WFX, [1 1 1], l::lpop, "Take the first elements";
        "lpos" -3 R, [1 1 1], l::lpos, "Where elements are";
        "lpush" -3 WF, [1 1 1], l::lpush, "Put elements before the first one";
        "lpushx" -3 WF, [1 1 1], l::lpushx, "Put elements before the first one, if there is one";
        "lrange" 4 R, [1 1 1], l::lrange, "Some elements";
        "lrem" 4 WX, [1 1 1], l::lrem, "Remove elements that are equal";
        "lset" 4 W, [1 1 1], l::lset, "Change an element";
        "ltrim" 4 WX, [1 1 1], l::ltrim, "Remove all but some elements";
        "rpop" -2 WFX, [1 1 1], l::rpop, "Take the last elements";
        "rpoplpush" 3 W, [1 2 1], l::rpoplpush, "Move the last element to the front of a list";
        "rpush" -3 WF, [1 1 1], l::rpush, "Put elements behind the last one";
        "rpushx" -3 WF, [1 1 1], l::rpushx, "Put elements behind the last one, if there is one";
    }
    "set" {
        "sadd" -3 WF, [1 1 1], e::sadd, "Add members";
        "scard" 2 RF, [1 1 1], e::scard, "How many members there are";
        "sdiff" -2 R, [1 -1 1], e::sdiff, "Members that other sets do not have";
        "sdiffstore" -3 W, [1 -1 1], e::sdiffstore, "Store what SDIFF says";
        "sinter" -2 R, [1 -1 1], e::sinter, "Members that all sets have";
        "sintercard" -3 R, [0 0 0], e::sintercard, "How many members all sets have";
        "sinterstore" -3 W, [1 -1 1], e::sinterstore, "Store what SINTER says";
        "sismember" 3 RF, [1 1 1], e::sismember, "Whether a member is there";
        "smembers" 2 R, [1 1 1], e::smembers, "All members";
        "smismember" -3 RF, [1 1 1], e::smismember, "Which members are there";
        "smove" 4 WF, [1 2 1], e::smove, "Move a member to another set";
        "spop" -2 WFX, [1 1 1], e::spop, "Take some members";
        "srandmember" -2 R, [1 1 1], e::srandmember, "Some members";
        "srem" -3 WFX, [1 1 1], e::srem, "Remove members";
        "sscan" -3 R, [1 1 1], e::sscan, "Walk over the members";
        "sunion" -2 R, [1 -1 1], e::sunion, "Members that some set has";
        "sunionstore" -3 W, [1 -1 1], e::sunionstore, "Store what SUNION says";
    }
    "sorted-set" {
        "bzmpop" -5 W, [0 0 0], z::pop::bzmpop, "Take members from the first set that has some, or \
                                                 wait";
        "bzpopmax" -3 WF | N, [1 -2 1], z::pop::bzpopmax, "Take the member with the highest score, \
                                                           or wait";
        "bzpopmin" -3 WF | N, [1 -2 1], z::pop::bzpopmin, "Take the member with the lowest score, \
                                                           or wait";
        "zadd" -4 WF, [1 1 1], z::zadd, "Add members, or change their scores";
        "zcard" 2 RF, [1 1 1], z::zcard, "How many members there are";
        "zcount" 4 RF, [1 1 1], z::range::zcount, "How many members have scores in a range";
        "zdiff" -3 R, [0 0 0], z::combine::zdiff, "Members that other sets do not have";
        "zdiffstore" -4 W, [1 1 1], z::combine::zdiffstore, "Store what ZDIFF says";
        "zincrby" 4 WF, [1 1 1], z::zincrby, "Add to a score";
        "zinter" -3 R, [0 0 0], z::combine::zinter, "Members that all sets have";
        "zintercard" -3 R, [0 0 0], z::combine::zintercard, "How many members all sets have";
        "zinterstore" -4 W, [1 1 1], z::combine::zinterstore, "Store what ZINTER says";
        "zlexcount" 4 RF, [1 1 1], z::range::zlexcount, "How many members are in a range";
        "zmpop" -4 WX, [0 0 0], z::pop::zmpop, "Take members from the first set that has some";
        "zmscore" -3 RF, [1 1 1], z::zmscore, "The scores of members";
        "zpopmax" -2 WFX, [1 1 1], z::pop::zpopmax, "Take the members with the highest scores";
        "zpopmin" -2 WFX, [1 1 1], z::pop::zpopmin, "Take the members with the lowest scores";
        "zrandmember" -2 R, [1 1 1], z::zrandmember, "Some members";
        "zrange" -4 R, [1 1 1], z::range::zrange, "Members in a range";
        "zrangebylex" -4 R, [1 1 1], z::range::zrangebylex, "Members in a range of members";
        "zrangebyscore" -4 R, [1 1 1], z::range::zrangebyscore, "Members in a range of scores";
        "zrangestore" -5 W, [1 2 1], z::range::zrangestore, "Store what ZRANGE says";
        "zrank" 3 RF, [1 1 1], z::zrank, "How many members come before one";
        "zrem" -3 WFX, [1 1 1], z::zrem, "Remove members";
        "zremrangebylex" 4 WX, [1 1 1], z::range::zremrangebylex, "Remove a range of members";
        "zremrangebyrank" 4 WX, [1 1 1], z::range::zremrangebyrank, "Remove a range of ranks";
        "zremrangebyscore" 4 WX, [1 1 1], z::range::zremrangebyscore, "Remove a range of scores";
        "zrevrange" -4 R, [1 1 1], z::range::zrevrange, "Members in a range, the highest first";
        "zrevrangebylex" -4 R, [1 1 1], z::range::zrevrangebylex, "Members in a range, the highest \
            first";
        "zrevrangebyscore" -4 R, [1 1 1], z::range::zrevrangebyscore,
            "Members in a range of scores, the highest first";
        "zrevrank" 3 RF, [1 1 1], z::zrevrank, "How many members come after one";
        "zscan" -3 R, [1 1 1], z::zscan, "Walk over the members";
        "zscore" 3 RF, [1 1 1], z::zscore, "The score of a member";
        "zunion" -3 R, [0 0 0], z::combine::zunion, "Members that some set has";
        "zunionstore" -4 W, [1 1 1], z::combine::zunionstore, "Store what ZUNION says";
    }
    "geo" {
        "geoadd" -5 W, [1 1 1], z::geo::geoadd, "Add members with their places, or move them";
        "geodist" -4 R, [1 1 1], z::geo::geodist, "How far two members are apart";
        "geohash" -2 R, [1 1 1], z::geo::geohash, "The geohashes of members";
        "geopos" -2 R, [1 1 1], z::geo::geopos, "The places of members";
        "georadius" -6 W, [1 1 1], z::geo::georadius, "Members within a circle, which may be \
                                                       stored";
        "georadius_ro" -6 R, [1 1 1], z::geo::georadius_ro, "Members within a circle";
        "georadiusbymember" -5 W, [1 1 1], z::geo::georadiusbymember,
            "Members within a circle around one, which may be stored";
        "georadiusbymember_ro" -5 R, [1 1 1], z::geo::georadiusbymember_ro,
            "Members within a circle around one";
        "geosearch" -7 R, [1 1 1], z::geo::geosearch, "Members within a circle or a rectangle";
        "geosearchstore" -8 W, [1 2 1], z::geo::geosearchstore, "Store what GEOSEARCH says";
    }
    "stream" {
        "xack" -4 WFX, [1 1 1], x::xack, "Acknowledge what was delivered to a group";
        "xadd" -5 WF, [1 1 1], x::xadd, "Add an entry";
        "xautoclaim" -6 WF, [1 1 1], x::xautoclaim, "Take over what others did not acknowledge";
        "xclaim" -6 WF, [1 1 1], x::xclaim, "Take over what others did not acknowledge, by ID";
        "xdel" -3 WFX, [1 1 1], x::xdel, "Remove entries";
        "xgroup" -2 W, [2 2 1], x::xgroup, "Make, change and remove groups and consumers";
        "xinfo" -2 R, [2 2 1], x::xinfo, "About a stream, its groups and their consumers";
        "xlen" 2 RF, [1 1 1], x::xlen, "How many entries there are";
        "xpending" -3 R, [1 1 1], x::xpending, "What was delivered and not acknowledged";
        "xrange" -4 R, [1 1 1], x::xrange, "Entries in a range of IDs";
        "xread" -4 R, [0 0 0], x::xread, "Entries behind an ID, or wait for one";
        "xreadgroup" -7 W, [0 0 0], x::xreadgroup, "Entries that nobody of a group has got, or \
                                                    wait for one";
        "xrevrange" -4 R, [1 1 1], x::xrevrange, "Entries in a range of IDs, the last first";
        "xsetid" -3 WF, [1 1 1], x::xsetid, "Set the last ID of a stream";
        "xtrim" -4 WX, [1 1 1], x::xtrim, "Remove the first entries";
    }
    "hyperloglog" {
        "pfadd" -2 WF, [1 1 1], y::pfadd, "Add elements to count";
        "pfcount" -2 R, [1 -1 1], y::pfcount, "How many different elements were added, about";
        "pfmerge" -2 W, [1 -1 1], y::pfmerge, "Add what was added to other keys";
    }
    "generic" {
        "copy" -3 W, [1 2 1], k::copy, "Copy a key";
        "del" -2 WX, [1 -1 1], k::del, "Remove keys";
        "dump" 2 R, [1 1 1], d::dump, "A value as bytes, for RESTORE";
        "exists" -2 RF, [1 -1 1], k::exists, "How many of some keys are there";
        "expire" -3 WFX, [1 1 1], k::expire_in, "Let a key expire in some seconds";
        "expireat" -3 WFX, [1 1 1], k::expireat, "Let a key expire at a time in seconds";
        "expiretime" 2 RF, [1 1 1], k::expiretime, "When a key expires, in seconds";
        "keys" 2 R, [0 0 0], k::keys, "All keys that match a pattern";
        "move" 3 WF, [1 1 1], k::move_to, "Move a key to another database";
        "object" -2 R, [2 2 1], k::object, "How a value is kept";
        "persist" 2 WFX, [1 1 1], k::persist, "Let a key expire no more";
        "pexpire" -3 WFX, [1 1 1], k::pexpire, "Let a key expire in some milliseconds";
        "pexpireat" -3 WFX, [1 1 1], k::pexpireat, "Let a key expire at a time in milliseconds";
        "pexpiretime" 2 RF, [1 1 1], k::pexpiretime, "When a key expires, in milliseconds";
        "pttl" 2 RF, [1 1 1], k::pttl, "The milliseconds until a key expires";
        "randomkey" 1 R, [0 0 0], k::randomkey, "Some key";
        "rename" 3 W, [1 2 1], k::rename, "Rename a key";
        "renamenx" 3 WF, [1 2 1], k::renamenx, "Rename a key if the new name is free";
        "restore" -4 W, [1 1 1], d::restore, "Make a key of what DUMP said";
        "scan" -2 R, [0 0 0], k::scan, "Walk over the keys";
        "sort" -2 W, [1 1 1], o::sort, "Elements in another order, which may be stored";
        "sort_ro" -2 R, [1 1 1], o::sort_ro, "Elements in another order";
        "touch" -2 RF, [1 -1 1], k::exists, "How many of some keys are there";
        "ttl" 2 RF, [1 1 1], k::ttl, "The seconds until a key expires";
        "type" 2 RF, [1 1 1], k::type_of, "The type of a value";
        "unlink" -2 WFX, [1 -1 1], k::del, "Remove keys";
        "wait" 3 0, [0 0 0], q::wait, "Wait until replicas have what this client wrote";
    }
    "transactions" {
        "discard" 1 FAST | NOT_QUEUED | N, [0 0 0], t::discard, "Forget a transaction";
        "exec" 1 NOT_QUEUED | N, [0 0 0], t::exec, "Execute a transaction, all or nothing";
        "multi" 1 FAST | NOT_QUEUED | N, [0 0 0], t::multi, "Begin a transaction";
        "unwatch" 1 F | N, [0 0 0], t::unwatch, "Forget the watched keys";
        "watch" -2 FAST | NOT_QUEUED | N, [1 -1 1], t::watch, "Let EXEC fail if keys change";
    }
    "scripting" {
        "eval" -3 N, [0 0 0], g::eval, "Run a script";
        "eval_ro" -3 N, [0 0 0], g::eval_ro, "Run a script that changes nothing";
        "evalsha" -3 N, [0 0 0], g::evalsha, "Run a script that is known";
        "evalsha_ro" -3 N, [0 0 0], g::evalsha_ro, "Run a known script that changes nothing";
        "fcall" -3 N, [0 0 0], g::fcall, "Call a function of a library";
        "fcall_ro" -3 N, [0 0 0], g::fcall_ro, "Call a function that changes nothing";
        "function" -2 N, [0 0 0], g::function, "Libraries of functions";
        "script" -2 N, [0 0 0], g::script, "The scripts that are known, and the one that runs";
    }
    "pubsub" {
        "psubscribe" -2 SUBSCRIBED | N, [0 0 0], p::psubscribe, "Subscribe to patterns";
        "publish" 3 F, [0 0 0], p::publish, "Send a message";
        "pubsub" -2 0, [0 0 0], p::pubsub, "Who is subscribed to what";
        "punsubscribe" -1 SUBSCRIBED | N, [0 0 0], p::punsubscribe, "Unsubscribe from patterns";
        "subscribe" -2 SUBSCRIBED | N, [0 0 0], p::subscribe, "Subscribe to channels";
        "unsubscribe" -1 SUBSCRIBED | N, [0 0 0], p::unsubscribe, "Unsubscribe from channels";
    }
    "connection" {
        "asking" 1 F, [0 0 0], i::cluster, "Nothing: there is no cluster, and it says so";
        "auth" -2 FAST | WITHOUT_AUTH | N, [0 0 0], c::auth, "Give the password";
        "client" -2 N, [0 0 0], c::client, "About this client and the others";
        "echo" 2 F, [0 0 0], c::echo, "Return the argument";
        "hello" -1 FAST | WITHOUT_AUTH | N, [0 0 0], c::hello, "Choose the protocol";
        "ping" -1 FAST | SUBSCRIBED, [0 0 0], c::ping, "Is the server there";
        "quit" -1 FAST | WITHOUT_AUTH | NOT_QUEUED | SUBSCRIBED | N, [0 0 0], c::quit, "Close the \
            connection";
        "readonly" 1 F, [0 0 0], i::cluster, "Nothing: there is no cluster, and it says so";
        "readwrite" 1 F, [0 0 0], i::cluster, "Nothing: there is no cluster, and it says so";
        "reset" 1 FAST | WITHOUT_AUTH | NOT_QUEUED | SUBSCRIBED | N, [0 0 0], c::reset,
            "Begin the session anew";
        "select" 2 F, [0 0 0], c::select, "Choose a database";
    }
    "server" {
        "acl" -2 N, [0 0 0], a::acl, "Users and what they may do";
        "bgrewriteaof" 1 ADMIN | N, [0 0 0], i::save, "Nothing: every write is durable";
        "bgsave" -1 ADMIN | N, [0 0 0], i::save, "Nothing: every write is durable";
        "cluster" -2 0, [0 0 0], i::cluster, "Nothing: there is no cluster, and it says so";
        "command" -1 0, [0 0 0], i::command, "About commands";
        "config" -2 ADMIN | N, [0 0 0], cf::config, "Settings";
        "dbsize" 1 RF, [0 0 0], k::dbsize, "How many keys there are";
        "debug" -2 ADMIN | N, [0 0 0], i::debug, "Nothing: it is not allowed, as in Redis by \
                                                  default";
        "failover" -1 ADMIN | N, [0 0 0], v::failover, "Hand the role of the primary to a replica";
        "flushall" -1 WX, [0 0 0], k::flushall, "Remove all keys of all databases";
        "flushdb" -1 WX, [0 0 0], k::flushdb, "Remove all keys";
        "info" -1 0, [0 0 0], i::info, "About the server";
        "lastsave" 1 F, [0 0 0], i::lastsave, "Now: every write is durable";
        "latency" -2 ADMIN | N, [0 0 0], la::latency, "When something took long, and how long \
            commands take";
        "memory" -2 R, [0 0 0], i::memory, "The space a key takes";
        "monitor" 1 ADMIN | N, [0 0 0], mo::monitor, "Tell this client of every command";
        "psync" -3 ADMIN | NOT_IN_MULTI | N, [0 0 0], q::psync, "Follow this server, from a place \
            on if that can be";
        "replconf" -1 ADMIN | N, [0 0 0], q::replconf, "What a replica says of itself";
        "replicaof" 3 ADMIN | N, [0 0 0], r::replicaof, "Follow a primary, or no one";
        "role" 1 F | N, [0 0 0], r::role, "Primary or replica";
        "save" 1 ADMIN | NOT_IN_MULTI | N, [0 0 0], i::save, "Nothing: every write is durable";
        "shutdown" -1 ADMIN | NOT_IN_MULTI | N, [0 0 0], i::shutdown, "End the server";
        "slaveof" 3 ADMIN | N, [0 0 0], r::replicaof, "Follow a primary, or no one";
        "slowlog" -2 0, [0 0 0], sl::slowlog, "Commands that took long";
        "swapdb" 3 WF, [0 0 0], k::swapdb, "Exchange two databases";
        "sync" 1 ADMIN | NOT_IN_MULTI | N, [0 0 0], q::sync, "Follow this server, with a copy \
            first";
        "time" 1 F, [0 0 0], i::time, "The server's time";
    }
}

/// The row of a command; names are in small letters in the table.
pub(crate) fn lookup(name: &[u8]) -> Option<&'static Row> {
    static BY_NAME: LazyLock<HashMap<&'static str, &'static Row>> =
        LazyLock::new(|| TABLE.iter().map(|row| (row.name, row)).collect());
    let mut small = [0; 24];
    let small = small.get_mut(..name.len())?;
    small.copy_from_slice(name);
    small.make_ascii_lowercase();
    BY_NAME.get(std::str::from_utf8(small).ok()?).copied()
}

/// The table as the guide has it, in Markdown.
pub fn table_for_people() -> String {
    let mut text = String::new();
    let mut group = "";
    for row in TABLE {
        if row.group != group {
            group = row.group;
            text += &format!("\n**{group}**\n\n| command | what it does |\n|---|---|\n");
        }
        text += &format!("| `{}` | {} |\n", row.name.to_ascii_uppercase(), row.summary);
    }
    text
}
