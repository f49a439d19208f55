#!/usr/bin/env bash
# Runs the test suites of clients of Redis against `tiersmith kv`. Called by `./check --client-suites`.
#
# redis-py's suite is in its source distribution (PyPI), go-redis's in its module (Go's proxy), BullMQ
# is a package of npm: each of one version, known by the checksum in .ci/checksums. What they depend on
# comes from PyPI, Go's proxy and npm, with the versions below or those that they ask for. Nothing of
# them is part of this project; it is installed below target, but for Debian's packages if root asks,
# and what pip, Go and npm keep for the next time. Each suite runs twice: against
# redis-server 7.0.15, which says which tests count, and against `tiersmith kv` on EMULATED tiers.
# Tests of the cluster, of Sentinel and of modules do not apply, nor do those of redis-py that speak
# to no server.
#
# Which tests are skipped, and why, is in crates/kv/tests/suite/skipped_clients. A name there that no
# test has, or whose test passes, is an error. Exit codes: 0 good or skipped, 1 a test failed that is
# not on the list, 2 it could not run.
set -eu

help() {
    cat <<'TEXT'
usage: .ci/client_suites.sh [redis-py|go-redis|bullmq]...

Runs the suites named, or all. The last lines say of each "NAME suite: N passed, M failed, K skipped
of T that redis-server passes", or why it was skipped.

Environment: TIERSMITH_SUITE_SECONDS is the time limit of a suite, or of a file of redis-py (default 900),
TIERSMITH_SUITE_KV a `tiersmith` that is built already, TIERSMITH_REDIS a redis-server 7.0.15
(default: the one of the PATH, which is installed if root asks).
TEXT
}

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# shellcheck source=.ci/set_up.sh
. "$root/.ci/set_up.sh"
# shellcheck source=.ci/kv_suites.sh
. "$root/.ci/kv_suites.sh"

redis_py=7.1.0
go_redis=v9.7.3
bullmq=5.81.5

skipped=$root/crates/kv/tests/suite/skipped_clients
target=${CARGO_TARGET_DIR:-$root/target}
mkdir -p "$target/client-suites"
build=$(cd "$target/client-suites" && pwd)
run_seconds=${TIERSMITH_SUITE_SECONDS:-900}
verdicts=()

# skip NAME WHY WHAT_TO_DO
skip() {
    verdicts+=("skipped: the suite of $1, because $2; $3")
    echo "${verdicts[-1]}"
}

# A Python in target with what redis-py's dev_requirements.txt asks for and its tests import.
python_with_libraries() {
    local place=$build/python
    [ "$(cat "$place/complete" 2>/dev/null)" != "$redis_py" ] || return 0
    packages_or_false python3 python3 || return 1
    python3 -c 'import ensurepip, venv' 2>/dev/null || install_if_root python3-venv || return 1
    echo "installing with pip into $place: what the tests of redis-py import"
    rm -rf "$place"
    { python3 -m venv "$place" && "$place/bin/pip" install --disable-pip-version-check -q "redis==$redis_py" mock==5.2.0 \
        numpy==2.2.6 packaging==24.2 pybreaker==1.4.1 pytest==8.4.2 pytest-asyncio==1.1.0 pytest-timeout==2.4.0 \
        redis-entraid==1.0.0 && echo "$redis_py" >"$place/complete"; } >"$build/python.log" 2>&1 </dev/null
}

install_if_root() {
    [ "$(id -u)" = 0 ] && have apt-get && apt-get update -qq >/dev/null 2>&1 && install_quietly "$@"
}

# results_of REPORT RESULTS: the tests of a report in JUnit's form as lines "ok NAME" and "err NAME".
# Tests that were not run have no line.
results_of() {
    python3 - "$1" <<'PYTHON' | sort -u >"$2"
import sys
import xml.etree.ElementTree as tree

for case in tree.parse(sys.argv[1]).iter("testcase"):
    tags = {child.tag for child in case}
    if "skipped" in tags:
        continue
    name, group = case.get("name"), case.get("classname")
    if group.startswith("tests."):
        # pytest: "tests.test_asyncio.test_lock.TestLock", "test_lock[decoded]"
        name = group.removeprefix("tests.") + "." + name
    else:
        # Ginkgo: "[It] Commands strings should Set [label]"
        kind, _, name = name.partition("] ")
        if kind != "[It":
            continue
    failed = tags & {"failure", "error"}
    print("err" if failed else "ok", " ".join(name.encode("unicode_escape").decode().split()))
PYTHON
}

# finish NAME UNIT...: compares the results of a suite's units and adds its verdict.
finish() {
    local name=$1 unit
    shift
    passed=0 failed=0 left_out=0 total=0
    for unit in "$@"; do judge "$unit"; done
    verdicts+=("$name suite: $passed passed, $failed failed, $left_out skipped of $total that redis-server passes")
    [ "$failed" -eq 0 ] || bad=1
    [ "$failed" -eq 0 ] || echo "their output: $build/logs"
}

### redis-py

# Certificates where redis-py's tests look for them: an authority, and with its signature a server's
# and a client's. Without openssl the tests that need them fail against redis-server, and do not count.
certificates() {
    local place=$1 name
    mkdir -p "$place"
    have openssl || return 0
    (
        cd "$place"
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 30 -subj "/CN=authority"
        for name in redis client; do
            openssl req -newkey rsa:2048 -nodes -keyout "$name.key" -out "$name.csr" -subj "/CN=localhost"
            openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$name.crt" \
                -extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1")
        done
    ) >"$build/openssl.log" 2>&1 || true
}

# start WHICH PORT TLS_PORT LOG: a server as redis-py's own tests have it.
start() {
    local which=$1 port=$2 tls_port=$3 log=$4 tls=$work/redis-py/dockers/standalone/tls place=$work/server name
    local settings=()
    rm -rf "$place" && mkdir -p "$place"
    if [ -f "$tls/redis.crt" ]; then
        settings=("tls-port=$tls_port" "tls-cert-file=$tls/redis.crt" "tls-key-file=$tls/redis.key" "tls-ca-cert-file=$tls/ca.crt"
            "tls-auth-clients=no")
    fi
    if [ "$which" = redis ]; then
        local options=()
        for name in "${settings[@]}"; do options+=("--${name%%=*}" "${name#*=}"); done
        (cd "$place" && exec "$redis" --port "$port" --save "" --enable-debug-command yes "${options[@]}") >"$log" 2>&1 &
    else
        local options=()
        for name in "${settings[@]}"; do options+=(--set "$name"); done
        (cd "$place" && exec "$kv" kv --tier "$place/tier" --size 1G --emulate --port "$port" "${options[@]}") >"$log" 2>&1 &
    fi
    server=$!
    wait_for_server "$which" "$port" "$log"
}

# The files of redis-py's suite that apply. Those left out are about the cluster, Sentinel and modules,
# or speak to no server.
files_of_redis_py() {
    (cd "$work/redis-py" && find tests/test_*.py tests/test_asyncio/test_*.py) | grep -vE \
        -e 'cluster|sentinel|bloom|json|search|timeseries|vsets' \
        -e 'maint|background|backoff|command_policies|data_structure|event|max_connections|utils' | sort
}

# run_pytest WHICH PROTOCOL: runs redis-py's suite, each file against a new server, so that one which
# hangs or dies takes only its file along.
run_pytest() {
    local which=$1 protocol=$2 port tls_port file log logs=$build/logs/$1/redis-py-RESP$2
    rm -rf "$logs" && mkdir -p "$logs"
    : >"$logs.results"
    while IFS= read -r file; do
        log=${file#tests/} log=$logs/${log//\//-}
        port=$(free_port) tls_port=$(free_port)
        while [ "$tls_port" = "$port" ]; do tls_port=$(free_port); done
        start "$which" "$port" "$tls_port" "$log.server"
        # No modules are at port 1. Its own limit of 30 seconds for a test is too short for a busy machine,
        # and its filter of warnings wants a module that nothing else needs.
        (cd "$work/redis-py" && exec timeout -k 10 "$run_seconds" "$build/python/bin/python" -m pytest -p no:cacheprovider -q --tb=short \
            -o timeout=120 -o filterwarnings=always --redis-url "redis://localhost:$port/0" --redis-ssl-url "rediss://localhost:$tls_port" \
            --redis-mod-url redis://localhost:1/0 --protocol "$protocol" --junitxml "$log.xml" "$file") >"$log" 2>&1 </dev/null || true
        stop_server
        if [ -s "$log.xml" ]; then
            results_of "$log.xml" "$log.results"
            cat "$log.results" >>"$logs.results"
        else
            echo "  $file did not end against $which; see $log"
        fi
    done < <(files_of_redis_py)
}

suite_redis_py() {
    local archive=redis-$redis_py.tar.gz protocol units=()
    python_with_libraries ||
        { skip redis-py "there is no Python with what it needs ($build/python.log)" "apt-get install python3-venv, and a network"; return; }
    if [ ! -f "$build/$archive" ]; then
        echo "fetching $archive with pip"
        "$build/python/bin/pip" download --disable-pip-version-check -q --no-deps --no-binary :all: -d "$build" "redis==$redis_py" \
            >"$build/fetch.log" 2>&1 </dev/null ||
            { skip redis-py "pip could not fetch it ($build/fetch.log)" "run it with a network"; return; }
    fi
    verify "$build/$archive" "$archive" || give_up "$build/$archive was not what it was"
    mkdir "$work/redis-py"
    tar xf "$build/$archive" --strip-components=1 -C "$work/redis-py"
    certificates "$work/redis-py/dockers/standalone/tls"
    for protocol in 2 3; do
        echo "redis-py $redis_py with RESP$protocol, against redis-server and tiersmith kv"
        run_pytest redis "$protocol"
        run_pytest kv "$protocol"
        units+=("redis-py-RESP$protocol")
    done
    finish redis-py "${units[@]}"
    [ "$total" -gt 1500 ] || give_up "redis-server passed $total tests of redis-py; see $build/logs/redis"
}

### go-redis

# stand_in WHICH FILE: what go-redis's suite starts as redis-server, which is the one under test, but
# for sentinels, which the suite wants before it begins. Whom it has not ended, `ginkgo` ends.
stand_in() {
    cat >"$2" <<TEXT
#!/usr/bin/env bash
echo "\$\$" >>"$work/started"
case "$1 \$* " in "redis "* | *" --sentinel "*) exec "$redis" "\$@" ;; esac
options=(--config "\$1")
shift
while [ \$# -gt 0 ]; do
    case \$1 in
    --port) options+=(--port "\$2") && shift 2 ;;
    --dir) options+=(--tier "\$2/tier") && shift 2 ;;
    --slaveof) options+=(--set "replicaof=\$2 \$3") && shift 3 ;;
    *) shift ;;
    esac
done
exec "$kv" kv --size 256M --emulate "\${options[@]}"
TEXT
    chmod +x "$2"
}

ginkgo() {
    local which=$1 log=$build/logs/$1/go-redis program=$work/go-redis/testdata/redis/src/redis-server
    mkdir -p "$build/logs/$which"
    rm -f "$log" "$log".*
    stand_in "$which" "$program"
    (cd "$work/go-redis" && exec timeout -k 10 "$run_seconds" ./suite -test.run TestGinkgoSuite --ginkgo.no-color \
        --ginkgo.timeout "${run_seconds}s" --ginkgo.junit-report "$log.xml" --ginkgo.skip \
        'Cluster|Sentinel|cluster races|JSON|json|RediSearch|RedisTimeseries|Probabilistic|RedisGears') >"$log" 2>&1 </dev/null || true
    end_started
    [ -s "$log.xml" ] || give_up "go-redis's suite did not end against $which; see $log"
    results_of "$log.xml" "$log.results"
}

# Ends the servers that go-redis's suite started and has not ended.
end_started() {
    local process
    [ -f "$work/started" ] || return 0
    while read -r process; do
        # A redis-server has written over its command line; both work in directories of the suite.
        if grep -qaF "$work" "/proc/$process/cmdline" 2>/dev/null || [[ $(readlink "/proc/$process/cwd") == "$work"/* ]]; then
            kill -9 "$process" 2>/dev/null || true
        fi
    done <"$work/started"
    rm -f "$work/started"
}

# Ports that the suite takes for granted become free ones, and it begins without a cluster.
adapt_go_redis() {
    local main=$work/go-redis/main_test.go port free given=' '
    for port in 6380 6381 6390 6391 6392 9123 9124 9125 9126 9127 9128; do
        free=$(free_port)
        while [[ $given == *" $free "* ]]; do free=$(free_port); done
        given+="$free "
        sed -i "s/\"$port\"/\"$free\"/" "$main"
    done
    sed -i -e '/^\t*Expect(startCluster(ctx, cluster))/d' -e '/^\t*Expect(cluster.Close())/d' "$main"
}

suite_go_redis() {
    local module=github.com/redis/go-redis/v9 zip
    export GOPATH=$build/go GOFLAGS=-modcacherw GOTOOLCHAIN=local
    packages_or_false go golang-go || { skip go-redis "there is no Go" "apt-get install golang-go"; return; }
    zip=$GOPATH/pkg/mod/cache/download/$module/@v/$go_redis.zip
    if [ ! -f "$zip" ]; then
        echo "fetching go-redis $go_redis with go"
        (cd "$work" && go mod download "$module@$go_redis") >"$build/fetch.log" 2>&1 </dev/null ||
            { skip go-redis "go could not fetch it ($build/fetch.log)" "run it with a network"; return; }
    fi
    verify "$zip" "go-redis-$go_redis.zip" || give_up "$zip was not what it was"
    cp -r "$GOPATH/pkg/mod/$module@$go_redis" "$work/go-redis"
    chmod -R u+w "$work/go-redis"
    mkdir -p "$work/go-redis/testdata/redis/src"
    echo "# Every setting has its default." >"$work/go-redis/testdata/redis/redis.conf"
    adapt_go_redis
    echo "building go-redis's tests"
    (cd "$work/go-redis" && go test -trimpath -c -o suite .) >"$build/go.log" 2>&1 </dev/null ||
        { skip go-redis "its tests could not be built ($build/go.log)" "run it with Go 1.18 or later and a network"; return; }
    echo "go-redis $go_redis, against redis-server and tiersmith kv"
    ginkgo redis
    ginkgo kv
    finish go-redis go-redis
    [ "$total" -gt 350 ] || give_up "redis-server passed $total tests of go-redis; see $build/logs/redis"
}

### BullMQ

suite_bullmq() {
    local archive=bullmq-$bullmq.tgz place=$build/bullmq-$bullmq which said
    if ! packages_or_false node nodejs || ! packages_or_false npm npm; then
        skip BullMQ "there is no node or no npm" "apt-get install nodejs npm"
        return
    fi
    if [ ! -e "$place/complete" ]; then
        echo "installing with npm into $place: $archive"
        rm -rf "$place" && mkdir -p "$place"
        (cd "$build" && npm pack --silent "bullmq@$bullmq") >"$build/fetch.log" 2>&1 </dev/null ||
            { skip BullMQ "npm could not fetch it ($build/fetch.log)" "run it with a network"; return; }
        verify "$build/$archive" "$archive" || give_up "$build/$archive was not what it was"
        npm install --silent --ignore-scripts --no-audit --no-fund --prefix "$place" "$build/$archive" >"$build/fetch.log" 2>&1 </dev/null ||
            { skip BullMQ "npm could not install it ($build/fetch.log)" "run it with a network"; return; }
        : >"$place/complete"
    fi
    said=()
    for which in redis kv; do
        bullmq_jobs "$which" || {
            verdicts+=("BullMQ $bullmq: FAILED against $which; see $build/logs/$which/bullmq")
            bad=1
            return
        }
        said+=("$(tail -n 1 "$build/logs/$which/bullmq") with $([ "$which" = kv ] && echo tiersmith kv || echo redis-server)")
    done
    verdicts+=("BullMQ $bullmq: ${said[1]}, ${said[0]}")
}

# bullmq_jobs WHICH: what tests/bullmq/run.js asks of BullMQ.
bullmq_jobs() {
    local which=$1 port socket=$work/server/socket log=$build/logs/$1/bullmq
    mkdir -p "$build/logs/$which"
    rm -rf "$work/server" && mkdir "$work/server"
    port=$(free_port)
    if [ "$which" = redis ]; then
        (cd "$work/server" && exec "$redis" --port "$port" --save "" --unixsocket "$socket") >"$log.server" 2>&1 &
    else
        (exec "$kv" kv --tier "$work/server/tier" --size 256M --emulate --port "$port" --unixsocket "$socket") >"$log.server" 2>&1 &
    fi
    server=$!
    wait_for_server "$which" "$port" "$log.server"
    local good=0
    NODE_PATH=$build/bullmq-$bullmq/node_modules timeout -k 10 300 node "$root/crates/kv/tests/bullmq/run.js" "$socket" >"$log" 2>&1 \
        </dev/null || good=1
    stop_server
    return "$good"
}

case ${1:-} in
--help | -h)
    help
    exit 0
    ;;
esac
[ $# -gt 0 ] || set -- redis-py go-redis bullmq
for suite in "$@"; do
    case $suite in
    redis-py | go-redis | bullmq) ;;
    *) give_up "there is no suite $suite; see --help" ;;
    esac
done
if ! set_up_redis; then
    echo "skipped: the suites of clients, because $why; run $remedy"
    exit 0
fi
set_up_tiersmith
work=$(mktemp -d -t client-suites.XXXXXX)
bad=0
trap 'stop_server; end_started; rm -rf "$work"' EXIT
for suite in "$@"; do "suite_${suite//-/_}"; done
[ "$wrong" -eq 0 ] || echo "$wrong lines of $skipped are wrong"
printf '%s\n' "${verdicts[@]}"
[ "$bad" -eq 0 ] && [ "$wrong" -eq 0 ] || exit 1
