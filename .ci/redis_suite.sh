#!/usr/bin/env bash
# Runs Redis's own Tcl tests against `tiersmith kv`. Called by `./check --redis-suite`.
#
# Redis's sources are no part of this project: they come from Debian's source package redis 7.0.15, known by its SHA-256. Each unit
# runs twice as Redis runs it against a server that it has not started: once against the redis-server of that version, which says
# which tests count, and once against `tiersmith kv` on an EMULATED tier. Each unit has a server of its own, so that one which hangs
# or dies takes only itself along.
#
# Which tests are skipped, and why, is in crates/kv/tests/suite/skipped. A name there that no test has, or whose test passes, is an
# error. Exit codes: 0 good or skipped, 1 a test failed that is not on the list, 2 it could not run.
set -eu

help() {
    cat <<'END'
usage: .ci/redis_suite.sh [UNIT...]

Runs the units of Redis's suite, or those named (such as unit/type/hash). The last line is
"redis suite: N passed, M failed, K skipped of T that redis-server passes".

Environment: TIERSMITH_SUITE_FILE_SECONDS is the time limit of a unit (default 300), TIERSMITH_SUITE_KV a `tiersmith` that is built
already, TIERSMITH_REDIS a redis-server 7.0.15 (default: the one of the PATH, which is installed if root asks).
END
}

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# shellcheck source=.ci/set_up.sh
. "$root/.ci/set_up.sh"
# shellcheck source=.ci/kv_suites.sh
. "$root/.ci/kv_suites.sh"

archive=redis_$version.orig.tar.gz
sha256=4b1dc4ee6d622a09fff9c6777191209750fb5e5a725ef78ea012d6eef4c22982
skipped=$root/crates/kv/tests/suite/skipped
target=${CARGO_TARGET_DIR:-$root/target}
build=$target/redis-suite
unit_seconds=${TIERSMITH_SUITE_FILE_SECONDS:-300}

# skip WHY WHAT_TO_DO
skip() {
    echo "skipped: Redis's Tcl tests, because $1; run $2"
    exit 0
}

set_up_tools() {
    packages_or_false tclsh tcl || skip "tclsh is missing" "sudo apt-get install tcl"
    set_up_redis || skip "$why" "$remedy"
}

# Debian's source package, with a sources list and lists of its own: the machine's are not touched, and nothing of it needs root.
fetch_sources() {
    local apt=$build/apt file options
    have apt-get || skip "there is no apt-get, and Redis's tests come from Debian's source package redis" "it on Debian or Ubuntu"
    mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        if [ -f "$file" ] && grep -qE '^[^#]*(debian|ubuntu)\.' "$file"; then
            sed -E 's/^Types:.*/Types: deb-src/; s/^deb([ \t])/deb-src\1/' "$file" >"$apt/sources/$(basename "$file")"
        fi
    done
    options=(-o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$apt/sources" -o "Dir::State::Lists=$apt/lists"
        -o "Dir::Cache=$apt/cache" -o "APT::Sandbox::User=" -o "Debug::NoLocking=1")
    echo "fetching Debian's source package redis"
    (cd "$build" && apt-get "${options[@]}" -qq update && apt-get "${options[@]}" -qq source --download-only redis) \
        >"$build/fetch.log" 2>&1 || skip "apt-get could not fetch the source package redis ($build/fetch.log)" "it with a network"
}

set_up_sources() {
    mkdir -p "$build"
    [ -f "$build/$archive" ] || fetch_sources
    [ -f "$build/$archive" ] || skip "Debian's source package redis is not $version any more" "it with $build/$archive put there"
    echo "$sha256  $build/$archive" | sha256sum --check --quiet - || give_up "$build/$archive is not what it was; remove it"
}

# one WHICH UNIT: starts a server, runs a unit against it, and writes the lines "ok NAME" and "err NAME".
one() {
    local which=$1 unit=$2 port log place=$work/server
    log=$build/logs/$which/${unit//\//-}
    rm -rf "$place" && mkdir -p "$place" "$build/logs/$which"
    port=$(free_port)
    if [ "$which" = redis ]; then
        (cd "$place" && exec "$redis" --port "$port" --save "" --enable-debug-command yes) >"$log.server" 2>&1 &
    else
        (cd "$place" && exec "$kv" kv --tier "$place/tier" --size 1G --emulate --port "$port") >"$log.server" 2>&1 &
    fi
    server=$!
    wait_for_server "$which" "$port" "$log.server"
    # --durable: a test that ends with an exception is one that failed, and the next one runs.
    (cd "$work/source" && exec timeout -k 5 "$unit_seconds" tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$port" \
        --baseport "$(free_port)" \
        --single "$unit" --durable --timeout "$unit_seconds" --ignore-encoding --tags "-needs:debug -needs:repl") \
        >"$log" 2>&1 </dev/null || true
    stop_server
    # Without this, a unit that nobody ran would look like one without a test.
    grep -q "Testing $unit" "$log" || give_up "Redis's test program did not begin with $unit; see $log"
    # The names of tests, without the time that each took and without colours.
    sed -E 's/\x1b\[[0-9;]*m//g' "$log" | sed -nE \
        -e 's/^\[ok\]: (.*) \([0-9]+ ms\)$/ok \1/p' \
        -e "s|^\[err\]: (.*) in tests/$unit\.tcl\$|err \1|p" | sort -u >"$log.results"
}

case ${1:-} in
--help | -h)
    help
    exit 0
    ;;
esac
set_up_tools
set_up_sources
set_up_tiersmith
work=$(mktemp -d -t redis-suite.XXXXXX)
trap 'stop_server; rm -rf "$work"' EXIT
mkdir "$work/source"
tar xf "$build/$archive" --strip-components=1 -C "$work/source"
# Some tests call these by their place in the build directory.
for tool in redis-server redis-cli redis-benchmark; do
    [ ! -x "$(dirname "$redis")/$tool" ] || ln -sf "$(dirname "$redis")/$tool" "$work/source/src/$tool"
done
if [ $# -gt 0 ]; then
    units=("$@")
else
    # Those of replication, of the cluster and of what starts servers of its own do not apply to a server that runs already.
    mapfile -t units < <(sed -n '/^set ::all_tests {/,/^}/s/^ *\(unit\/[^ ]*\)$/\1/p' "$work/source/tests/test_helper.tcl" | grep -v '^unit/cluster')
    [ "${#units[@]}" -gt 30 ] || give_up "the list of Redis's units could not be read"
fi
for unit in "${units[@]}"; do
    began=$SECONDS before=$passed of=$total
    one redis "$unit"
    one kv "$unit"
    judge "$unit"
    [ "$total" = "$of" ] || echo "$unit: $((passed - before)) of $((total - of)), $((SECONDS - began)) s"
done
if [ $# -eq 0 ] && [ "$total" -lt 1500 ]; then
    give_up "redis-server passed $total tests, and 1679 were to be expected; see $build/logs/redis"
fi
[ "$failed" -eq 0 ] || echo "their output: $build/logs"
[ "$wrong" -eq 0 ] || echo "$wrong lines of $skipped are wrong"
echo "redis suite: $passed passed, $failed failed, $left_out skipped of $total that redis-server passes"
[ "$failed" -eq 0 ] && [ "$wrong" -eq 0 ] || exit 1
