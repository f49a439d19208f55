//! Users: the same rules and the same commands to this server and to a real Redis.

use std::path::Path;

use crate::served::{Client, Served, Value, request, sorted, text};

fn server(directory: &Path, conf: &str) -> Served {
    std::fs::write(directory.join("conf"), conf).unwrap();
    Served::start(directory)
}

struct Pair {
    ours: Served,
    theirs: Served,
    _directory: tempfile::TempDir,
}

fn pair() -> Option<Pair> {
    let directory = tempfile::tempdir().unwrap();
    let theirs = Served::redis(directory.path())?;
    let ours = server(directory.path(), "");
    Some(Pair { ours, theirs, _directory: directory })
}

/// Single commands come in the order of a table of Redis's; so words are compared in theirs.
fn ordered(value: &Value) -> Value {
    match value {
        Value::Text(text) if text.contains("+@") || text.contains("-@") => {
            // Of the commands in a selector the first and the last differ too: no parentheses.
            let mut words: Vec<&str> =
                text.split(' ').map(|word| word.trim_matches(['(', ')'])).collect();
            words.sort_unstable();
            Value::Text(words.join(" "))
        }
        Value::List(all) => Value::List(all.iter().map(ordered).collect()),
        other => other.clone(),
    }
}

/// The log without times and connections.
fn timeless(value: &Value) -> Value {
    let Value::List(all) = value else { return value.clone() };
    let mut all: Vec<Value> = all.iter().map(timeless).collect();
    for at in 1..all.len() {
        if all[at - 1] == text("age-seconds") || all[at - 1] == text("client-info") {
            all[at] = Value::Nil;
        }
    }
    Value::List(all)
}

const RULES: &[&str] = &[
    "on",
    "off",
    "nopass",
    ">secret",
    ">other",
    "<secret",
    "<none",
    "resetpass",
    "reset",
    "allkeys",
    "resetkeys",
    "~*",
    "~a*",
    "~b:*",
    "%R~r*",
    "%W~w*",
    "%RW~a*",
    "%rw~x*",
    "%R~a*",
    "%~x",
    "%RR~x",
    "%X~x",
    "allchannels",
    "resetchannels",
    "&*",
    "&news.*",
    "&a",
    "allcommands",
    "nocommands",
    "+@all",
    "-@all",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "+@string",
    "-@dangerous",
    "+@stream",
    "-@slow",
    "+@connection",
    "-@scripting",
    "+@admin",
    "+@nosuch",
    "+get",
    "-get",
    "+GET",
    "-set",
    "+nosuch",
    "-nosuch",
    "+config|get",
    "-config|set",
    "+config",
    "+config|nosuch",
    "-client|kill",
    "+client",
    "+select|0",
    "+select|",
    "+select",
    "+config|get|x",
    "+acl|whoami",
    "-acl",
    "skip-sanitize-payload",
    "sanitize-payload",
    "clearselectors",
    "(+get ~s:*)",
    "(%R~q* +@all)",
    "( ~x",
    "(+nosuch)",
    "(on)",
    "()",
    "x",
    "",
    "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    "!abc",
    "#ABC",
    "!2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
];

#[test]
fn rules_are_taken_and_shown_as_redis_does_it() {
    let Some(pair) = pair() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let (mut ours, mut theirs) = (pair.ours.connect(), pair.theirs.connect());
    let mut random = fastrand::Rng::with_seed(21);
    let mut both = |words: &[&str]| {
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let (mine, their) = (ordered(&ours.ask(&bytes)), ordered(&theirs.ask(&bytes)));
        assert_eq!(mine, their, "{words:?}");
        mine
    };
    let (mut taken, mut refused) = (0, 0);
    for round in 0..1500 {
        let name = format!("u{}", random.u8(..3));
        let mut words = vec!["ACL", "SETUSER", &name];
        words.extend((0..random.usize(1..6)).map(|_| RULES[random.usize(..RULES.len())]));
        match both(&words) {
            Value::Error(_) => refused += 1,
            _ => taken += 1,
        }
        both(&["ACL", "GETUSER", &name]);
        if round % 20 == 0 {
            both(&["ACL", "LIST"]);
        }
        if round % 100 == 0 {
            both(&["ACL", "DELUSER", &name, "nobody"]);
        }
    }
    assert!(taken > 300 && refused > 300, "{taken} {refused}");
    both(&["ACL", "USERS"]);
    both(&["ACL", "CAT"]);
    for words in [
        &["ACL", "CAT", "nosuch"][..],
        &["ACL", "DELUSER", "default"],
        &["ACL", "SETUSER", "a b"],
        &["ACL", "GETUSER", "nobody"],
        &["ACL", "WHOAMI"],
        &["ACL", "GENPASS", "0"],
        &["ACL", "GENPASS", "x"],
        &["ACL", "LOAD"],
        &["ACL", "SAVE"],
        &["ACL", "HELP"],
        &["ACL", "NO"],
        &["ACL", "LOG", "x"],
        &["ACL", "DRYRUN", "nobody", "get", "a"],
        &["ACL", "DRYRUN", "u0", "nosuch"],
        &["ACL", "DRYRUN", "u0", "get"],
    ] {
        both(words);
    }
    for category in ["keyspace", "stream", "dangerous", "fast", "blocking", "SCRIPTING"] {
        let words: [&[u8]; 3] = [b"ACL", b"CAT", category.as_bytes()];
        assert_eq!(sorted(&ours.ask(&words)), sorted(&theirs.ask(&words)), "{category}");
    }
    let Value::Text(made) = ours.say("ACL GENPASS 5") else { panic!("no text") };
    assert_eq!(made.len(), 2);
    let made = [ours.say("ACL GENPASS"), ours.say("ACL GENPASS")];
    assert!(made[0] != made[1] && matches!(&made[0], Value::Text(made) if made.len() == 64));
}

const USERS: &[&str] = &[
    "reader on >r ~a* %R~r* +@read +@connection +multi +exec +discard",
    "writer on >w %W~w* %RW~a* +@write +@read +@transaction &news.* +publish +subscribe \
     +psubscribe",
    "scripts on >s ~a* +eval +get +set +evalsha +script",
    "selected on >x -@all +ping (~a* +get) (%W~w* +set +del) (&c* +publish)",
    "first on >f ~* +select|0 +config|get -config|set +get",
    "queue on >q ~q:* +@stream",
    "off >o ~* +@all",
    "open on nopass ~* &* +@all -@dangerous",
];

const COMMANDS: &[&str] = &[
    "GET a1",
    "GET r1",
    "GET w1",
    "GET x",
    "SET a1 v",
    "SET w1 v",
    "SET w1 v GET",
    "SET r1 v",
    "MGET a1 r1",
    "MGET a1 w1",
    "DEL a1",
    "DEL w1 a1",
    "COPY r1 w1",
    "COPY a1 w1",
    "RENAME a1 a2",
    "SORT r1",
    "SORT a1 STORE w1",
    "SORT a1 STORE r1",
    "ZUNIONSTORE w1 2 a1 r1",
    "ZUNION 1 w1",
    "XREAD STREAMS a1 r1 0 0",
    "XREAD STREAMS w1 0",
    "XADD q:1 * a b",
    "XADD a1 * a b",
    "XGROUP CREATE q:1 g 0",
    "XGROUP CREATE r1 g 0 MKSTREAM",
    "XREADGROUP GROUP g c STREAMS q:1 >",
    "PUBLISH news.x m",
    "PUBLISH other m",
    "PUBLISH c1 m",
    "SELECT 0",
    "SELECT 1",
    "CONFIG GET port",
    "CONFIG SET timeout 0",
    "CONFIG GET",
    "CLIENT ID",
    "CLIENT KILL x",
    "CLIENT NO",
    "ACL WHOAMI",
    "ACL USERS",
    "DBSIZE",
    "KEYS *",
    "FLUSHALL",
    "PING",
    "ECHO x",
    "NOSUCH a",
    "GET",
    "EVAL return(1) 0",
    "EVAL return(redis.call('get',KEYS[1])) 1 a1",
    "EVAL return(redis.call('get',KEYS[1])) 1 x",
    "EVAL return(redis.call('get','x')) 0",
    "EVAL return(redis.call('del','a1')) 0",
    "EVAL return(redis.pcall('ping')) 0",
    "OBJECT ENCODING a1",
    "OBJECT ENCODING w1",
    "OBJECT NO x",
    "TYPE x",
    "INFO commandstats",
    "SCRIPT EXISTS x",
    "HGETALL r1",
    "LPUSH a1 x",
    "BITOP AND a1 r1 w1",
    "SINTERSTORE a1 a2 x",
    "EXISTS a1 r1",
    "TOUCH a1",
    "WATCH a1",
];

#[test]
fn users_may_do_what_they_may_do_in_redis_and_are_refused_in_the_same_words() {
    let Some(pair) = pair() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let (mut ours, mut theirs) = (pair.ours.connect(), pair.theirs.connect());
    for line in USERS {
        for client in [&mut ours, &mut theirs] {
            let line = if line.starts_with("off") { "away off >o ~* +@all" } else { line };
            assert_eq!(client.say(&format!("ACL SETUSER {line}")), text("OK"), "{line}");
        }
    }
    let compare = |ours: &mut Client, theirs: &mut Client, line: &str, what: &str| {
        let (mine, their) = (ours.say(line), theirs.say(line));
        let refused = |value: &Value| matches!(value, Value::Error(_) | Value::Nil);
        // What they may do is compared elsewhere; here that they may, and the words if not.
        if refused(&mine) || refused(&their) {
            assert_eq!(mine, their, "{what}: {line}");
        }
    };
    for (name, password) in [
        ("reader", "r"),
        ("writer", "w"),
        ("scripts", "s"),
        ("selected", "x"),
        ("first", "f"),
        ("queue", "q"),
        ("away", "o"),
        ("open", "any"),
        ("nobody", "x"),
        ("reader", "wrong"),
        ("default", "x"),
    ] {
        let (mut mine, mut their) = (pair.ours.connect(), pair.theirs.connect());
        let login = format!("AUTH {name} {password}");
        assert_eq!(mine.say(&login), their.say(&login), "{login}");
        compare(&mut mine, &mut their, "ACL WHOAMI", name);
        for line in COMMANDS {
            compare(&mut mine, &mut their, line, name);
            // Without running it.
            let line = format!("ACL DRYRUN {name} {line}");
            assert_eq!(ours.say(&line), theirs.say(&line), "{line}");
        }
        for line in
            ["MULTI", "GET x", "GET a1", "EXEC", "HELLO 3 AUTH reader r", "HELLO 2 AUTH reader no"]
        {
            compare(&mut mine, &mut their, line, name);
        }
    }
    let (mine, their) = (timeless(&ours.say("ACL LOG 12")), timeless(&theirs.say("ACL LOG 12")));
    assert_eq!(mine, their);
    passwords_are_asked_for_and_not_shown(&mut ours, &mut theirs);
}

fn passwords_are_asked_for_and_not_shown(ours: &mut Client, theirs: &mut Client) {
    for line in [
        "ACL LOG RESET",
        "ACL LOG",
        "AUTH x",
        "AUTH",
        "AUTH a b c",
        "CONFIG SET requirepass pw",
        "AUTH no",
        "AUTH pw",
        "ACL LIST",
        "CONFIG SET requirepass verysecret",
        "AUTH pw",
        "ACL GETUSER default",
        "CONFIG GET requirepass",
        "AUTH verysecret",
    ] {
        assert_eq!(
            timeless(&ordered(&ours.say(line))),
            timeless(&ordered(&theirs.say(line))),
            "{line}"
        );
    }
    let lists =
        [ours.say("CLIENT LIST"), ours.say("ACL LIST"), ours.say("ACL LOG"), ours.say("INFO")];
    for list in lists {
        assert!(!format!("{list:?}").contains("verysecret"), "a password is shown: {list:?}");
    }
}

/// What becomes of clients whose user changes while they are connected.
fn changes(served: &Served) -> Vec<Value> {
    let mut all = Vec::new();
    let mut admin = served.connect();
    admin.say("ACL SETUSER anna on >p ~* &news.* &old.* +@all");
    let login = |served: &Served| {
        let mut client = served.connect();
        client.say("AUTH anna p");
        client
    };
    // What was queued is looked at again.
    let mut client = login(served);
    for line in ["MULTI", "SET a 1", "GET b", "EXEC"] {
        all.push(client.say(line));
    }
    for line in ["MULTI", "SET a 1", "GET b"] {
        all.push(client.say(line));
    }
    all.push(admin.say("ACL SETUSER anna -set resetkeys ~c*"));
    all.push(client.say("EXEC"));
    all.push(client.say("GET c"));
    all.push(client.say("GET a"));
    // Who is subscribed to what it may not have any more is cut; who may have it stays.
    let (mut stays, mut goes, mut pattern) = (login(served), login(served), login(served));
    stays.say("SUBSCRIBE news.a");
    goes.say("SUBSCRIBE old.a");
    pattern.say("PSUBSCRIBE old.*");
    all.push(admin.say("ACL SETUSER anna resetchannels &news.*"));
    all.push(admin.say("PUBLISH news.a hello"));
    all.push(stays.read().unwrap());
    for gone in [&mut goes, &mut pattern] {
        all.push(Value::Int(i64::from(gone.read().is_err())));
    }
    // So is everybody whose user is gone, also who said so.
    let mut own = login(served);
    all.push(own.say("ACL DELUSER anna nobody"));
    for gone in [&mut own, &mut client, &mut stays] {
        all.push(Value::Int(i64::from(gone.send(&[b"PING"]).and_then(|()| gone.read()).is_err())));
    }
    all.push(admin.say("ACL USERS"));
    // The default user may be limited, and then nobody is let in without a name.
    admin.say("ACL SETUSER boss on >b ~* &* +@all");
    admin.say("AUTH boss b");
    all.push(admin.say("ACL SETUSER default off"));
    let mut new = served.connect();
    all.push(new.say("PING"));
    all.push(new.say("AUTH x"));
    all.push(new.say("AUTH boss b"));
    all.push(new.say("RESET"));
    all.push(new.say("GET a"));
    all.push(admin.say("ACL SETUSER default on nopass"));
    all.push(served.connect().say("PING"));
    all
}

#[test]
fn what_changes_for_a_user_changes_for_its_clients() {
    let Some(pair) = pair() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let (mine, their) = (changes(&pair.ours), changes(&pair.theirs));
    for (number, (mine, their)) in mine.iter().zip(&their).enumerate() {
        assert_eq!(mine, their, "answer {number}");
    }
    assert_eq!(mine.len(), their.len());
}

#[test]
fn users_come_from_the_configuration_and_from_a_file_that_redis_reads_too() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("users.acl");
    {
        let served =
            server(directory.path(), "user default off\nuser anna on >p ~a* (+set ~b*) +get\n");
        let mut client = served.connect();
        assert_eq!(client.say("PING"), Value::Error("NOAUTH Authentication required.".to_owned()));
        assert_eq!(client.say("AUTH anna p"), text("OK"));
        assert_eq!(client.say("GET a"), Value::Nil);
        assert!(matches!(client.say("SET a 1"), Value::Error(said) if said.starts_with("NOPERM")));
        assert_eq!(client.say("SET b 1"), text("OK"));
    }
    std::fs::write(&file, "user anna on >p ~a* &x* +@read\nuser default on nopass ~* &* +@all\n")
        .unwrap();
    let conf = format!("aclfile {}\n", file.display());
    let mut served = server(directory.path(), &conf);
    let mut client = served.connect();
    let before = client.say("ACL LIST");
    assert!(matches!(&before, Value::List(all) if all.len() == 2));
    assert_eq!(client.say("ACL SETUSER bert on >q allkeys -@all +@all -@admin (+get)"), text("OK"));
    let with_bert = client.say("ACL LIST");
    assert_eq!(client.say("ACL LOAD"), text("OK"));
    assert_eq!(client.say("ACL LIST"), before);
    assert_eq!(client.say("ACL SETUSER bert on >q allkeys -@all +@all -@admin (+get)"), text("OK"));
    assert_eq!(client.say("ACL SAVE"), text("OK"));
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(!written.contains(">q") && written.lines().count() == 3, "{written}");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o077, 0);
    served.kill();
    let served = server(directory.path(), &conf);
    let mut client = served.connect();
    assert_eq!(client.say("ACL LIST"), with_bert);
    // A real Redis starts with the same file and has the same users.
    let path = file.to_str().unwrap();
    if let Some(redis) =
        Served::redis_at(directory.path(), crate::served::free_port(), &["--aclfile", path])
    {
        assert_eq!(ordered(&redis.connect().say("ACL LIST")), ordered(&with_bert));
    }
    // A file that is wrong changes nothing, and no message has a password.
    std::fs::write(&file, "user carl on >verysecret nosuchrule\nuser carl\nx\n").unwrap();
    let said = client.say("ACL LOAD");
    assert!(
        matches!(&said, Value::Error(said) if said.contains(":1: ") && said.contains("Duplicate \
            user 'carl'")
            && !said.contains("verysecret")),
        "{said:?}"
    );
    assert_eq!(client.say("ACL LIST"), with_bert);
}

#[test]
fn rules_of_any_bytes_are_refused_or_taken_and_end_no_server() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "");
    let mut client = served.connect();
    let mut random = fastrand::Rng::with_seed(9);
    let mut raw = Vec::new();
    for _ in 0..3000 {
        let count = random.usize(..5);
        let rules: Vec<Vec<u8>> = (0..count)
            .map(|_| {
                let mut rule = vec![b"+-~%&()<>#!@|"[random.usize(..13)]];
                rule.extend((0..random.usize(..8)).map(|_| match random.bool() {
                    true => b"+-~%&()<>#!@|getRW*a "[random.usize(..21)],
                    false => random.u8(..),
                }));
                rule
            })
            .collect();
        let mut words: Vec<&[u8]> = vec![b"ACL", b"SETUSER", b"u"];
        words.extend(rules.iter().map(Vec::as_slice));
        raw.extend(request(&words));
        client.ask(&words);
        client.say("ACL GETUSER u");
        client.say("ACL DRYRUN u mget a b");
    }
    assert_eq!(client.say("PING"), text("PONG"));
}

#[test]
fn config_rewrite_keeps_the_users_for_the_next_start_also_of_a_real_redis() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("conf");
    let mut served = server(directory.path(), "user carl on >c ~c:* +get\nrequirepass first\n");
    let mut client = served.connect();
    client.say("AUTH first");
    for command in [
        "ACL SETUSER anna on >secret ~a:* resetchannels &x -@all +get +set (%R~b:* -@all +@read)",
        "ACL SETUSER b\u{2003}ert on nopass ~\u{a0}k:* +@all",
        "ACL DELUSER carl",
        "CONFIG SET requirepass second",
        "CONFIG REWRITE",
    ] {
        let said = client.say(command);
        assert!(!matches!(said, Value::Error(_)), "{command}: {said:?}");
    }
    let before = without_default(&client.say("ACL LIST"));
    served.kill();
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(!written.contains("carl") && !written.contains(">secret"), "{written}");
    let served = server(directory.path(), &written);
    let mut client = served.connect();
    assert_eq!(client.say("AUTH second"), text("OK"));
    assert_eq!(without_default(&client.say("ACL LIST")), before);
    assert_eq!(client.say("AUTH anna secret"), text("OK"));
    assert_eq!(client.say("GET a:1"), Value::Nil);
    let lines = written.lines().filter(|line| line.starts_with("user "));
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
    if let Some(redis) = Served::redis_at(
        directory.path(),
        crate::served::free_port(),
        &["--include", path.to_str().unwrap()],
    ) {
        let mut client = redis.connect();
        assert_eq!(client.say("AUTH second"), text("OK"));
        assert_eq!(ordered(&without_default(&client.say("ACL LIST"))), ordered(&before));
    }
}

/// A list of users without the rule that a line of a file shows and that holds anyway.
fn without_default(list: &Value) -> Value {
    let Value::List(all) = list else { panic!("no list: {list:?}") };
    let each = |user: &Value| match user {
        Value::Text(user) => Value::Text(user.replace(" sanitize-payload", "")),
        other => panic!("no text: {other:?}"),
    };
    Value::List(all.iter().map(each).collect())
}

#[test]
fn config_rewrite_says_nothing_of_users_whom_nobody_made() {
    let directory = tempfile::tempdir().unwrap();
    let served = server(directory.path(), "timeout 5\n");
    let mut client = served.connect();
    client.say("CONFIG SET requirepass x");
    assert_eq!(client.say("CONFIG REWRITE"), text("OK"));
    let written = std::fs::read_to_string(directory.path().join("conf")).unwrap();
    assert!(written.contains("requirepass x") && !written.contains("user "), "{written}");
    // A name that no line of text can hold leaves the file as it is.
    client.ask(&[b"ACL", b"SETUSER", b"\xff\xfe"]);
    let said = client.say("CONFIG REWRITE");
    assert!(matches!(&said, Value::Error(said) if said.contains("no text")), "{said:?}");
    assert_eq!(std::fs::read_to_string(directory.path().join("conf")).unwrap(), written);
}

#[test]
fn patterns_of_sort_and_channels_of_shards_need_the_rights_that_redis_asks_for() {
    let Some(pair) = pair() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let mut both = [pair.ours.connect(), pair.theirs.connect()];
    for line in [
        "RPUSH akey 2 1",
        "SET victim secret",
        "ACL SETUSER some on nopass ~a* resetchannels &ch* +@all",
        "ACL SETUSER all on nopass %R~* %W~a* +@all",
        "AUTH some x",
        "SORT akey",
        "SORT akey BY nosort",
        "SORT akey BY nosort GET *",
        "SORT akey BY nosort GET #",
        "SORT akey BY w*",
        "SORT_RO akey GET * ALPHA",
        "SORT akey STORE victim BY store ALPHA",
        "SORT akey BY store ALPHA",
        "SORT akey STORE astored",
        "EVAL x -9223372036854775808 victim",
        "SPUBLISH channel x",
        "SPUBLISH other x",
        "SSUBSCRIBE other",
        "ACL DRYRUN some SSUBSCRIBE channel",
        "ACL DRYRUN some SPUBLISH other x",
        "AUTH all x",
        "SORT akey BY nosort GET w*",
        "SORT akey BY w* STORE astored",
        "SORT akey BY w* STORE victim",
        "AUTH default x",
        "GET victim",
        "LRANGE astored 0 -1",
    ] {
        let [ours, theirs] = both.each_mut().map(|client| client.say(line));
        assert_eq!(ours, theirs, "{line}");
    }
}
