//! The table of commands: what COMMAND says, what is checked before one runs, what the guide lists.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::flag::{
    ADMIN, F, FAST, N, NOT_IN_MULTI, NOT_QUEUED, R, RF, SUBSCRIBED, W, WF, WFX, WITHOUT_AUTH, WX,
};
use super::{Arguments, Context, Done, subcommands};
use super::{
    acl as a, bitfield as bf, bits as b, configuration as cf, connection as c, described as de,
    dumps as d, failover as v, hashes as h, hyperloglog as y, information as i, keys as k,
    latency as la, lcs, lists as l, monitor as mo, pubsub as p, replicas as q, replication as r,
    scripting as g, sets as e, slowlog as sl, sorted as z, sorting as o, streams as x,
    strings as s, transactions as t,
};

/// A command.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Arguments with the name; negative: at least.
    pub(crate) arity: i8,
    pub(crate) flags: u16,
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
}

macro_rules! rows {
    ($($group:literal { $($name:literal $arity:literal $flags:expr,
        $run:expr, $summary:literal;)+ })+) => {
        /// Every command.
        pub(crate) static TABLE: &[Row] = &[$($(Row {
            name: $name,
            arity: $arity,
            flags: $flags,
            group: $group,
            has_subcommands: subcommands::are_of($name),
            run: $run,
            summary: $summary,
        },)+)+];
    };
}

rows! {
    "string" {
        "append" 3 WF, s::append, "Append to a value";
        "decr" 2 WF, s::decr, "Subtract one";
        "decrby" 3 WF, s::decrby, "Subtract a number";
        "get" 2 RF, s::get, "The value of a key";
        "getdel" 2 WFX, s::getdel, "The value of a key, which is removed";
        "getex" -2 WFX, s::getex, "The value of a key, and when it expires from now on";
        "getrange" 4 R, s::getrange, "A part of a value";
        "getset" 3 WF, s::getset, "Set a value and return the old one";
        "incr" 2 WF, s::incr, "Add one";
        "incrby" 3 WF, s::incrby, "Add a number";
        "incrbyfloat" 3 WF, s::incrbyfloat, "Add a number with a fraction";
        "lcs" -3 R, lcs::lcs, "The longest common subsequence";
        "mget" -2 RF, s::mget, "The values of several keys";
        "mset" -3 W, s::mset, "Set several keys, all or none";
        "msetnx" -3 W, s::msetnx, "Set several keys if none of them is there";
        "psetex" 4 W, s::psetex, "Set a value that expires, in milliseconds";
        "set" -3 W, s::set, "Set a value";
        "setex" 4 W, s::setex, "Set a value that expires, in seconds";
        "setnx" 3 WF, s::setnx, "Set a value if the key is not there";
        "setrange" 4 W, s::setrange, "Overwrite a part of a value";
        "strlen" 2 RF, s::strlen, "The length of a value";
        "substr" 4 R, s::getrange, "A part of a value";
    }
    "bitmap" {
        "bitcount" -2 R, b::bitcount, "Count bits";
        "bitfield" -2 W, bf::bitfield, "Read and change whole numbers of any width";
        "bitfield_ro" -2 RF, bf::bitfield_ro, "Read whole numbers of any width";
        "bitop" -4 W, b::bitop, "AND, OR, XOR, NOT of values";
        "bitpos" -3 R, b::bitpos, "The first bit that is 0 or 1";
        "getbit" 3 RF, b::getbit, "A bit";
        "setbit" 4 W, b::setbit, "Set a bit";
    }
    "hash" {
        "hdel" -3 WFX, h::hdel, "Remove fields";
        "hexists" 3 RF, h::hexists, "Whether a field is there";
        "hget" 3 RF, h::hget, "The value of a field";
        "hgetall" 2 R, h::hgetall, "All fields with their values";
        "hincrby" 4 WF, h::hincrby, "Add a number to a field";
        "hincrbyfloat" 4 WF, h::hincrbyfloat, "Add a number with a fraction to a field";
        "hkeys" 2 R, h::hkeys, "All fields";
        "hlen" 2 RF, h::hlen, "How many fields there are";
        "hmget" -3 RF, h::hmget, "The values of several fields";
        "hmset" -4 WF, h::hmset, "Set several fields";
        "hrandfield" -2 R, h::hrandfield, "Some fields";
        "hscan" -3 R, h::hscan, "Walk over the fields";
        "hset" -4 WF, h::hset, "Set fields";
        "hsetnx" 4 WF, h::hsetnx, "Set a field if it is not there";
        "hstrlen" 3 RF, h::hstrlen, "The length of a field's value";
        "hvals" 2 R, h::hvals, "All values";
    }
    "list" {
        "blmove" 6 W | N, l::blmove, "Move an element, or wait for one";
        "blmpop" -5 W, l::blmpop, "Take elements from the first list that has some, or \
                                            wait";
        "blpop" -3 W | N, l::blpop, "Take the first element of a list, or wait for one";
        "brpop" -3 W | N, l::brpop, "Take the last element of a list, or wait for one";
        "brpoplpush" 4 W | N, l::brpoplpush, "Move the last element, or wait for one";
        "lindex" 3 R, l::lindex, "An element";
        "linsert" 5 W, l::linsert, "Put an element beside another one";
        "llen" 2 RF, l::llen, "How many elements there are";
        "lmove" 5 W, l::lmove, "Move an element to a list";
        "lmpop" -4 WX, l::lmpop, "Take elements from the first list that has some";
        "lpop" -2 WFX, l::lpop, "Take the first elements";
        "lpos" -3 R, l::lpos, "Where elements are";
        "lpush" -3 WF, l::lpush, "Put elements before the first one";
        "lpushx" -3 WF, l::lpushx, "Put elements before the first one, if there is one";
        "lrange" 4 R, l::lrange, "Some elements";
        "lrem" 4 WX, l::lrem, "Remove elements that are equal";
        "lset" 4 W, l::lset, "Change an element";
        "ltrim" 4 WX, l::ltrim, "Remove all but some elements";
        "rpop" -2 WFX, l::rpop, "Take the last elements";
        "rpoplpush" 3 W, l::rpoplpush, "Move the last element to the front of a list";
        "rpush" -3 WF, l::rpush, "Put elements behind the last one";
        "rpushx" -3 WF, l::rpushx, "Put elements behind the last one, if there is one";
    }
    "set" {
        "sadd" -3 WF, e::sadd, "Add members";
        "scard" 2 RF, e::scard, "How many members there are";
        "sdiff" -2 R, e::sdiff, "Members that other sets do not have";
        "sdiffstore" -3 W, e::sdiffstore, "Store what SDIFF says";
        "sinter" -2 R, e::sinter, "Members that all sets have";
        "sintercard" -3 R, e::sintercard, "How many members all sets have";
        "sinterstore" -3 W, e::sinterstore, "Store what SINTER says";
        "sismember" 3 RF, e::sismember, "Whether a member is there";
        "smembers" 2 R, e::smembers, "All members";
        "smismember" -3 RF, e::smismember, "Which members are there";
        "smove" 4 WF, e::smove, "Move a member to another set";
        "spop" -2 WFX, e::spop, "Take some members";
        "srandmember" -2 R, e::srandmember, "Some members";
        "srem" -3 WFX, e::srem, "Remove members";
        "sscan" -3 R, e::sscan, "Walk over the members";
        "sunion" -2 R, e::sunion, "Members that some set has";
        "sunionstore" -3 W, e::sunionstore, "Store what SUNION says";
    }
    "sorted-set" {
        "bzmpop" -5 W, z::pop::bzmpop, "Take members from the first set that has some, or \
                                                 wait";
        "bzpopmax" -3 WF | N, z::pop::bzpopmax, "Take the member with the highest score, \
                                                           or wait";
        "bzpopmin" -3 WF | N, z::pop::bzpopmin, "Take the member with the lowest score, \
                                                           or wait";
        "zadd" -4 WF, z::zadd, "Add members, or change their scores";
        "zcard" 2 RF, z::zcard, "How many members there are";
        "zcount" 4 RF, z::range::zcount, "How many members have scores in a range";
        "zdiff" -3 R, z::combine::zdiff, "Members that other sets do not have";
        "zdiffstore" -4 W, z::combine::zdiffstore, "Store what ZDIFF says";
        "zincrby" 4 WF, z::zincrby, "Add to a score";
        "zinter" -3 R, z::combine::zinter, "Members that all sets have";
        "zintercard" -3 R, z::combine::zintercard, "How many members all sets have";
        "zinterstore" -4 W, z::combine::zinterstore, "Store what ZINTER says";
        "zlexcount" 4 RF, z::range::zlexcount, "How many members are in a range";
        "zmpop" -4 WX, z::pop::zmpop, "Take members from the first set that has some";
        "zmscore" -3 RF, z::zmscore, "The scores of members";
        "zpopmax" -2 WFX, z::pop::zpopmax, "Take the members with the highest scores";
        "zpopmin" -2 WFX, z::pop::zpopmin, "Take the members with the lowest scores";
        "zrandmember" -2 R, z::zrandmember, "Some members";
        "zrange" -4 R, z::range::zrange, "Members in a range";
        "zrangebylex" -4 R, z::range::zrangebylex, "Members in a range of members";
        "zrangebyscore" -4 R, z::range::zrangebyscore, "Members in a range of scores";
        "zrangestore" -5 W, z::range::zrangestore, "Store what ZRANGE says";
        "zrank" 3 RF, z::zrank, "How many members come before one";
        "zrem" -3 WFX, z::zrem, "Remove members";
        "zremrangebylex" 4 WX, z::range::zremrangebylex, "Remove a range of members";
        "zremrangebyrank" 4 WX, z::range::zremrangebyrank, "Remove a range of ranks";
        "zremrangebyscore" 4 WX, z::range::zremrangebyscore, "Remove a range of scores";
        "zrevrange" -4 R, z::range::zrevrange, "Members in a range, the highest first";
        "zrevrangebylex" -4 R, z::range::zrevrangebylex, "Members in a range, the highest \
            first";
        "zrevrangebyscore" -4 R, z::range::zrevrangebyscore,
            "Members in a range of scores, the highest first";
        "zrevrank" 3 RF, z::zrevrank, "How many members come after one";
        "zscan" -3 R, z::zscan, "Walk over the members";
        "zscore" 3 RF, z::zscore, "The score of a member";
        "zunion" -3 R, z::combine::zunion, "Members that some set has";
        "zunionstore" -4 W, z::combine::zunionstore, "Store what ZUNION says";
    }
    "geo" {
        "geoadd" -5 W, z::geo::geoadd, "Add members with their places, or move them";
        "geodist" -4 R, z::geo::geodist, "How far two members are apart";
        "geohash" -2 R, z::geo::geohash, "The geohashes of members";
        "geopos" -2 R, z::geo::geopos, "The places of members";
        "georadius" -6 W, z::geo::georadius, "Members within a circle, which may be \
                                                       stored";
        "georadius_ro" -6 R, z::geo::georadius_ro, "Members within a circle";
        "georadiusbymember" -5 W, z::geo::georadiusbymember,
            "Members within a circle around one, which may be stored";
        "georadiusbymember_ro" -5 R, z::geo::georadiusbymember_ro,
            "Members within a circle around one";
        "geosearch" -7 R, z::geo::geosearch, "Members within a circle or a rectangle";
        "geosearchstore" -8 W, z::geo::geosearchstore, "Store what GEOSEARCH says";
    }
    "stream" {
        "xack" -4 WFX, x::xack, "Acknowledge what was delivered to a group";
        "xadd" -5 WF, x::xadd, "Add an entry";
        "xautoclaim" -6 WF, x::xautoclaim, "Take over what others did not acknowledge";
        "xclaim" -6 WF, x::xclaim, "Take over what others did not acknowledge, by ID";
        "xdel" -3 WFX, x::xdel, "Remove entries";
        "xgroup" -2 W, x::xgroup, "Make, change and remove groups and consumers";
        "xinfo" -2 R, x::xinfo, "About a stream, its groups and their consumers";
        "xlen" 2 RF, x::xlen, "How many entries there are";
        "xpending" -3 R, x::xpending, "What was delivered and not acknowledged";
        "xrange" -4 R, x::xrange, "Entries in a range of IDs";
        "xread" -4 R, x::xread, "Entries behind an ID, or wait for one";
        "xreadgroup" -7 W, x::xreadgroup, "Entries that nobody of a group has got, or \
                                                    wait for one";
        "xrevrange" -4 R, x::xrevrange, "Entries in a range of IDs, the last first";
        "xsetid" -3 WF, x::xsetid, "Set the last ID of a stream";
        "xtrim" -4 WX, x::xtrim, "Remove the first entries";
    }
    "hyperloglog" {
        "pfadd" -2 WF, y::pfadd, "Add elements to count";
        "pfcount" -2 R, y::pfcount, "How many different elements were added, about";
        "pfmerge" -2 W, y::pfmerge, "Add what was added to other keys";
    }
    "generic" {
        "copy" -3 W, k::copy, "Copy a key";
        "del" -2 WX, k::del, "Remove keys";
        "dump" 2 R, d::dump, "A value as bytes, for RESTORE";
        "exists" -2 RF, k::exists, "How many of some keys are there";
        "expire" -3 WFX, k::expire_in, "Let a key expire in some seconds";
        "expireat" -3 WFX, k::expireat, "Let a key expire at a time in seconds";
        "expiretime" 2 RF, k::expiretime, "When a key expires, in seconds";
        "keys" 2 R, k::keys, "All keys that match a pattern";
        "move" 3 WF, k::move_to, "Move a key to another database";
        "object" -2 R, k::object, "How a value is kept";
        "persist" 2 WFX, k::persist, "Let a key expire no more";
        "pexpire" -3 WFX, k::pexpire, "Let a key expire in some milliseconds";
        "pexpireat" -3 WFX, k::pexpireat, "Let a key expire at a time in milliseconds";
        "pexpiretime" 2 RF, k::pexpiretime, "When a key expires, in milliseconds";
        "pttl" 2 RF, k::pttl, "The milliseconds until a key expires";
        "randomkey" 1 R, k::randomkey, "Some key";
        "rename" 3 W, k::rename, "Rename a key";
        "renamenx" 3 WF, k::renamenx, "Rename a key if the new name is free";
        "restore" -4 W, d::restore, "Make a key of what DUMP said";
        "scan" -2 R, k::scan, "Walk over the keys";
        "sort" -2 W, o::sort, "Elements in another order, which may be stored";
        "sort_ro" -2 R, o::sort_ro, "Elements in another order";
        "touch" -2 RF, k::exists, "How many of some keys are there";
        "ttl" 2 RF, k::ttl, "The seconds until a key expires";
        "type" 2 RF, k::type_of, "The type of a value";
        "unlink" -2 WFX, k::del, "Remove keys";
        "wait" 3 N, q::wait, "Wait until replicas have what this client wrote";
    }
    "transactions" {
        "discard" 1 FAST | NOT_QUEUED | N, t::discard, "Forget a transaction";
        "exec" 1 NOT_QUEUED | N, t::exec, "Execute a transaction, all or nothing";
        "multi" 1 FAST | NOT_QUEUED | N, t::multi, "Begin a transaction";
        "unwatch" 1 F | N, t::unwatch, "Forget the watched keys";
        "watch" -2 FAST | NOT_QUEUED | N, t::watch, "Let EXEC fail if keys change";
    }
    "scripting" {
        "eval" -3 N, g::eval, "Run a script";
        "eval_ro" -3 N, g::eval_ro, "Run a script that changes nothing";
        "evalsha" -3 N, g::evalsha, "Run a script that is known";
        "evalsha_ro" -3 N, g::evalsha_ro, "Run a known script that changes nothing";
        "fcall" -3 N, g::fcall, "Call a function of a library";
        "fcall_ro" -3 N, g::fcall_ro, "Call a function that changes nothing";
        "function" -2 N, g::function, "Libraries of functions";
        "script" -2 N, g::script, "The scripts that are known, and the one that runs";
    }
    "pubsub" {
        "psubscribe" -2 SUBSCRIBED | N, p::psubscribe, "Subscribe to patterns";
        "publish" 3 F, p::publish, "Send a message";
        "pubsub" -2 0, p::pubsub, "Who is subscribed to what";
        "punsubscribe" -1 SUBSCRIBED | N, p::punsubscribe, "Unsubscribe from patterns";
        "spublish" 3 F, p::spublish, "Send a message to a channel of a shard";
        "ssubscribe" -2 SUBSCRIBED | N, p::ssubscribe, "Subscribe to channels of a shard";
        "subscribe" -2 SUBSCRIBED | N, p::subscribe, "Subscribe to channels";
        "sunsubscribe" -1 SUBSCRIBED | N, p::sunsubscribe, "Unsubscribe from channels of a shard";
        "unsubscribe" -1 SUBSCRIBED | N, p::unsubscribe, "Unsubscribe from channels";
    }
    "connection" {
        "asking" 1 F, i::cluster, "Nothing: there is no cluster, and it says so";
        "auth" -2 FAST | WITHOUT_AUTH | N, c::auth, "Give the password";
        "client" -2 N, c::client, "About this client and the others";
        "echo" 2 F, c::echo, "Return the argument";
        "hello" -1 FAST | WITHOUT_AUTH | N, c::hello, "Choose the protocol";
        "ping" -1 FAST | SUBSCRIBED, c::ping, "Is the server there";
        "quit" -1 FAST | WITHOUT_AUTH | NOT_QUEUED | SUBSCRIBED | N, c::quit, "Close the \
            connection";
        "readonly" 1 F, i::cluster, "Nothing: there is no cluster, and it says so";
        "readwrite" 1 F, i::cluster, "Nothing: there is no cluster, and it says so";
        "reset" 1 FAST | WITHOUT_AUTH | NOT_QUEUED | SUBSCRIBED | N, c::reset,
            "Begin the session anew";
        "select" 2 F, c::select, "Choose a database";
    }
    "server" {
        "acl" -2 N, a::acl, "Users and what they may do";
        "bgrewriteaof" 1 ADMIN | N, i::save, "Nothing: every write is durable";
        "bgsave" -1 ADMIN | N, i::save, "Nothing: every write is durable";
        "cluster" -2 0, i::cluster, "Nothing: there is no cluster, and it says so";
        "command" -1 0, de::command, "About commands";
        "config" -2 ADMIN | N, cf::config, "Settings";
        "dbsize" 1 RF, k::dbsize, "How many keys there are";
        "debug" -2 ADMIN | N, i::debug, "Nothing: it is not allowed, as in Redis by \
                                                  default";
        "failover" -1 ADMIN | N, v::failover, "Hand the role of the primary to a replica";
        "flushall" -1 WX, k::flushall, "Remove all keys of all databases";
        "flushdb" -1 WX, k::flushdb, "Remove all keys";
        "info" -1 0, i::info, "About the server";
        "lastsave" 1 F, i::lastsave, "Now: every write is durable";
        "latency" -2 ADMIN | N, la::latency, "When something took long, and how long \
            commands take";
        "lolwut" -1 RF, i::lolwut, "The version";
        "memory" -2 R, i::memory, "The space a key takes";
        "module" -2 ADMIN | N, i::module, "Nothing: there are no modules, and it says so";
        "monitor" 1 ADMIN | N, mo::monitor, "Tell this client of every command";
        "psync" -3 ADMIN | NOT_IN_MULTI | N, q::psync, "Follow this server, from a place \
            on if that can be";
        "replconf" -1 ADMIN | N, q::replconf, "What a replica says of itself";
        "replicaof" 3 ADMIN | N, r::replicaof, "Follow a primary, or no one";
        "role" 1 F | N, r::role, "Primary or replica";
        "save" 1 ADMIN | NOT_IN_MULTI | N, i::save, "Nothing: every write is durable";
        "shutdown" -1 ADMIN | NOT_IN_MULTI | N, i::shutdown, "End the server";
        "slaveof" 3 ADMIN | N, r::replicaof, "Follow a primary, or no one";
        "slowlog" -2 0, sl::slowlog, "Commands that took long";
        "swapdb" 3 WF, k::swapdb, "Exchange two databases";
        "sync" 1 ADMIN | NOT_IN_MULTI | N, q::sync, "Follow this server, with a copy \
            first";
        "time" 1 F, i::time, "The server's time";
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
