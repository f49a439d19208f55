#!/bin/busybox sh
# The names here have no blanks, `off` ends the machine, and one word list is split on purpose.
# shellcheck shell=dash disable=SC2010,SC2012,SC2013,SC2015,SC2016,SC2086,SC2116
# What the guest of .ci/dax_suite.sh does from its first instant on: it is /init there.
#
# It makes a file system on persistent memory, attaches two directories with tiers on it, lets programs write, and says on the console what each of
# them was told is durable. When it starts again after a power cut it looks whether that is there. Words of the kernel's command line say
# what was acknowledged before (-1 blocks: nothing is there yet), how PostgreSQL's log is written, and whether to end with plain directories.
# It is not for any other machine: it makes file systems on what it finds.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin HOME=/tmp
mount -t proc none /proc && mount -t sysfs none /sys && mount -t devtmpfs none /dev
mkdir -p /dev/shm && mount -t tmpfs none /dev/shm
mount -t tracefs none /trace 2>/dev/null
chmod 1777 /tmp
for module in $(cat "/modules/$(uname -r)/order"); do insmod "/modules/$(uname -r)/$module.ko"; done
last=-1 rows=0 wal=-1 pg=0 method=fdatasync end=0 life=cut
for word in $(cat /proc/cmdline); do
    case $word in
    acknowledged=*) last=${word#*=} ;;
    rows=*) rows=${word#*=} ;;
    wal=*) wal=${word#*=} ;;
    pg=*) pg=${word#*=} ;;
    method=*) method=${word#*=} ;;
    end=*) end=${word#*=} ;;
    life=*) life=${word#*=} ;;
    esac
done
off() { echo "$*"; sync; poweroff -f; }
# Each of these is on one line: a line on which another program writes, too, is not read by the host.
say() { echo "$*"; }
# A kernel that does not know its disks, for a module that is missing, never will.
devices() {
    tries=0
    until [ -b /dev/vda ] && [ -b /dev/pmem0 ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || off "FAILED: no /dev/vda or no /dev/pmem0; modules: $(ls "/modules/$(uname -r)" | tr '\n' ' ')"
        sleep 0.1
    done
}
devices
# What `ndctl create-namespace` does: the medium is taken from the driver of raw persistent memory and given to another one.
namespace() { # KIND DRIVER
    cd /sys/bus/nd/devices || off "FAILED: no /sys/bus/nd"
    echo namespace0.0 >/sys/bus/nd/drivers/nd_pmem/unbind
    seed=$(cat "region0/$1_seed")
    echo 6f3a1d52-4c1e-4d0a-9a55-1d3c8e0b7a11 >"$seed/uuid"
    if [ "$1" = btt ]; then echo 4096 >"$seed/sector_size"; else echo pmem >"$seed/mode"; fi
    echo namespace0.0 >"$seed/namespace"
    echo "$seed" >"/sys/bus/nd/drivers/$2/bind" || off "FAILED: a namespace of kind $1"
    cd /
}
# --- a life of its own, on a new medium: the access modes in which no tier can be, each of which is to be refused with what to do ---
is_refused() { # MODE PLACE WORDS
    tiersmith probe --list >/tmp/probe 2>&1 && grep -q "^namespace0.0  *$1 " /tmp/probe || off "VIOLATION: probe does not say $1: $(cat /tmp/probe)"
    ! tiersmith attach /data/db --fast "$2" --size 32M >/tmp/said 2>&1 || off "VIOLATION: $1 memory was taken for a tier"
    grep -q -e "$3" /tmp/said || off "VIOLATION: the refusal of $1 memory does not say what to do: $(cat /tmp/said)"
    [ "$(ls /data)" = db ] && [ "$(cat /data/db/file)" = contents ] || off "VIOLATION: the refusal of $1 memory left $(ls -R /data)"
    say "modes: $1 at $2 is refused: $(head -c 300 /tmp/said)"
}
if [ "$life" != cut ]; then
    mkfs.ext4 -q -F /dev/vda && mount -t ext4 /dev/vda /data && rmdir /data/lost+found || off "FAILED: mkfs"
fi
if [ "$life" = modes ]; then
    mkdir -p /data/db && echo contents >/data/db/file
    # Asked of the real drivers; a disk that says nothing would be `not known`.
    for disk in nvme0n1 pmem0; do
        tiersmith probe --list >/tmp/probe 2>&1 && grep -q "^$disk  *good" /tmp/probe || off "VIOLATION: probe does not tell the health of $disk: $(cat /tmp/probe)"
    done
    say "modes: the health of an NVMe disk and of persistent memory is told"
    is_refused raw /dev/pmem0 '--mode=fsdax'
    namespace btt nd_pmem
    until [ -b /dev/pmem0s ]; do sleep 0.1; done
    is_refused sector /dev/pmem0s '--mode=fsdax'
    mkfs.ext4 -q -F /dev/pmem0s && mount -t ext4 /dev/pmem0s /pmem || off "FAILED: mkfs on sector memory"
    is_refused sector /pmem 'of mode fsdax with `-o dax`'
    off "modes: what cannot hold a tier was refused"
fi
# Another: a devdax device, which is used whole.
if [ "$life" = devdax ]; then
    namespace dax dax_pmem
    until [ -c /dev/dax0.0 ]; do sleep 0.1; done
    mkdir -p /data/db && block() { yes "block $1" | head -c 8192; }
    for number in 0 1 2 3 4 5 6 7 8 9; do block $number; done >/data/expected
    cp /data/expected /data/db/file
    tiersmith attach /data/db --fast /dev/dax0.0 --profile /profile.toml || off "FAILED: attach on devdax"
    tiersmith status /data/db >/tmp/said && grep 'redo files:.*device' /tmp/said || off "VIOLATION: status does not say that nothing is lent: $(cat /tmp/said)"
    for number in 3 7 5; do
        block "new $number" >/tmp/new
        for file in /data/db/file /data/expected; do dd if=/tmp/new of=$file bs=8192 seek=$number conv=notrunc,fsync 2>/dev/null; done
        # Once in mid-life, once on the daemon's sudden end.
        [ $number != 7 ] || { tiersmith unmount /data/db && tiersmith attach /data/db || off "FAILED: attach on devdax again"; }
    done
    killall -9 tiersmith
    tiersmith attach /data/db || off "FAILED: attach on devdax after the daemon's end"
    cmp /data/db/file /data/expected || off "VIOLATION: devdax"
    tiersmith detach /data/db && cmp /data/db/file /data/expected || off "VIOLATION: devdax, detached"
    off "modes: devdax was attached, attached again and detached"
fi
# The first start makes a namespace of mode fsdax; the driver finds it at the next.
if [ "$last" -lt 0 ]; then
    namespace pfn nd_pmem
    devices
    mkfs.ext4 -q -F -b 4096 /dev/pmem0 && mkfs.ext4 -q -F /dev/vda || off "FAILED: mkfs"
fi
# A cut may leave ext4's own structures so that only e2fsck can mend them: docs/guide/vm-lab.md.
for disk in /dev/vda /dev/pmem0; do e2fsck -fp $disk >/tmp/fsck 2>&1 || [ $? -le 1 ] || off "FAILED: e2fsck of $disk: $(cat /tmp/fsck)"; done
mount -t ext4 /dev/vda /data && mount -t ext4 -o dax=always /dev/pmem0 /pmem || off "FAILED: mount"

# --- PostgreSQL, when the host has one: its programs and a new cluster are on a disk of their own ---
programs=
if [ -b /dev/vdb ] && mount -t ext4 -o ro /dev/vdb /disk; then
    programs=$(dirname "$(find /disk/usr -name postgres -type f | head -n 1)")
    mkdir -p /usr/share && ln -s /disk/usr/share/zoneinfo /usr/share/zoneinfo
fi
# Its libraries are on that disk, too.
with() { LD_LIBRARY_PATH=/disk/libraries "$@"; }
as_nobody() { with setpriv.linux --reuid 65534 --regid 65534 --clear-groups "$@"; }
settings="-c listen_addresses= -c unix_socket_directories=/tmp -c fsync=on -c full_page_writes=off -c shared_buffers=4MB -c jit=off
 -c min_wal_size=2MB -c max_wal_size=6MB -c checkpoint_timeout=30s -c dynamic_shared_memory_type=mmap -c max_connections=8 -c max_worker_processes=1
 -c max_parallel_workers=0 -c max_logical_replication_workers=0 -c wal_sync_method=$method"
postgres_starts() {
    as_nobody "$programs/pg_ctl" -D /data/pg -l /tmp/pg.log -t 600 -s -w -o "$(echo $settings)" start </dev/null >/tmp/pg_ctl 2>&1 ||
        off "VIOLATION: PostgreSQL does not start: $(cat /tmp/pg_ctl; tail -n 20 /tmp/pg.log)"
}
postgres_stops() {
    as_nobody "$programs/pg_ctl" -D /data/pg -t 600 -s -w -m fast stop </dev/null >/tmp/pg_ctl 2>&1 || off "FAILED: PostgreSQL does not stop: $(cat /tmp/pg_ctl)"
}
ask() { with "$programs/psql" -h /tmp -U postgres -d postgres -X -q -A -t -v ON_ERROR_STOP=1 "$@" 2>&1; }
# Every acknowledged row is there, no transaction was torn apart, and the tables and their indexes are sound.
look_at_postgres() {
    [ -n "$programs" ] || return 0
    said=$(ask -c "SELECT count(*) FROM ledger WHERE id <= $pg AND length(payload) = 200") && [ "$said" = "$pg" ] ||
        off "VIOLATION: of $pg rows of PostgreSQL there are: $said"
    said=$(ask -c 'SELECT (SELECT sum(balance) FROM accounts) = (SELECT coalesce(sum(delta), 0) FROM history)
        AND (SELECT sum(balance) FROM accounts) = (SELECT sum(balance) FROM tellers)') && [ "$said" = t ] ||
        off "VIOLATION: a transaction of PostgreSQL was torn apart: $said"
    for table in ledger accounts tellers history; do
        said=$(ask -c "SELECT count(*) FROM verify_heapam('$table')") && [ "$said" = 0 ] || off "VIOLATION: table $table: $said"
    done
    for index in ledger_pkey accounts_pkey; do
        said=$(ask -c "SELECT bt_index_check('$index', true)") || off "VIOLATION: index $index: $said"
    done
}

# --- what is looked at after a cut ---
# A block is its number, again and again.
block() { yes "block $1" | head -c 8192; }
sql() { sqlite3 -batch -bail /data/db/rows.db "$@"; }
# Slot by slot: the newest block there is whole, and not older than the newest acknowledged. Every acknowledged row is there.
look() {
    slot=0
    while [ $slot -lt 100 ] && [ $slot -le $last ]; do
        least=$((last - (last - slot) % 100))
        dd if=/data/db/a.data of=/tmp/found bs=8192 count=1 skip=$slot 2>/dev/null
        number=$(head -n 1 /tmp/found | sed 's/^block //')
        block "$number" | cmp -s - /tmp/found || off "VIOLATION: slot $slot is torn"
        [ "$number" -ge $least ] || off "VIOLATION: slot $slot holds $number, acknowledged was $least"
        slot=$((slot + 1))
    done
    number=0
    while [ $number -le $last ]; do
        dd if=/data/db/b.redo of=/tmp/found bs=8192 count=1 skip=$number 2>/dev/null
        block $number | cmp -s - /tmp/found || off "VIOLATION: redo block $number is not there"
        number=$((number + 1))
    done
    if [ "$wal" -ge 0 ]; then
        segments verify /data/db/pg_wal "$wal" >/tmp/found 2>&1 || off "VIOLATION: $(cat /tmp/found)"
        cat /tmp/found
    fi
    for file in fsx.data fsx.redo; do
        [ ! -e /data/db/$file ] || cat /data/db/$file >/dev/null || off "VIOLATION: $file cannot be read"
    done
    [ -x /bin/sqlite3 ] && [ $rows -gt 0 ] || return 0
    said=$(sql 'PRAGMA integrity_check' 2>&1) && [ "$said" = ok ] || off "VIOLATION: SQLite finds: $said"
    said=$(sql "SELECT count(*) FROM t WHERE id <= $rows AND length(payload) = 300" 2>&1) && [ "$said" = $rows ] ||
        off "VIOLATION: of $rows rows $said are there"
}
# What `status` says of lending.
lending() { tiersmith status "$1" 2>&1 | grep -E '^ *(redo files|lent):' | sed "s#^ *#$1: #"; }
homes="/data/db${programs:+ /data/pg}"
if [ "$last" -lt 0 ]; then
    mkdir -p /data/db/pg_wal
    tiersmith attach /data/db --fast /pmem --size 64M --profile /profile.toml || off "FAILED: attach"
    if [ -n "$programs" ]; then
        cp -a /disk/cluster /data/pg && chown -R 65534:65534 /data/pg && chmod 700 /data/pg || off "FAILED: the cluster"
        # So that nothing but the attach itself is to be read from the disk.
        sync
        tiersmith attach /data/pg --fast /pmem --size 48M --atomic-pages on || off "FAILED: attach of PostgreSQL's directory"
    fi
else
    for home in $homes; do
        tiersmith check $home >/tmp/check 2>&1 || off "VIOLATION: the tier of $home at rest: $(cat /tmp/check)"
        grep -i 'lent' /tmp/check | sed 's/^ */at rest: /'
        tiersmith attach $home || off "FAILED: attach of $home after the cut"
    done
    look
fi
if [ -n "$programs" ]; then
    postgres_starts
    [ "$last" -lt 0 ] || look_at_postgres
fi
[ "$last" -lt 0 ] || say "looked after: all of block $last, $rows rows, log record $wal, $pg rows of PostgreSQL is there"
if [ "$end" = 1 ]; then
    [ -z "$programs" ] || postgres_stops
    for home in $homes; do
        tiersmith detach $home || off "FAILED: detach of $home"
    done
    look
    if [ -n "$programs" ]; then
        as_nobody "$programs/pg_checksums" --check -D /data/pg >/tmp/found 2>&1 || off "VIOLATION: $(cat /tmp/found)"
        postgres_starts
        look_at_postgres
        postgres_stops
    fi
    left=$(ls -A /pmem | grep -v lost+found)
    [ -z "$left" ] || off "VIOLATION: detach left on the medium: $left"
    off "looked after: and in the plain directories"
fi
# How often the medium's file system syncs a file for one who wrote to it; only a kernel that can say it is asked.
syncs=/trace/events/ext4/ext4_sync_file_enter
if [ -d $syncs ]; then
    echo "hist:keys=dev" >$syncs/trigger 2>/dev/null || syncs=
else
    syncs=
fi

# --- writers, until the power goes ---
# Random operations beside all else.
for file in fsx.data fsx.redo; do
    [ -x /bin/fsx ] || break
    rm -f /data/db/$file
    (
        while :; do
            seed=$(od -An -tu4 -N4 /dev/urandom | tr -d ' ')
            fsx -f /fsx.toml -N 300 -S "$seed" -P /tmp /data/db/$file >/tmp/$file.said 2>&1 ||
                off "VIOLATION: fsx on $file, seed $seed: $(tail -n 12 /tmp/$file.said)"
            say "fsx ran on $file"
        done
    ) &
done
# Each insert is a commit; told when several are. What an earlier life wrote and did not tell may be there.
if [ -x /bin/sqlite3 ]; then
    (
        journal=wal
        [ $((rows / 5 % 2)) = 0 ] || journal=delete
        sql "PRAGMA journal_mode = $journal; CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, payload TEXT)" >/dev/null ||
            off "FAILED: SQLite"
        while :; do
            inserts="PRAGMA synchronous = FULL"
            for number in 1 2 3 4 5; do
                rows=$((rows + 1))
                inserts="$inserts; INSERT OR REPLACE INTO t VALUES ($rows, hex(randomblob(150)))"
            done
            sql "$inserts" || off "FAILED: SQLite's insert"
            say "rows $rows"
        done
    ) &
fi
# A log of segments that the kernel writes itself where it can.
(segments write /data/db/pg_wal "$method" || off "FAILED: segments") &
if [ -n "$programs" ]; then
    (as_nobody "$programs/pgbench" -h /tmp -U postgres -n -M prepared -f /disk/transfer.sql -c 2 -T 1000000 postgres >/tmp/pgbench 2>&1
        off "FAILED: pgbench ended: $(tail -n 5 /tmp/pgbench)") &
    # Statement by statement, each a commit; psql says the line when the server has answered.
    (
        id=$pg
        while :; do
            id=$((id + 1))
            echo "INSERT INTO ledger VALUES ($id, repeat(chr(65 + $id % 26), 200)) ON CONFLICT (id) DO UPDATE SET payload = excluded.payload;"
            echo "\\echo pg $id"
            # Segments are switched and used again more often than so little would.
            [ $((id % 20)) != 0 ] || echo 'SELECT pg_switch_wal() \g /dev/null'
            [ $((id % 50)) != 0 ] || echo 'CHECKPOINT;'
        done | ask || off "FAILED: psql ended"
    ) &
fi
number=$((last + 1))
while :; do
    block $number >/tmp/new
    dd if=/tmp/new of=/data/db/b.redo bs=8192 seek=$number conv=notrunc,fsync 2>/dev/null || off "FAILED: write"
    dd if=/tmp/new of=/data/db/a.data bs=8192 seek=$((number % 100)) conv=notrunc,fsync 2>/dev/null || off "FAILED: write"
    say "acknowledged $number"
    if [ $((number % 10)) = 5 ]; then
        for home in $homes; do lending $home; done
        [ -z "$syncs" ] || grep -o 'dev: .*' $syncs/hist | sed 's/^/syncs by ext4: /'
    fi
    number=$((number + 1))
done
