#!/usr/bin/env bash
# Runs other people's file system tests on the mount, and the loops in which daemons and databases are killed. Called by `./check --mount`.
#
# pjdfstest and fsx are no part of this project: both come from crates.io, by name and version, and are built in the build directory.
# Every tier is EMULATED: a file in the directory of the run. Needs root and /dev/fuse; says so and ends well without them.
# Exit codes: 0 good or skipped, 1 something failed, 2 it could not run.
set -eu

help() {
    cat <<'END'
usage: .ci/mount_suite.sh [pjdfstest|fsx|kill|databases|power|all]

pjdfstest   POSIX behaviour, on files of class data, with and without atomic pages, and on files that the kernel passes through
fsx         random operations on one file, compared with what they must give: classes data and redo, tiers of 9 and 32 MiB, remounted in
            between, and with the daemon killed and attached again; over io_uring too where the kernel has it switched on
kill        writers while the daemon is killed: what was acknowledged is there, no block is torn
databases   PostgreSQL, MariaDB and Redis while database and daemon are killed (those that are installed)
power       PostgreSQL without full_page_writes on a mount over the crash simulator: simulated power cuts, and a medium that must be found out

all (or nothing) runs the parts in two lanes beside each other, each part with a limit of its own, so that one that hangs hides none of the
others. The last line is "mount suite: pjdfstest N of M, fsx K operations, ...": what each part said, or that it failed.

Environment: TIERSMITH_FSX_OPERATIONS of each run (default 4000), TIERSMITH_FSX_SEED the first seed (default: from the clock, printed),
TIERSMITH_KILL_ROUNDS (default 30 for kill, 5 for databases), TIERSMITH_POWER_CUTS (default 20), TIERSMITH_SUITE_DIR where the homes are (default: the temporary directory),
TIERSMITH_SUITE_LIMIT seconds that a part may take (default 3600).
END
}

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# shellcheck source=.ci/set_up.sh
. "$root/.ci/set_up.sh"

target=${CARGO_TARGET_DIR:-$root/target}
tools=$target/mount-suite
suite_operations=${TIERSMITH_FSX_OPERATIONS:-4000}
seed=${TIERSMITH_FSX_SEED:-$(date +%s)}
failures=0
kill_rounds=${TIERSMITH_KILL_ROUNDS:-}
said='not run'

skip_all() {
    echo "skipped: the mount suite, because $1"
    exit 0
}

# Installs a program from crates.io into the build directory, unless it is there.
tool() { # NAME VERSION
    if [ "$("$tools/bin/$1" --version 2>/dev/null | grep -c "$2")" = 0 ]; then
        echo "installing $1 $2 from crates.io into $tools"
        CARGO_TARGET_DIR=$tools/build cargo install -q --locked --root "$tools" "$1" --version "$2" </dev/null ||
            give_up "cargo could not install $1 $2; is the network there?"
    fi
}

# Unmounts and removes whatever a run left, also when it failed.
place=
daemon=
lanes=()
clean_up() {
    local lane
    for lane in "${lanes[@]}"; do kill "$lane" 2>/dev/null || true; done
    [ -z "$daemon" ] || kill -9 "$daemon" 2>/dev/null || true
    if [ -n "$place" ]; then
        timeout -k 5 20 umount -l "$place/db" 2>/dev/null || true
        rm -rf "$place"
    fi
}
trap clean_up EXIT
trap 'exit 2' INT TERM HUP

new_place() {
    [ -z "$place" ] || rm -rf "$place"
    place=$(mktemp -d "${TIERSMITH_SUITE_DIR:-${TMPDIR:-/tmp}}/mount-suite.XXXXXX")
    chmod 755 "$place"
    mkdir -m 755 "$place/db"
}

# Attaches and mounts $place/db, and waits until it is there.
serve() { # MIB OPTIONS...
    local mib=$1 waited=0
    shift
    # What an earlier one said must not be taken for what this one says.
    : >"$place/said"
    "$server" "$place/db" "$place/tier" "$mib" "$@" </dev/null >>"$place/said" 2>&1 &
    daemon=$!
    while ! grep -q '^ready' "$place/said"; do
        kill -0 "$daemon" 2>/dev/null || { cat "$place/said" >&2; give_up "the mount did not start"; }
        waited=$((waited + 1))
        [ "$waited" -lt 1200 ] || give_up "the mount was not ready after two minutes"
        sleep 0.1
    done
}

# Unmounts; the home stays attached.
unserve() {
    local waited=0
    until timeout -k 5 60 umount "$place/db" 2>/dev/null; do
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || give_up "the mount stays busy"
        sleep 0.2
    done
    wait "$daemon" || give_up "the daemon ended with an error: $(tail -n 3 "$place/said")"
    daemon=
}

failed() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# Cases that are left out. None: a case that the mount cannot pass would stand here with its reason.
# (Skipped by pjdfstest itself, on the mount only: link::link_count_max, for FUSE reports no limit of links.)
pjdfstest_excluded=()

run_pjdfstest() {
    local class passed=0 total=0 line
    tool pjdfstest 0.2.2
    for class in data pass 'data --no-atomic-pages'; do
        new_place
        cat >"$place/pjdfstest.toml" <<END
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
stat_st_birthtime = {}
[settings]
naptime = 0.02
allow_remount = false
expected_failures = [$(printf '"%s",' "${pjdfstest_excluded[@]}" | sed 's/^"",$//')]
[dummy_auth]
entries = [["nobody", "$(id -gn nobody)"], ["daemon", "$(id -gn daemon)"]]
END
        # shellcheck disable=SC2086 # a class, and perhaps an option
        serve 32 --class $class
        mkdir "$place/db/t"
        chmod 777 "$place/db/t"
        timeout -k 5 1200 "$tools/bin/pjdfstest" -c "$place/pjdfstest.toml" -p "$place/db/t" </dev/null >"$place/out" 2>&1 || true
        line=$(grep '^Summary:' "$place/out") || line='Summary: none'
        echo "pjdfstest, class $class: ${line#Summary: }"
        case $line in
        *' 0 failed'*) ;;
        *)
            failed "pjdfstest, class $class"
            grep -A 15 -iE 'failed$|^thread|panicked' "$place/out" | head -60
            ;;
        esac
        passed=$((passed + $(sed -n 's/.* \([0-9]*\) passed.*/\1/p' "$place/out")))
        total=$((total + $(sed -n 's/.* \([0-9]*\) total.*/\1/p' "$place/out")))
        unserve
        "$server" "$place/db" "$place/tier" 32 --class "${class%% *}" --detach </dev/null >/dev/null || failed "detach after pjdfstest"
    done
    said="$passed of $total (${#pjdfstest_excluded[@]} excluded, the rest skipped by itself)"
}

# One run of fsx: three parts with a seed each. After the first the mount is taken down and made again, after the second the daemon is killed.
fsx_run() { # CLASS MIB TRANSPORT
    local class=$1 mib=$2 transport=$3 part what before
    new_place
    cat >"$place/fsx.toml" <<END
flen = $((mib * 3 * 524288))
[opsize]
max = 262144
min = 1
[weights]
close_open = 3
read = 10
write = 15
mapread = 5
mapwrite = 5
invalidate = 1
truncate = 2
fsync = 2
fdatasync = 2
posix_fallocate = 2
punch_hole = 5
sendfile = 1
posix_fadvise = 1
copy_file_range = 3
END
    serve "$mib" --class "$class" --transport "$transport"
    for part in 1 2 3; do
        seed=$((seed + 1))
        what="fsx, class $class, tier $mib MiB EMULATED, $transport, seed $seed"
        if timeout -k 5 1800 "$tools/bin/fsx" -f "$place/fsx.toml" -N "$suite_operations" -S "$seed" -P "$place" "$place/db/file" </dev/null >"$place/out" 2>&1; then
            done_operations=$((done_operations + suite_operations))
        else
            failed "$what"
            tail -n 15 "$place/out"
        fi
        before=$(sha256sum <"$place/db/file")
        case $part in
        1) unserve ;;
        2)
            kill -9 "$daemon"
            wait "$daemon" 2>/dev/null || true
            ;;
        3) break ;;
        esac
        serve "$mib" --class "$class" --transport "$transport"
        [ "$before" = "$(sha256sum <"$place/db/file")" ] || failed "VIOLATION: $what: other contents after part $part"
    done
    unserve
    "$server" "$place/db" "$place/tier" "$mib" --class "$class" --detach </dev/null >/dev/null || failed "$what: detach"
    [ "$before" = "$(sha256sum <"$place/db/file")" ] || failed "VIOLATION: $what: other contents after detach"
    echo "$what: done"
}

run_fsx() {
    local class mib transport transports=classic
    done_operations=0
    tool fsx 0.3.2
    if grep -qs Y /sys/module/fuse/parameters/enable_uring; then
        transports='classic uring'
    else
        echo "skipped: fsx over io_uring, because the kernel has it switched off"
    fi
    for transport in $transports; do
        for class in data redo; do
            for mib in 9 32; do
                fsx_run "$class" "$mib" "$transport"
            done
        done
    done
    said="$done_operations operations"
}

# Runs one test target, or some of its tests, and shows what they say; leaves that in $place/out.
test_target() { # PACKAGE WHAT TARGET [FILTER]
    new_place
    if cargo test -q -p "$1" --test "$3" ${4:+"$4"} -- --nocapture </dev/null >"$place/out" 2>&1; then
        grep -aE '^\.*(skipped|[A-Za-z]+: |power cuts|cut |seed |[0-9]+ kills)' "$place/out" || true
    else
        cat "$place/out"
        failed "$2"
    fi
}

# What lines of $place/out say, in one line (a test's line may follow libtest's dots); what was skipped if there are none.
lines_with() { # PATTERN
    local lines
    lines=$(grep -aoE "$1" "$place/out" | paste -sd';' | sed 's/;/; /g')
    [ -n "$lines" ] || lines=$(grep -ao 'skipped: .*' "$place/out" | head -n 1)
    echo "${lines:-nothing}"
}

run_kill() {
    export TIERSMITH_KILL_ROUNDS=${kill_rounds:-30}
    test_target tiersmith-mount 'the kill loop' it kill::
    said=$(lines_with '[0-9]+ kills from seed [0-9]+, [0-9]+ writes')
}

run_databases() {
    export TIERSMITH_KILL_ROUNDS=${kill_rounds:-5}
    test_target tiersmith-cli "the databases' kill loops" it databases::
    said=$(lines_with '[A-Za-z]+: [0-9]+ transactions acknowledged, [0-9]+ kills')
}

run_power() {
    export TIERSMITH_POWER_CUTS=${TIERSMITH_POWER_CUTS:-20}
    test_target tiersmith-cli 'the power cuts beneath PostgreSQL' it power_cuts::
    said=$(lines_with '[0-9]+ cuts, [0-9]+ transactions acknowledged')
}

mode=${1:-all}
case $mode in
--help | -h)
    help
    exit 0
    ;;
pjdfstest | fsx | kill | databases | power | all) ;;
*) give_up "there is no part $mode; see $0 --help" ;;
esac
[ "$(id -u)" = 0 ] || skip_all "it needs root (it acts as other users, and kills)"
[ -c /dev/fuse ] || skip_all "there is no /dev/fuse; modprobe fuse, or in a container pass the device in"
have cargo || give_up "cargo is not there; run ./check first"
cargo build -q -p tiersmith-mount --example serve </dev/null || give_up "the program that serves does not build"
server=$target/debug/examples/serve

# One part, by this program again, with a log of its own.
part() { # NAME
    local log=$tools/log/$1 began=$SECONDS result=good
    timeout -k 60 "${TIERSMITH_SUITE_LIMIT:-3600}" "$root/.ci/mount_suite.sh" "$1" </dev/null >"$log" 2>&1 &
    running=$!
    wait "$running" || result="FAILED (exit code $?)"
    echo "part $1: $result, $((SECONDS - began)) s" >>"$log"
    sed "s/^/$1: /" "$log"
}

# Parts one after the other. A part is a process group of its own (timeout makes it), so it is told when the lane has to end.
lane() { # NAME...
    local name running=
    trap 'kill "$running" 2>/dev/null; exit 2' INT TERM HUP
    for name in "$@"; do part "$name"; done
}

run_all() {
    local name line=
    mkdir -p "$tools/log"
    rm -f "$tools"/log/*
    # Everything is built before, so that the lanes do not wait for each other's compilers.
    tool pjdfstest 0.2.2
    tool fsx 0.3.2
    cargo test -q --no-run -p tiersmith-mount --test it </dev/null || give_up "the kill loop does not build"
    cargo test -q --no-run -p tiersmith-cli --test it </dev/null || give_up "the databases' tests do not build"
    lane power kill &
    lanes+=($!)
    lane databases pjdfstest fsx &
    lanes+=($!)
    wait "${lanes[@]}" || true
    lanes=()
    for name in pjdfstest fsx kill databases power; do
        : >>"$tools/log/$name" # a lane that was ended early has not made it
        grep -q "^part $name: good" "$tools/log/$name" || failures=$((failures + 1))
        said=$(sed -n "s/^mount suite: $name \(.*\), failed [0-9]*\$/\1/p" "$tools/log/$name")
        line="$line$name ${said:-ended early: $(tail -n 1 "$tools/log/$name")}, "
    done
    [ "$failures" = 0 ] || echo "$failures parts failed; what they said is above" >&2
    echo "mount suite: ${line}failed $failures, $SECONDS s"
}

if [ "$mode" = all ]; then
    run_all
else
    "run_$mode"
    [ "$failures" = 0 ] || echo "$failures checks failed; what they said is above" >&2
    echo "mount suite: $mode $said, failed $failures"
fi
[ "$failures" = 0 ] || exit 1
