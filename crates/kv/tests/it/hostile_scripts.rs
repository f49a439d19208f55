//! Scripts that are made to end the server, or to leave something for the next one.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::served::{Client, Served, Value, request, text};

fn eval(client: &mut Client, script: &str) -> Value {
    client.ask(&[b"EVAL", script.as_bytes(), b"0"])
}

#[test]
fn no_script_ends_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Served::start(directory.path());
    for script in [
        // Letters of a format that are no part of it.
        "return struct.size(string.rep(' ', 5000000) .. 'b')",
        "return #struct.pack(string.rep('>', 5000000) .. 'b', 1)",
        // More results than the stack has room for, and counts that overflow.
        "return {unpack({}, -2, 2147483647)}",
        "return {unpack({}, -2147483648, 2147483647)}",
        "return {unpack({}, 1, 1e8)}",
        // Stacks within stacks.
        "local function f() return coroutine.wrap(f)() end return f()",
        "local function f() coroutine.resume(coroutine.create(f)) end return f()",
        "local function f() pcall(f) return 1 end return f()",
        "local function f() return (string.gsub('a', 'a', f)) end return f()",
        "local function f() xpcall(f, f) return 1 end return f()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k] end \
         return t.x",
        "local s = string.rep('(', 100) return string.find(s, s)",
        "local t = {} for i = 1, 30000 do t = {t} end return t",
        "local t = {} t[1] = t return cjson.encode(t)",
        "return cjson.decode(string.rep('[', 2000000))",
        "return cmsgpack.unpack(string.rep(string.char(0x91), 2000000))",
        "return string.rep('x', 2000000000)",
        "return string.format('%' .. string.rep('9', 100) .. 'd', 1)",
        "return loadstring(string.dump(function() end))",
        "return loadstring('return ' .. string.rep('(', 100000))",
        "return loadstring('return ' .. string.rep('{', 100000))",
        "error(setmetatable({}, {__tostring = function() error('x') end}))",
        "table.sort({3, 1, 2, 5, 4, 7, 6}, function() return true end) return 1",
        "return table.concat({}, '', 1, 1e9)",
        // Results that fill the stack up to what was asked for: the interpreter's own pcall has no
        // room left for its answer, which only matters to the checks of a debug build.
        "return select('#', pcall(function() return unpack({}, 1, 100) end))",
        "return select('#', xpcall(function() return unpack({}, 1, 100) end, function() end))",
        "return select('#', coroutine.resume(coroutine.create(function() return unpack({}, 1, 100) \
         end)))",
        "return select('#', coroutine.wrap(function() return unpack({}, 1, 100) end)())",
    ] {
        let began = Instant::now();
        let mut client = server.connect();
        eval(&mut client, script);
        println!("{:?} {script}", began.elapsed());
        assert!(server.is_running(), "{script}");
        assert_eq!(server.connect().say("PING"), text("PONG"), "{script}");
    }
}

#[test]
fn what_a_library_makes_has_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(directory.path());
    let mut client = server.connect();
    for encode in ["cjson.encode", "cmsgpack.pack"] {
        let script = format!(
            "local t = string.rep('x', 1000000) for i = 1, 14 do t = {{t, t, t, t}} end return \
             #{encode}(t)"
        );
        let Value::Error(why) = eval(&mut client, &script) else { panic!("{encode} has an end") };
        assert!(why.contains("the result is too large"), "{why}");
    }
}

#[test]
fn nothing_is_left_for_the_next_script() {
    let directory = tempfile::tempdir().unwrap();
    let server = Served::start(directory.path());
    let mut client = server.connect();
    for table in ["_G", "string", "redis", "table", "math", "cjson", "getmetatable('')"] {
        for change in [
            "table.insert({t}, 'x')",
            "table.insert({t}, 1, 'x')",
            "rawset({t}, 1, 'x')",
            "{t}[1] = 'x'",
            "{t}.x = 'x'",
        ] {
            eval(&mut client, &change.replace("{t}", table));
            let left = eval(&mut client, &format!("return tostring(rawget({table}, 1))"));
            assert_eq!(left, text("nil"), "{change} of {table}");
        }
    }
}

#[test]
fn what_a_client_sends_behind_script_kill_is_executed() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("conf"), "busy-reply-threshold 50").unwrap();
    let server = Served::start(directory.path());
    let (mut runs, mut other) = (server.connect(), server.connect());
    assert_eq!(other.say("PING"), text("PONG"));
    runs.send(&[b"EVAL", b"while true do end", b"0"]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut bytes = request(&[b"SCRIPT", b"KILL"]);
    bytes.extend(request(&[b"PING"]));
    other.out.write_all(&bytes).unwrap();
    assert_eq!(other.read().unwrap(), text("OK"));
    other.out.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(other.read().unwrap(), text("PONG"));
    assert!(matches!(runs.read().unwrap(), Value::Error(_)));
}
