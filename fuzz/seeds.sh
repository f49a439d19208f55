#!/usr/bin/env bash
# Gives every fuzz target something to begin with: what the tests have of the real thing, and short examples. Writes into corpus/ beside
# this file, or into the directory given. Needs perl; with redis-server and redis-cli there are more seeds. Running it again changes nothing that the fuzzer has found.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
to=${1:-$here/corpus}
awr=$here/../crates/awr

# seed TARGET NAME: what comes on standard input becomes a seed.
seed() {
    mkdir -p "$to/$1"
    cat >"$to/$1/seed-$2"
}

# A string constant of a Rust source.
constant() {
    perl -0ne 'print $2 if /^const '"$1"': &str = r?(#?)"\n?(.*?)"\1;/ms' "$awr/tests/it/import.rs"
}

# Each moment of the images' tier as it was; with one edit of a structure; and the same with every checksum made right after it.
# An edit is a kind, a place of three bytes, a length, and what the kind wants (fuzz_targets/image/mod.rs).
for moment in 0 1 2 3 4 5; do
    for target in attach_image check_image; do
        perl -e 'print pack "C2", shift, 0' $moment | seed $target "moment-$moment"
        # Fields of the superblock, a lane's record, the batch record, a slot's identity and lines, a map page.
        for at in 16 64 72 96 104 112 120 128 12296 12304 12336 16384 16400 20480 20504 20544 20608 20616 20624 32768; do
            perl -e '($m, $at) = @ARGV; $edit = pack("C", 5) . substr(pack("V", $at), 0, 3) . pack("C3", 0, 11, 1);
                print pack("C2", $m, 0), $edit, "\6\0\0\0\0"' $moment $at | seed $target "moment-$moment-$at"
        done
    done
done
# The images of released formats, whole.
for image in "$here"/../fixtures/store-*/*.txt; do
    perl -ne 'next unless /^([0-9a-f]+): ([0-9a-f]+)$/; $at = hex $1;
        $image .= "\0" x ($at - length $image) if length $image < $at;
        substr($image, $at, length($2) / 2) = pack "H*", $2;
        END { print $image }' "$image" | seed check_image "$(basename "$image" .txt)"
done

for report in TEXT STATSPACK; do constant $report | seed import_text $report; done
for report in HTML RAC; do constant $report | seed import_html $report; done

for file in "$awr"/tests/recorded/*.json "$awr"/tests/expected/snapshot-*.json; do
    name=$(basename "$file" .json)
    seed snapshot "$name" <"$file"
    # The body alone: the target makes the checksum right.
    perl -0ne 'print $1 if /"snapshot":(.*)\}\s*$/s' "$file" | seed snapshot "$name-body"
done

printf '+OK\r\n-ERR unknown\r\n:12\r\n' | seed resp simple
# shellcheck disable=SC2016  # lengths, not variables
printf '*3\r\n$3\r\nabc\r\n$-1\r\n*-1\r\n' | seed resp array
printf '%%2\r\n+a\r\n:1\r\n+b\r\n#t\r\n,1.5\r\n_\r\n' | seed resp map
printf '=15\r\ntxt:Some string\r\n>2\r\n+a\r\n~1\r\n:1\r\n(12345678901234567890\r\n!5\r\nERR x\r\n' | seed resp third

printf 'postgresql://user:pass%%40@[::1]:5432/db?sslmode=verify-full&sslrootcert=%%2Fca.pem' | seed address postgresql
printf 'mysql://root@localhost:3306/?socket=%%2Frun%%2Fmysqld.sock&ssl-mode=REQUIRED' | seed address mysql
printf 'rediss://:secret@host:6380/0?cacert=%%2Fca.pem' | seed address redis
# shellcheck disable=SC1003  # a quote in a word
printf 'host=/run/postgresql port=5433 user=awr password='\''a b\\'\'''\'' dbname=x' | seed address words

printf 'select * from t where a = '\''x'\'''\''y'\'' and b in (1, 2.5e-3) -- c\n' | seed redaction select
# shellcheck disable=SC1003,SC2016  # the quotes of PostgreSQL
printf 'insert into "T" values (E'\''\\'\'''\'', $tag$ text $tag$, 0x1F, U&"d\0061t" /* a /* b */ c */) # d\n' | seed redaction quotes

printf 'GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text; version=1.0.0;q=0.5,*/*;q=0.1\r\n\r\n' | seed http_head get
printf 'application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.3' | seed http_head accept

# Certificates of the tests, in DER.
perl -MMIME::Base64 -0ne 'while (/-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----/gs) {
        ($text = $1) =~ s/\\n\\|\s//g; open $out, ">", "'"$to"'/certificate/seed-" . ++$n or die; print $out decode_base64($text); }' \
    < <(mkdir -p "$to/certificate" && cat "$awr/src/sources/tls/tests.rs")

# Messages of a kernel: operation, node, user, so many bytes. Look up, open, read, write, release; make, rename, remove.
perl -e '
    sub message { my ($op, $node, $body) = @_; pack("C4", $op, $node, 0, length $body) . $body }
    $lookup = message(1, 1, "a\0");
    $open = message(14, 2, pack "L2", 2, 0);
    $read = message(15, 2, pack "Q2L2Q2", 1, 0, 4096, 0, 0, 0);
    $write = message(16, 2, pack("Q2L2Q2", 1, 4096, 100, 0, 0, 0) . "x" x 100);
    $sync = message(20, 2, pack "QL2", 1, 0, 0);
    $getattr = message(3, 2, pack "L2Q", 0, 0, 0);
    $setattr = message(4, 2, pack "L2Q2", 8, 0, 0, 5000);
    $release = message(18, 2, pack "QL2Q", 1, 0, 0, 0);
    $make = message(35, 1, pack("L4", 2, 0644, 0, 0) . "new\0");
    $rename = message(45, 1, pack("QL2", 1, 0, 0) . "new\0other\0");
    $opendir = message(27, 1, pack "L2", 0, 0);
    $readdir = message(44, 1, pack "Q2L2Q2", 1, 0, 200, 0, 0, 0);
    $allocate = message(43, 2, pack "Q3L2", 1, 0, 65536, 0, 0);
    print $lookup, $open, $read, $write, $sync, $getattr, $setattr, $read, $allocate, $release, $make, $write, $rename,
        $opendir, $readdir, message(10, 1, "other\0"), message(9, 1, pack("L2", 0755, 0) . "d\0"), message(11, 1, "d\0")' | seed messages calls

# Requests to the key-value server, one for each type of value.
request() {
    local word
    printf '*%d\r\n' $#
    for word; do printf '$%d\r\n%s\r\n' "${#word}" "$word"; done
}
commands() {
    request SET s v EX 100 NX
    request APPEND s x
    request INCRBY n 5
    request HSET h a 1 b 2
    request LPUSH l a b c
    request LRANGE l 0 -1
    request SADD set a b 7
    request SINTERSTORE inter set numbers
    request ZADD z GT CH 1.5 a -inf b
    request ZRANGE z 0 -1 BYSCORE LIMIT 0 5
    request XADD st MAXLEN '~' 5 '*' f v
    request XREADGROUP GROUP g c COUNT 2 STREAMS st '>'
    request BITFIELD bits OVERFLOW SAT INCRBY u8 '#1' 300
    request PFADD hll a b
    request GEOADD geo 13.36 38.11 Palermo
    request MULTI
    request RENAME s t
    request EXEC
    request SORT set ALPHA DESC STORE sorted
}
others() {
    request EVAL 'return redis.call("set", KEYS[1], ARGV[1])' 1 s v
    request WATCH s
    request CONFIG SET maxmemory-policy allkeys-lru
    request ACL SETUSER u on '>p' '~*' '+@all'
    request CLIENT TRACKING ON BCAST PREFIX a
    request HELLO 3 AUTH u p
}
commands | seed kv_requests types
others | seed kv_requests others
printf 'set k "a\\x41 b"\r\nget k\r\n' | seed kv_requests lines
# Of a file, and of a primary, each command is one that was not refused.
request SET s v | seed kv_append_only set
# shellcheck disable=SC2016  # lengths, not variables
printf '#TS:1700000000\r\n*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*1\r\n$4\r\nEXEC\r\n' | seed kv_append_only transaction
nothing() { printf 'REDIS0009\377\0\0\0\0\0\0\0\0'; }
nothing | seed kv_dump empty
hello=$(printf '+PONG\r\n+OK\r\n+OK\r\n+FULLRESYNC %040d 100\r\n' 0)
# shellcheck disable=SC2016  # a length, not a variable
{ printf '%s\n$18\r\n' "$hello" && nothing && request SET s v; } | seed kv_primary empty

# What a real Redis writes, if there is one: its dump, its append-only file, and what it would say to a replica.
if command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then
    redis=$(mktemp -d)
    trap 'rm -rf "$redis"' EXIT
    redis-server --port 0 --unixsocket "$redis/socket" --dir "$redis" --save '' --appendonly yes --rdbchecksum no >/dev/null &
    server=$!
    ask() { redis-cli -s "$redis/socket" "$@" >/dev/null 2>&1; }
    for _ in $(seq 100); do
        if ask ping; then break; fi
        sleep 0.05
    done
    commands | redis-cli -s "$redis/socket" --pipe >/dev/null 2>&1 || true
    ask save
    kill "$server"
    wait "$server" 2>/dev/null || true
    seed kv_dump redis <"$redis/dump.rdb"
    cat "$redis"/appendonlydir/*.incr.aof | seed kv_append_only redis
    {
        printf '%s\n$%d\r\n' "$hello" "$(stat -c %s "$redis/dump.rdb")"
        cat "$redis/dump.rdb" "$redis"/appendonlydir/*.incr.aof
    } | seed kv_primary redis
fi

find "$to" -name 'seed-*' | wc -l | sed 's/$/ seeds/'
