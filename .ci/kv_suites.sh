# What the scripts that run suites of others against `tiersmith kv` share: the redis-server that says
# which tests count, servers at free ports, and the comparison of both results by the names of tests.
#
# What it is not: it runs nothing by itself. Who sources it has sourced set_up.sh, and has set `skipped`
# (a list of lines "UNIT | TEST | REASON"), `build` (where logs go), `target` and `root`.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # variables of the scripts that source this

version=7.0.15
redis=${TIERSMITH_REDIS:-$(command -v redis-server || true)}
passed=0 failed=0 left_out=0 total=0 wrong=0
server=''
why=''
remedy=''

# packages_or_false COMMAND PACKAGE...: installs Debian's packages where COMMAND is missing and root
# asks. False if COMMAND is missing afterwards.
packages_or_false() {
    local command=$1
    shift
    ! have "$command" || return 0
    if [ "$(id -u)" != 0 ] || ! have apt-get; then return 1; fi
    echo "installing with apt-get: $*"
    apt-get update -qq >/dev/null 2>&1 || true
    install_quietly "$@" && have "$command"
}

# Whether the redis-server of the version that the suites are judged by is here, after it was
# installed if need be; `why` and `remedy` say what is missing otherwise.
set_up_redis() {
    if [ -z "$redis" ]; then
        packages_or_false redis-server redis-server || true
        redis=$(command -v redis-server || true)
    fi
    if [ -z "$redis" ]; then
        why="there is no redis-server, which says which tests count"
        remedy="apt-get install redis-server"
        return 1
    fi
    # Servers start in directories of their own. Not where a link leads: Debian's redis-server is one
    # program with redis-check-rdb, which goes by its name.
    redis=$(realpath -s "$redis")
    "$redis" --version 2>/dev/null | grep -q "v=$version " && return 0
    why="$redis is not version $version, which says which tests count"
    remedy="it with TIERSMITH_REDIS=FILE, a redis-server $version"
    return 1
}

# `kv`: the program under test, built if TIERSMITH_SUITE_KV does not name one.
set_up_tiersmith() {
    kv=${TIERSMITH_SUITE_KV:-}
    if [ -n "$kv" ]; then
        kv=$(realpath "$kv")
        return 0
    fi
    set_up
    echo "building tiersmith"
    cargo build --release -p tiersmith-cli >"$build/build.log" 2>&1 || {
        tail -n 30 "$build/build.log"
        give_up "tiersmith could not be built"
    }
    kv=$(realpath "$target/release/tiersmith")
}

# The number of a TCP port that nobody has.
free_port() {
    local port
    for _ in $(seq 100); do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port" && return; }
    done
    give_up "no free TCP port was found"
}

# wait_for_server WHICH PORT LOG: returns when `server` answers at the port.
wait_for_server() {
    for _ in $(seq 300); do
        (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return
        kill -0 "$server" 2>/dev/null || { cat "$3" && give_up "the server $1 did not start"; }
        sleep 0.1
    done
    give_up "the server $1 did not answer at port $2; see $3"
}

stop_server() {
    [ -n "$server" ] || return 0
    kill -9 "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}

# judge UNIT: counts the tests of a unit that redis-server passes, and names those that fail and are not on the list.
judge() {
    local unit=$1 name=${1//\//-} test
    while IFS= read -r test; do
        total=$((total + 1))
        if grep -qxF -e "ok $test" "$build/logs/kv/$name.results" && ! grep -qxF -e "err $test" "$build/logs/kv/$name.results"; then
            passed=$((passed + 1))
            if on_list "$unit" "$test"; then
                wrong=$((wrong + 1))
                echo "  ON THE LIST, AND PASSES $unit: $test"
            fi
        elif on_list "$unit" "$test"; then
            left_out=$((left_out + 1))
        else
            failed=$((failed + 1))
            echo "  FAILED $unit: $test"
        fi
    done < <(passed_by_redis "$name")
    while IFS= read -r test; do
        passed_by_redis "$name" | grep -qxF -e "$test" && continue
        wrong=$((wrong + 1))
        echo "  ON THE LIST, AND NO TEST THAT REDIS-SERVER PASSES $unit: $test"
    done < <(unit=$unit awk -F ' \\| ' '!/^#/ && $1 == ENVIRON["unit"] { print $2 }' "$skipped")
}

# A name that two tests of a unit have counts as passed only if no test of that name failed.
passed_by_redis() {
    comm -23 <(sed -n 's/^ok //p' "$build/logs/redis/$1.results" | sort -u) <(sed -n 's/^err //p' "$build/logs/redis/$1.results" | sort -u)
}

on_list() {
    # Not with awk's -v, which takes backslashes of a name for its own.
    unit=$1 test=$2 awk -F ' \\| ' '
        !/^#/ && $1 == ENVIRON["unit"] && $2 == ENVIRON["test"] { found = 1 }
        END { exit !found }' "$skipped"
}
