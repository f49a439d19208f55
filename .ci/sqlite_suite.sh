#!/usr/bin/env bash
# Runs SQLite's own Tcl tests on the VFS. Called by `./check --sqlite-suite`.
#
# SQLite's sources are no part of this project: they come from Debian's source package, and are built in the build directory.
# Each test file is a process of its own, so that one which hangs or dies takes only itself along. Two runs: pass-through (no
# tier), and attached (each main database has an EMULATED tier of its own, made by TIERSMITH_SQLITE_FAST).
#
# What is left out, and which errors are known, is in crates/sqlite/tests/suite/exclusions with a reason each. Not run as root: a test asks
# for a file that may not be read. Exit codes: 0 good or skipped, 1 an error that is not on the list, 2 it could not run.
set -eu

help() {
    cat <<'END'
usage: .ci/sqlite_suite.sh [pass|attached|all] [FILE.test...]

Runs SQLite's "veryquick" tests, or the files named. The last line is
"sqlite suite: N tests, M errors, K files excluded (reasons in ...)"; M counts the errors that are not on the list.

Environment: TIERSMITH_SUITE_SECONDS is the time limit of each run (default 1200), TIERSMITH_SUITE_FILE_SECONDS that of a file (default
120), TIERSMITH_SUITE_JOBS how many files run at a time (default: the number of processors), TIERSMITH_SUITE_DIR where the databases are
(default: a directory made in the temporary directory), TIERSMITH_SUITE_SO an extension that is built already.
END
}

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# shellcheck source=.ci/set_up.sh
. "$root/.ci/set_up.sh"

suite=crates/sqlite/tests/suite
target=${CARGO_TARGET_DIR:-$root/target}
build=$target/sqlite-suite
run_seconds=${TIERSMITH_SUITE_SECONDS:-1200}
export TIERSMITH_SUITE_FILE_SECONDS=${TIERSMITH_SUITE_FILE_SECONDS:-120}
jobs=${TIERSMITH_SUITE_JOBS:-$(nproc)}

# skip WHY WHAT_TO_DO
skip() {
    echo "skipped: SQLite's Tcl tests, because $1; run $2"
    exit 0
}

# What the tests are built with. apt-get only when it may.
set_up_tools() {
    local missing=()
    have tclsh && have cc && have make && [ -n "$(tcl_config)" ] && { echo '#include <zlib.h>' | cc -E - >/dev/null 2>&1; } && return
    missing=(tcl tcl-dev gcc libc6-dev make zlib1g-dev)
    if have apt-get && [ "$(id -u)" = 0 ]; then
        echo "installing with apt-get: ${missing[*]}"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}"; } \
            >/dev/null 2>&1 || skip "apt-get could not install ${missing[*]}" "apt-get install ${missing[*]}"
    else
        skip "Tcl, a C compiler, make or zlib's header is missing" "sudo apt-get install ${missing[*]}"
    fi
}

# The directory with tclConfig.sh, or nothing.
tcl_config() {
    local file
    for file in /usr/lib/tcl8.6/tclConfig.sh /usr/lib/*/tcl8.6/tclConfig.sh; do
        [ -f "$file" ] && dirname "$file" && return
    done
    return 0
}

# Debian's source package, with a sources list and lists of its own: the machine's are not touched, and nothing of it needs root.
fetch_sources() {
    local apt=$build/apt file options
    have apt-get || skip "there is no apt-get, and SQLite's tests come from Debian's source package sqlite3" "it on Debian or Ubuntu"
    mkdir -p "$apt/sources" "$apt/lists/partial" "$apt/cache/archives/partial"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        if [ -f "$file" ] && grep -qE '^[^#]*(debian|ubuntu)\.' "$file"; then
            sed -E 's/^Types:.*/Types: deb-src/; s/^deb([ \t])/deb-src\1/' "$file" >"$apt/sources/$(basename "$file")"
        fi
    done
    options=(-o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$apt/sources" -o "Dir::State::Lists=$apt/lists"
        -o "Dir::Cache=$apt/cache" -o "APT::Sandbox::User=" -o "Debug::NoLocking=1")
    echo "fetching Debian's source package sqlite3"
    (cd "$build" && apt-get "${options[@]}" -qq update && apt-get "${options[@]}" -qq source --download-only sqlite3) \
        >"$build/fetch.log" 2>&1 || skip "apt-get could not fetch the source package sqlite3 ($build/fetch.log)" "it with a network"
    for file in "$build"/sqlite3_*.orig.tar.*; do
        mkdir -p "$build/source.part"
        tar xf "$file" --strip-components=1 -C "$build/source.part" || skip "$file cannot be unpacked" "rm -r $build, and this again"
    done
    mv "$build/source.part" "$build/source"
}

# SQLite's `testfixture`: a Tcl shell with SQLite and its test commands. With batch-atomic writes, which the VFS offers.
build_fixture() {
    [ -x "$build/fixture/testfixture" ] && return
    mkdir -p "$build"
    [ -d "$build/source" ] || fetch_sources
    echo "building testfixture (a minute or two)"
    mkdir -p "$build/fixture"
    if ! (cd "$build/fixture" &&
        ../source/configure --with-tcl="$(tcl_config)" CFLAGS="-O1 -DSQLITE_ENABLE_BATCH_ATOMIC_WRITE" &&
        make -j "$jobs" testfixture) >"$build/build.log" 2>&1; then
        rm -rf "$build/fixture"
        tail -n 20 "$build/build.log"
        give_up "testfixture could not be built; see $build/build.log"
    fi
}

# A place another user may read: what the tests need, and nothing else.
prepare() {
    if [ -n "${TIERSMITH_SUITE_DIR:-}" ]; then
        mkdir -p "$TIERSMITH_SUITE_DIR"
        place=$(mktemp -d "$TIERSMITH_SUITE_DIR/sqlite-suite.XXXXXX")
    else
        place=$(mktemp -d -t sqlite-suite.XXXXXX)
    fi
    tiers=$(mktemp -d /dev/shm/sqlite-suite.XXXXXX 2>/dev/null || mktemp -d "$place/tiers.XXXXXX")
    trap 'rm -rf "$place" "$tiers"' EXIT
    mkdir "$place/source" "$place/work"
    cp -r "$build/source/test" "$build/source/ext" "$place/source"
    cp "$build/fixture/testfixture" "$suite/with_vfs.tcl" "$suite/files.tcl" "$place"
    cp "$extension" "$place/libtiersmith_sqlite.so"
    as_user=()
    if [ "$(id -u)" = 0 ]; then
        have setpriv || skip "root is not to run them, and there is no setpriv" "it as another user"
        chmod -R a+rX "$place" "$tiers"
        chmod a+rx "$place" "$tiers"
        chown -R 65534:65534 "$place/work" "$tiers"
        as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    fi
    # What tests start by the name of their own program gets the VFS too.
    cat >"$place/fixture" <<'END'
#!/usr/bin/env bash
here=$(dirname "$0")
exec -a "$here/fixture" "$here/testfixture" "$here/with_vfs.tcl" "$here/libtiersmith_sqlite.so" "$@"
END
    # One file in a directory of its own. Prints: file, tests, errors, seconds, how it ended, names of the failures.
    cat >"$place/one" <<'END'
#!/usr/bin/env bash
here=$(dirname "$0")
mode=$1 file=$2 tiers=$3
work=$here/work/$mode-$file
mkdir -p "$work/testdir" && cd "$work" || exit 1
export SQLITE_TEST_PATTERN_LIST=$file TIERSMITH_SQLITE_DEFAULT=1 TMPDIR=$work
if [ "$mode" = attached ]; then
    export TIERSMITH_SQLITE_FAST=$tiers/$file
    mkdir -p "$TIERSMITH_SQLITE_FAST"
fi
ulimit -c 0
began=$SECONDS
timeout -k 5 "$TIERSMITH_SUITE_FILE_SECONDS" "$here/fixture" "$here/source/test/veryquick.test" \
    >"$here/work/$mode-$file.log" 2>&1 </dev/null
code=$?
counts=$(grep -aoE '^[0-9]+ errors out of [0-9]+ tests' "$here/work/$mode-$file.log" | tail -n 1)
read -r errors _ _ _ tests _ <<<"${counts:-0 errors out of 0 tests}"
failures=$(grep -a '^!Failures on these tests:' "$here/work/$mode-$file.log" | tail -n 1 | cut -d: -f2- | tr -d '\r')
ended=done
if [ "$code" -ge 124 ] && [ "$code" -ne 125 ]; then
    if [ "$code" = 124 ] || [ "$code" = 137 ]; then ended=timeout; else ended="died($code)"; fi
elif [ -z "$counts" ]; then
    ended="stopped($code)"
elif [ "$code" = 0 ] && ! grep -aq 'the default VFS at the end: tiersmith' "$here/work/$mode-$file.log"; then
    ended=another-vfs
fi
echo "$file $tests $errors $((SECONDS - began)) $ended $failures" >>"$here/work/$mode.results"
cd "$here" && rm -rf "$work" "${TIERSMITH_SQLITE_FAST:-$work}"
END
    chmod a+rx "$place/fixture" "$place/one"
}

# The lines of the list for a run: kind and pattern.
excluded() {
    awk -v mode="$1" -v kind="$2" '!/^#/ && NF > 3 && ($1 == mode || $1 == "both") && $2 == kind { print $3 }' "$suite/exclusions"
}

# run MODE FILE...: one run with progress; adds to tests, errors, left_out.
run() {
    local mode=$1 files=() file pattern out began=$SECONDS pid said=0 finished
    shift
    mapfile -t patterns < <(excluded "$mode" skip)
    for file in "$@"; do
        for pattern in "${patterns[@]}"; do
            # shellcheck disable=SC2053  # a pattern
            if [[ $file == $pattern ]]; then
                left_out=$((left_out + 1))
                continue 2
            fi
        done
        files+=("$file")
    done
    rm -rf "${build:?}/logs/$mode"
    out=$place/work/$mode.results
    : >"$out"
    [ "$(id -u)" != 0 ] || chown 65534:65534 "$out"
    local label="pass-through"
    [ "$mode" = pass ] || label="attached, tiers EMULATED"
    echo "$label: ${#files[@]} files, $(($# - ${#files[@]})) left out, $jobs at a time"
    printf '%s\n' "${files[@]}" |
        HOME=$place/work timeout "$run_seconds" "${as_user[@]}" xargs -P "$jobs" -I{} "$place/one" "$mode" {} "$tiers" &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        finished=$(wc -l <"$out")
        if [ $((finished - said)) -ge 100 ]; then
            said=$finished
            echo "  $finished of ${#files[@]} files, $((SECONDS - began)) s, $(awk '{ n += $3 } END { print n + 0 }' "$out") errors so far"
        fi
    done
    wait "$pid" || true
    judge "$mode" "${#files[@]}" "$out"
    echo "  $mode: $(wc -l <"$out") files in $((SECONDS - began)) s"
}

# Counts a run, and names the errors that are not on the list.
judge() {
    local mode=$1 wanted=$2 out=$3 count n file
    cp "$out" "$build/$mode.results"
    excluded "$mode" known >"$place/known"
    while read -r count n; do
        tests=$((tests + count)) known=$((known + n))
    done < <(awk '{ t += $2 } END { print t + 0, 0 }' "$out")
    while read -r kind file what; do
        case $kind in
        known) known=$((known + 1)) ;;
        *)
            errors=$((errors + 1))
            echo "  ERROR $mode $file: $what"
            mkdir -p "$build/logs/$mode"
            cp "$place/work/$mode-$file.log" "$build/logs/$mode/$file.log"
            ;;
        esac
    done < <(awk -v list="$place/known" '
        function glob(p) { gsub(/[.+^$(){}|]/, "\\\\&", p); gsub(/\*/, ".*", p); return "^" p "$" }
        BEGIN { while ((getline line < list) > 0) { if (line ~ /:/) ended[line] = 1; else known[glob(line)] = 1 } }
        function on_list(name,   p) { for (p in known) if (name ~ p) return 1; return 0 }
        {
            if ($5 != "done") { print (($1 ":" $5) in ended ? "known" : "new"), $1, "ended with " $5 }
            for (i = 6; i <= NF; i++) print (on_list($i) ? "known" : "new"), $1, $i
            if ($3 > NF - 5) for (i = NF - 5; i < $3; i++) print "new", $1, "an error without a name"
        }' "$out")
    n=$(wc -l <"$out")
    if [ "$n" -lt "$wanted" ]; then
        errors=$((errors + 1))
        echo "  ERROR $mode: $((wanted - n)) of $wanted files did not run within $run_seconds s; TIERSMITH_SUITE_SECONDS gives more"
    fi
}

mode=${1:-all}
case $mode in
--help | -h)
    help
    exit 0
    ;;
pass | attached | all) ;;
*) give_up "there is no run $mode; see .ci/sqlite_suite.sh --help" ;;
esac
[ $# -eq 0 ] || shift
tests=0 errors=0 known=0 left_out=0
set_up_tools
build_fixture
if [ -n "${TIERSMITH_SUITE_SO:-}" ]; then
    extension=$TIERSMITH_SUITE_SO
else
    set_up
    echo "building the extension"
    cargo build --release -p tiersmith-sqlite >"$build/extension.log" 2>&1 ||
        { tail -n 30 "$build/extension.log"; give_up "the extension could not be built"; }
    extension=$target/release/libtiersmith_sqlite.so
fi
prepare
if [ $# -gt 0 ]; then
    all=("$@")
else
    mapfile -t all < <(cd "$place/work" &&
        "${as_user[@]}" "$place/testfixture" "$place/files.tcl" "$place/source/test" 2>/dev/null | grep '\.test$' | sort -u)
    [ "${#all[@]}" -gt 100 ] || give_up "the list of SQLite's test files could not be read; see $suite/files.tcl"
fi
case $mode in
all)
    run pass "${all[@]}"
    run attached "${all[@]}"
    ;;
*) run "$mode" "${all[@]}" ;;
esac
[ "$known" -eq 0 ] || echo "errors that are on the list: $known"
[ "$errors" -eq 0 ] || echo "their output: $build/logs"
echo "sqlite suite: $tests tests, $errors errors, $left_out files excluded (reasons in $suite/exclusions)"
[ "$errors" -eq 0 ] || exit 1
