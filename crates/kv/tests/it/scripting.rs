//! Scripts: what a real Redis answers, what they must not reach, who may end them, and that they
//! happen whole or not at all.

use std::time::{Duration, Instant};

use crate::served::{Client, Served, Value, assert_sound, text};

fn server(directory: &tempfile::TempDir, conf: &str) -> Served {
    std::fs::write(directory.path().join("conf"), conf).unwrap();
    Served::start(directory.path())
}

fn eval(client: &mut Client, script: &str, arguments: &[&str]) -> Value {
    let mut words: Vec<&[u8]> = vec![b"EVAL", script.as_bytes()];
    words.extend(arguments.iter().map(|word| word.as_bytes()));
    client.ask(&words)
}

fn error(value: &Value) -> &str {
    match value {
        Value::Error(text) => text,
        other => panic!("no error: {other:?}"),
    }
}

/// Scripts whose replies a real Redis gives as well, byte by byte.
const SCRIPTS: &str = include_str!("../scripting/replies.txt");

#[test]
fn scripts_get_the_replies_that_redis_gives() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(&directory, "");
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let mut differences = Vec::new();
    let mut tried = 0;
    for script in SCRIPTS.split("\n----\n").filter(|script| !script.trim().is_empty()) {
        for protocol in ["2", "3"] {
            for client in [&mut ours, &mut theirs] {
                client.say(&format!("HELLO {protocol}"));
                client.say("FLUSHALL");
                client.say("SET str abc");
                client.say("SET n 10");
                client.say("RPUSH list a b c");
                client.say("HSET hash f 1 g 2");
                client.say("ZADD zset 1 a 2.5 b");
                client.say("SADD set m");
            }
            let arguments = ["3", "str", "list", "hash", "one", "2", "x y"];
            let (mine, their) =
                (eval(&mut ours, script, &arguments), eval(&mut theirs, script, &arguments));
            if mine != their {
                differences.push(format!(
                    "RESP{protocol} {script}\n  ours   {mine:?}\n  theirs {their:?}"
                ));
            }
            let (mine, their) = (ours.say("DBSIZE"), theirs.say("DBSIZE"));
            if mine != their {
                differences.push(format!("{script}\n  leaves {mine:?} keys, and {their:?} there"));
            }
            tried += 1;
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {tried}:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert!(tried > 200, "{tried}");
}

#[test]
fn scripts_return_and_pack_more_values_than_the_interpreter_lets_out_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory, "");
    let mut client = server.connect();
    let many = "local t = {} for i = 1, 20000 do t[i] = 'value ' .. i end ";
    let Value::List(all) = eval(&mut client, &format!("{many} return t"), &["0"]) else {
        panic!("no list")
    };
    assert_eq!((all.len(), &all[19999]), (20000, &text("value 20000")));
    let set = "local s = {} for i = 1, 20000 do s['m' .. i] = true end return {set = s}";
    assert!(matches!(eval(&mut client, set, &["0"]), Value::List(all) if all.len() == 20000));
    let map = "local m = {} for i = 1, 20000 do m['m' .. i] = i end ";
    let packed = "local back = cmsgpack.unpack(cmsgpack.pack(m)) return back.m20000";
    assert_eq!(eval(&mut client, &format!("{map} {packed}"), &["0"]), Value::Int(20000));
}

#[test]
fn a_script_that_says_what_it_does_runs_only_where_that_may_be_done() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory, "");
    let mut said = vec![server.connect()];
    let redis = Served::redis(directory.path());
    said.extend(redis.iter().map(Served::connect));
    let mut answers = Vec::new();
    for client in &mut said {
        let mut own = Vec::new();
        client.say("SET x 1");
        for setting in ["maxmemory 1", "maxmemory 0", "min-replicas-to-write 1"] {
            client.say(&format!("CONFIG SET {setting}"));
            for first in ["", "#!lua", "#!lua flags=no-writes", "#!lua flags=allow-oom"] {
                for does in ["get", "incr"] {
                    let script = format!("{first}\nreturn redis.call('{does}', KEYS[1])");
                    for eval in ["EVAL", "EVAL_RO"] {
                        own.push(client.ask(&[eval.as_bytes(), script.as_bytes(), b"1", b"x"]));
                    }
                }
            }
        }
        client.say("CONFIG SET min-replicas-to-write 0");
        // A seed is a number, also as a text; a set is sorted for who cannot know its order.
        for script in [
            "math.randomseed('10') return tostring(math.random())",
            "math.randomseed('20') return tostring(math.random())",
            "redis.call('SADD', 's', 'c', 'a', 'aa') return redis.call('SORT', 's', 'BY', '_')",
            "return redis.call('CLUSTER', 'RESET')",
        ] {
            own.push(eval(client, script, &["0"]));
        }
        answers.push(own);
    }
    let refused = |code: &str| {
        let is = |one: &&Value| matches!(one, Value::Error(text) if text.starts_with(code));
        answers[0].iter().filter(is).count()
    };
    assert!(refused("OOM") >= 4 && refused("NOREPLICAS") >= 2, "{:?}", answers[0]);
    match answers.get(1) {
        Some(theirs) => assert_eq!(&answers[0], theirs),
        None => println!("not compared: redis-server is not installed"),
    }
}

#[test]
fn commands_about_scripts_answer_as_redis_does() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(&directory, "");
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let known = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let lines = [
        format!("EVALSHA {known} 0"),
        format!("SCRIPT EXISTS {known} x"),
        "SCRIPT LOAD return".to_owned(),
        "EVAL return -1".to_owned(),
        "EVAL return x".to_owned(),
        "EVAL return 2 a".to_owned(),
        "EVAL return".to_owned(),
        "EVAL x=) 0".to_owned(),
        "SCRIPT LOAD x=)".to_owned(),
        "EVALSHA abc 0".to_owned(),
        "EVALSHA 63143B6F8007B98C53CA2149822777B3566F9241 0".to_owned(),
        "SCRIPT EXISTS 63143b6f8007b98c53ca2149822777b3566f9241".to_owned(),
        "SCRIPT FLUSH x".to_owned(),
        "SCRIPT FLUSH ASYNC".to_owned(),
        "SCRIPT EXISTS 63143b6f8007b98c53ca2149822777b3566f9241".to_owned(),
        "SCRIPT KILL".to_owned(),
        "SCRIPT foo".to_owned(),
        "EVAL_RO return(redis.call('set','a','1')) 0".to_owned(),
        "EVAL_RO return(redis.call('get','a')) 0".to_owned(),
        "MULTI".to_owned(),
        "EVAL return(redis.call('incr',KEYS[1])) 1 n".to_owned(),
        "EVAL return(redis.call('multi')) 0".to_owned(),
        "GET n".to_owned(),
        "EXEC".to_owned(),
        "CONFIG SET lua-time-limit 4000".to_owned(),
    ];
    for line in lines {
        assert_eq!(ours.say(&line), theirs.say(&line), "{line}");
    }
}

#[test]
fn scripts_reach_nothing_of_the_machine_and_cannot_end_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory, "");
    let mut client = server.connect();
    for name in
        ["os", "io", "debug", "package", "require", "loadfile", "dofile", "module", "setfenv"]
    {
        let said = eval(&mut client, &format!("return {name}"), &["0"]);
        assert!(error(&said).contains("nonexistent global variable"), "{name}: {said:?}");
    }
    for (script, part) in [
        // What a compiler made is not checked when it is loaded.
        ("return loadstring(string.dump(function() end))()", "attempt to call"),
        ("return select(2, loadstring('\\27Lua'))", ""),
        ("string.rep = nil", "readonly table"),
        ("getmetatable('').__index = nil", "readonly table"),
        ("getmetatable(_G).__index = {}", "readonly table"),
        ("rawset(getmetatable(_G), '__index', {})", "readonly table"),
        ("rawset(string, 'rep', nil)", "readonly table"),
        ("setmetatable(redis, nil)", "readonly table"),
        (
            "local t = {} while true do t[#t + 1] = string.rep('x', 1e6) .. #t end",
            "not enough memory",
        ),
        ("return string.rep('x', 1e9)", "not enough memory"),
        ("local function f() return f() + 1 end return f()", "stack overflow"),
        ("local t = {} t[1] = t return t", ""),
        ("local t = {} t[1] = t t[2] = t t[3] = t return t", ""),
        ("local t = {} t.x = t return cjson.encode(t)", "excessive depth"),
        ("return cjson.decode(string.rep('[', 1e6))", "nested"),
        ("return cmsgpack.unpack(string.rep('\\145', 1e6))", ""),
        ("return cmsgpack.unpack('\\221\\255\\255\\255\\255')", "Missing bytes"),
        ("return struct.unpack('I99', 'x')", "larger than limit"),
        ("return string.find(string.rep('a', 1e6), string.rep('a?', 1e6))", "too long"),
        ("return #string.rep('x', -1)", ""),
        ("return unpack({}, 1, 1e8)", "too many results"),
        ("error(setmetatable({}, {__tostring = function() error('x') end}))", ""),
        ("return coroutine.wrap(function() return redis.call('nosuch') end)()", "Unknown Redis"),
        (
            "local c = coroutine.create(function() while true do coroutine.yield() end end) return \
             1",
            "",
        ),
        ("return table.concat({}, 'x', 1, 1e9)", "invalid value"),
        ("collectgarbage('stop') collectgarbage('setpause', 1e9) return 1", ""),
    ] {
        let said = eval(&mut client, script, &["0"]);
        if !part.is_empty() {
            assert!(error(&said).contains(part), "{script}: {said:.200?}");
        }
        assert_eq!(client.say("PING"), text("PONG"), "{script}");
    }
    // A script keeps nothing for the next one, and a full memory is empty again.
    assert_eq!(eval(&mut client, "return #string.rep('x', 1e7)", &["0"]), Value::Int(10_000_000));
    let Value::Text(info) = client.say("INFO memory") else { panic!("no text") };
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory_lua:")).unwrap();
    assert!(used.parse::<u64>().unwrap() < 512 << 20, "{used}");
}

/// Waits until a script that was begun answers nobody.
fn wait_until_busy(client: &mut Client) {
    let began = Instant::now();
    loop {
        // What comes in one batch with the script is answered with it.
        std::thread::sleep(Duration::from_millis(100));
        if matches!(client.say("PING"), Value::Error(said) if said.starts_with("BUSY")) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "the script takes no time");
    }
}

#[test]
fn a_script_that_takes_long_is_ended_by_script_kill_and_only_before_it_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = server(&directory, "busy-reply-threshold 20\nrequirepass secret\n");
    let client = || {
        let mut client = served.connect();
        assert_eq!(client.say("AUTH secret"), text("OK"));
        client
    };
    let (mut runner, mut other) = (client(), client());
    for script in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() end) end",
        "while true do local c = coroutine.create(function() while true do end end) \
         coroutine.resume(c) end",
        "local c = coroutine.wrap(function() while true do end end) while true do pcall(c) end",
        "while true do redis.pcall('get', 'x') end",
    ] {
        runner.send(&[b"EVAL", script.as_bytes(), b"0"]).unwrap();
        wait_until_busy(&mut other);
        // A connection that is new has to give the password first.
        let mut late = served.connect();
        assert!(error(&late.say("SCRIPT KILL")).starts_with("NOAUTH"));
        assert!(error(&late.say("AUTH wrong")).starts_with("WRONGPASS"));
        assert_eq!(late.say("AUTH secret"), text("OK"));
        assert!(error(&late.say("SET a 1")).starts_with("BUSY"));
        assert_eq!(late.say("SCRIPT KILL"), text("OK"));
        let said = runner.read().unwrap();
        assert!(
            error(&said).contains("Script killed by user with SCRIPT KILL"),
            "{script}: {said:?}"
        );
        assert_eq!(runner.say("PING"), text("PONG"));
        assert_eq!(late.say("PING"), text("PONG"));
    }
    assert!(error(&other.say("SCRIPT KILL")).starts_with("NOTBUSY"));
    // One that wrote is not ended, and with the server all of it goes.
    assert_eq!(other.say("SET before 1"), text("OK"));
    let script =
        "redis.call('set', 'before', '2') redis.call('set', 'half', '1') while true do end";
    runner.send(&[b"EVAL", script.as_bytes(), b"0"]).unwrap();
    wait_until_busy(&mut other);
    assert!(error(&other.say("SCRIPT KILL")).starts_with("UNKILLABLE"));
    other.send(&[b"SHUTDOWN", b"NOSAVE"]).unwrap();
    assert!(served.ends());
    assert_sound(directory.path());
    let served = server(&directory, "");
    let mut client = served.connect();
    assert_eq!(client.say("GET before"), text("1"));
    assert_eq!(client.say("EXISTS half"), Value::Int(0));
}

/// What two clients say while a script of a third runs: `*` begins it, `^` kills it; `!` is said by
/// the third.
const STEPS: &[&str] = &[
    // The script begins before the transaction, in its middle, before the EXEC.
    "* MULTI|INCR n|^|INCR n|EXEC|GET n|PING text",
    "MULTI|INCR n|*|INCR n|^|EXEC|GET n|PING text",
    "MULTI|INCR n|*|EXEC|^|GET n|PING text|EXEC",
    "MULTI|INCR n|*|DISCARD|DISCARD|MULTI|MULTI|^|INCR n|EXEC|GET n",
    // What was watched is forgotten with the transaction that did not come about.
    "WATCH n|MULTI|INCR n|*|EXEC|^|!SET n 5|MULTI|INCR n|EXEC",
    "WATCH n|MULTI|*|DISCARD|^|!SET n 7|MULTI|INCR n|EXEC",
    "WATCH n|*|MULTI|^|!SET n 8|INCR n|EXEC",
    "*|WATCH n|WATCH|^|MULTI|INCR n|EXEC|GET n",
    "*|WATCH n|^|!SET n 9|MULTI|INCR n|EXEC|GET n",
    "*|WATCH n|MULTI|WATCH n|WATCH|^|INCR n|EXEC",
    "WATCH n|*|UNWATCH|^|!SET n 10|MULTI|INCR n|EXEC",
    "WATCH n|*|UNWATCH|WATCH m|^|!SET n 11|MULTI|INCR n|EXEC",
    "*|WATCH n|UNWATCH|^|!SET n 12|MULTI|INCR n|EXEC",
    "*|WATCH n|RESET|^|!SET n 13|MULTI|INCR n|EXEC",
    "WATCH n|MULTI|INCR n|*|RESET|EXEC|^|!SET n 14|MULTI|INCR n|EXEC",
    "SELECT 3|*|RESET|^|GET n|SET m 1|GET m",
    "SUBSCRIBE c|*|RESET|^|GET n",
    "*|MULTI|UNWATCH|REPLCONF capa eof|^|INCR n|EXEC",
    "*|REPLCONF capa eof|REPLCONF capa|REPLCONF Nonsense x|\
     REPLCONF listening-port x|^|GET n",
    "*|HELLO 4|HELLO x|HELLO 2 NONSENSE|HELLO 2 SETNAME|HELLO 2 AUTH default x SETNAME y|^|\
     CLIENT GETNAME",
    "*|HELLO 2 SETNAME name|^|CLIENT GETNAME|RESET|CLIENT GETNAME",
];

/// The steps of Redis's own tests "MULTI and script timeout", each with the reply of a real Redis.
#[test]
fn transactions_beside_and_around_a_script_that_takes_long_end_as_in_redis() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(&directory, "");
    let told = [&server, &redis].map(|server| {
        let [mut runner, mut other, mut third] = [(); 3].map(|()| server.connect());
        other.say("CONFIG SET lua-time-limit 10");
        let mut told = Vec::new();
        for steps in STEPS.iter().copied() {
            third.say("SET n 1");
            for step in steps.split('|') {
                let step = step.strip_prefix("* ").map_or(step, |rest| {
                    begin(&mut runner, &mut third);
                    rest
                });
                let said = match step {
                    "*" => {
                        begin(&mut runner, &mut third);
                        continue;
                    }
                    "^" => {
                        let killed = third.say("SCRIPT KILL");
                        Value::List(vec![killed, runner.read().unwrap()])
                    }
                    step => match step.strip_prefix('!') {
                        Some(step) => third.say(step),
                        None => other.say(step),
                    },
                };
                // A greeting has the number of the connection.
                let greeted = step.starts_with("HELLO") && matches!(said, Value::List(_));
                let said = if greeted { text("greeted") } else { said };
                told.push((steps, step, said));
            }
        }
        // Two scripts inside a transaction: each is ended, and the rest of it is done.
        for command in ["MULTI", "SET n 3", "*", "*", "INCR n"] {
            match command {
                "*" => eval(&mut runner, "while true do end", &["0"]),
                command => runner.say(command),
            };
        }
        runner.send(&[b"EXEC"]).unwrap();
        for _ in 0..2 {
            wait_until_busy(&mut third);
            told.push(("", "kill", other.say("SCRIPT KILL")));
        }
        told.push(("", "exec", runner.read().unwrap()));
        told.push(("", "after", third.say("GET n")));
        // One that leaves meanwhile is let go.
        begin(&mut runner, &mut third);
        let mut late = server.connect();
        told.push(("", "quit", late.say("QUIT")));
        assert!(late.read().is_err());
        told.push(("", "kill", third.say("SCRIPT KILL")));
        told
    });
    let [ours, theirs] = told;
    for (mine, their) in ours.iter().zip(&theirs) {
        assert_eq!(mine, their);
    }
}

/// Begins a script that does not end, and waits until others are told so.
fn begin(runner: &mut Client, other: &mut Client) {
    runner.send(&[b"EVAL", b"while true do end", b"0"]).unwrap();
    wait_until_busy(other);
}

/// What client libraries do with scripts: a lock that only its owner releases, a limit of calls, a
/// queue whose jobs are taken, delayed and completed.
#[test]
fn scripts_of_client_libraries_work() {
    const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', \
                           KEYS[1]) \
                           else return 0 end";
    const LIMIT: &str = "local n = redis.call('incr', KEYS[1]) if n == 1 then \
                         redis.call('pexpire', KEYS[1], \
                         ARGV[2]) end return {n, n <= tonumber(ARGV[1]) and 1 or 0}";
    const ADD: &str = r"
        local id = redis.call('INCR', KEYS[1])
        local job = cjson.decode(ARGV[1])
        redis.call('HMSET', KEYS[2] .. id, 'name', job.name,
                   'data', cjson.encode(job.data), 'attempts', 0)
        if job.delay and job.delay > 0 then
            redis.call('ZADD', KEYS[4], job.delay * 4096 + bit.band(id, 0xfff), id)
        else
            redis.call('LPUSH', KEYS[3], id)
        end
        redis.call('PUBLISH', KEYS[3], id)
        return id .. ''";
    const TAKE: &str = r"
        local due = redis.call('ZRANGEBYSCORE', KEYS[4], 0,
                               tonumber(ARGV[1]) * 4096 + 4095, 'LIMIT', 0, 1000)
        for _, id in ipairs(due) do
            redis.call('ZREM', KEYS[4], id)
            redis.call('LPUSH', KEYS[3], id)
        end
        local id = redis.call('RPOPLPUSH', KEYS[3], KEYS[5])
        if not id then return nil end
        redis.call('HINCRBY', KEYS[2] .. id, 'attempts', 1)
        return {id, redis.call('HGETALL', KEYS[2] .. id)}";
    const FINISH: &str = r"
        if redis.call('LREM', KEYS[5], -1, ARGV[1]) < 1 then
            return redis.error_reply('LOCK the job is not active')
        end
        local done = cmsgpack.pack({ id = ARGV[1], value = { 1, 2.5, 'x' } })
        redis.call('ZADD', KEYS[6], tonumber(ARGV[2]), done)
        return cmsgpack.unpack(done).value[2] * 2";
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory, "");
    let mut client = server.connect();
    assert_eq!(client.say("SET lock me NX PX 100000"), text("OK"));
    assert_eq!(eval(&mut client, RELEASE, &["1", "lock", "you"]), Value::Int(0));
    assert_eq!(eval(&mut client, RELEASE, &["1", "lock", "me"]), Value::Int(1));
    for n in 1..4 {
        let said = eval(&mut client, LIMIT, &["1", "calls", "2", "60000"]);
        assert_eq!(said, Value::List(vec![Value::Int(n), Value::Int(i64::from(n <= 2))]));
    }
    let keys = ["6", "q:id", "q:job:", "q:wait", "q:delayed", "q:active", "q:completed"];
    let with = |arguments: &[&'static str]| [&keys[..], arguments].concat();
    let now = r#"{"name":"mail","data":{"to":["a","b"],"n":1.5}}"#;
    let later = r#"{"name":"later","delay":50,"data":[]}"#;
    assert_eq!(eval(&mut client, ADD, &with(&[now])), text("1"));
    assert_eq!(eval(&mut client, ADD, &with(&[later])), text("2"));
    let Value::List(taken) = eval(&mut client, TAKE, &with(&["10"])) else { panic!("no job") };
    assert_eq!(taken[0], text("1"));
    let Value::List(fields) = &taken[1] else { panic!("no fields") };
    assert!(fields.contains(&text("mail")) && fields.contains(&text("1")), "{fields:?}");
    assert_eq!(eval(&mut client, TAKE, &with(&["10"])), Value::Nil);
    assert_eq!(eval(&mut client, FINISH, &with(&["1", "10"])), Value::Int(5));
    assert_eq!(
        error(&eval(&mut client, FINISH, &with(&["1", "10"]))),
        "LOCK the job is not active"
    );
    let Value::List(taken) = eval(&mut client, TAKE, &with(&["50"])) else { panic!("no job") };
    assert_eq!(taken[0], text("2"));
}

#[test]
fn a_script_in_a_full_tier_is_told_so_and_the_server_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(&directory, "");
    let mut client = server.connect();
    let fill = "local n = 0 while true do local r = redis.pcall('set', 'k' .. n, ARGV[1]) if \
                type(r) == 'table' \
                and r.err then return {n, r.err} end n = n + 1 end";
    let large = "x".repeat(100_000);
    let Value::List(said) = eval(&mut client, fill, &["0", &large]) else { panic!("no list") };
    let [Value::Int(count), Value::Text(why)] = &said[..] else { panic!("{said:?}") };
    assert!(*count > 300 && why.starts_with("OOM"), "{said:?}");
    assert_eq!(client.say("DBSIZE"), Value::Int(*count));
    // What a FLUSHALL took away is found before the first change of a script.
    client.say("FLUSHALL");
    let one = "return redis.call('set', 'again', ARGV[1])";
    assert_eq!(eval(&mut client, one, &["0", &large]), text("OK"));
}

/// What a user may do by script, and a protocol that changes within a transaction.
fn rights_and_protocols(served: &Served) -> Vec<Value> {
    let mut client = served.connect();
    client.say("HSET x:h f v");
    client.say("ACL SETUSER bob on nopass ~x:* +@all -hset");
    let mut all = Vec::new();
    for who in ["default", "bob"] {
        client.say(&format!("AUTH {who} x"));
        for arguments in ["'set','x:1',1", "'hset','x:1','f',1", "'set','y',1", "'none','y'", ""] {
            all.push(eval(
                &mut client,
                &format!("return redis.acl_check_cmd({arguments})"),
                &["0"],
            ));
        }
    }
    client.say("MULTI");
    client.say("HELLO 3");
    client.say("HGETALL x:h");
    client.say("HELLO 2");
    let Value::List(mut parts) = client.say("EXEC") else { panic!("no list") };
    // What HELLO says is another thing for each server.
    all.push(parts.swap_remove(1));
    all
}

#[test]
fn scripts_learn_what_their_user_may_do_and_hello_may_be_part_of_a_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let mine = rights_and_protocols(&server(&directory, ""));
    let may = |at: usize| mine[at] == Value::Int(1);
    assert_eq!(
        [may(0), may(1), may(2), may(5), may(6), may(7)],
        [true, true, true, true, false, false]
    );
    assert_eq!(mine[10], Value::List(vec![text("f"), text("v")]));
    if let Some(redis) = Served::redis(directory.path()) {
        assert_eq!(mine, rights_and_protocols(&redis));
    }
}
