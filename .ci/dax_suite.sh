#!/usr/bin/env bash
# A directory attached through the mount in a virtual machine with a virtual NVDIMM, whose power is cut while it is written to.
#
# QEMU is killed in mid-write; the machine is started again on the same images, checks the tier at rest, attaches, and looks whether everything
# that was acknowledged is there and no block is torn. Written are blocks by dd; rows by SQLite, whose own check must find nothing; and two files,
# of class data and redo, by fsx, which compares each read with what it must give. What that shows and what it does not is in
# docs/guide/vm-lab.md. Correctness only: nothing is timed.
# The guest is Debian's cloud kernel with busybox, fetched by apt-get into the build directory, and this project's program; sqlite3 and fsx are
# those of this machine (fsx comes from crates.io).
# Exit codes: 0 good or skipped, 1 something is wrong, 2 it could not run.
set -eu

help() {
    cat <<'END'
usage: .ci/dax_suite.sh

Needs qemu-system-x86_64, apt-get with a package list, mkfs.ext4, e2fsck, cpio; says so and ends well without them. What sqlite3 and fsx do
is left out, with a line, where they are not to be had.
The last line is "dax suite: N power cuts, M blocks and K rows acknowledged, all there, fsx ran R times".

Environment: TIERSMITH_DAX_CUTS (default 3), TIERSMITH_PROGRAM the program tiersmith (default: it is built).
END
}

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# shellcheck source=.ci/set_up.sh
. "$root/.ci/set_up.sh"
case ${1:-} in
'') ;;
--help | -h)
    help
    exit 0
    ;;
*) give_up "there is no option $1; see $0 --help" ;;
esac

skip_all() {
    echo "skipped: the mount on a virtual NVDIMM, because $1"
    exit 0
}

[ "$(uname -m)" = x86_64 ] || skip_all "the guest is an x86-64 one"
for program in qemu-system-x86_64 mkfs.ext4 e2fsck cpio dpkg-deb; do
    have "$program" || skip_all "there is no $program (apt-get install qemu-system-x86 e2fsprogs cpio)"
done

target=${CARGO_TARGET_DIR:-$root/target}
tools=$target/dax-suite
cuts=${TIERSMITH_DAX_CUTS:-3}
place=
machine=
clean_up() {
    [ -z "$machine" ] || kill -9 "$machine" 2>/dev/null || true
    [ -z "$place" ] || rm -rf "$place"
}
trap clean_up EXIT
trap 'exit 2' INT TERM HUP

# Kernel, modules and busybox, once.
fetch() {
    [ ! -e "$tools/complete" ] || return 0
    rm -rf "$tools"
    mkdir -p "$tools/debs" "$tools/root"
    local image
    image=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$image" ] || skip_all "apt-get knows no linux-image-cloud-amd64"
    (cd "$tools/debs" && apt-get download -q "$image" busybox-static </dev/null >/dev/null 2>&1) ||
        skip_all "apt-get could not fetch $image and busybox-static"
    for package in "$tools"/debs/*.deb; do dpkg-deb -x "$package" "$tools/root"; done
    : >"$tools/complete"
}

# fsx, as the mount suite has it. Nothing if it is not to be had.
find_fsx() {
    fsx=$target/mount-suite/bin/fsx
    [ ! -x "$fsx" ] || return 0
    CARGO_TARGET_DIR=$target/mount-suite/build cargo install -q --locked --root "$target/mount-suite" fsx --version 0.3.2 </dev/null || {
        echo "skipped: fsx in the guest, because cargo could not install it"
        fsx=
    }
}

# A module and, before it, those it names as what it depends on: which they are differs from kernel to kernel. One that has no file is a part of
# the kernel, or the guest will say what it lacks.
add_module() { # NAME
    local file dependence
    file=$(find "$tools/root" -name "${1//[-_]/[-_]}.ko" | head -n 1)
    [ -n "$file" ] && [ ! -e "$guest/modules/$1.ko" ] || return 0
    for dependence in $(tr '\0' '\n' <"$file" | sed -n 's/^depends=//p' | tr ',' ' '); do add_module "$dependence"; done
    cp "$file" "$guest/modules/$1.ko"
    echo "$1" >>"$guest/modules/order"
}

# The guest's whole system: what it does is in /init.
pack() {
    local guest=$place/guest module library
    mkdir -p "$guest"/{bin,sbin,lib,lib64,modules,proc,sys,dev,run,tmp,data,pmem,etc}
    cp "$(find "$tools/root" -name busybox -type f -perm -100 | head -n 1)" "$guest/bin/busybox"
    cp "$program" "$guest/bin/tiersmith"
    cp "$(command -v mkfs.ext4)" "$(command -v e2fsck)" "$guest/sbin/"
    if have sqlite3; then cp "$(command -v sqlite3)" "$guest/bin/"; else echo "skipped: SQLite in the guest, because there is no sqlite3"; fi
    [ -z "$fsx" ] || cp "$fsx" "$guest/bin/fsx"
    # Their libraries, each where it is here.
    for module in "$guest"/bin/* "$guest"/sbin/*; do
        ldd "$module" >/dev/null 2>&1 || continue
        ldd "$module" | grep -o '/[^ ]*' | while read -r library; do
            mkdir -p "$guest$(dirname "$library")"
            cp -L "$library" "$guest$library"
        done
    done
    for module in virtio_pci virtio_blk nfit nd_pmem fuse; do add_module "$module"; done
    # Kernels of later releases have them compressed, which this guest cannot read.
    [ -f "$guest/modules/nd_pmem.ko" ] || skip_all "there is no module nd_pmem.ko in $tools/root"
    cat >"$guest/profile.toml" <<'END'
description = "blocks of 8 KiB"
[default]
class = "data"
block_size = 8192
[[rule]]
files = ["**/*.redo"]
class = "redo"
block_size = 8192
why = "it is written in place"
[[rule]]
files = ["rows.db", "rows.db-wal", "rows.db-journal"]
class = "data"
block_size = 4096
why = "SQLite's page"
END
    # A file of four MiB, in a tier that has room for a part of everything.
    cat >"$guest/fsx.toml" <<'END'
flen = 4194304
[opsize]
max = 65536
min = 1
[weights]
close_open = 3
read = 10
write = 20
mapread = 3
mapwrite = 3
invalidate = 1
truncate = 3
fsync = 2
fdatasync = 2
posix_fallocate = 2
punch_hole = 5
copy_file_range = 3
END
    cat >"$guest/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin HOME=/tmp
mount -t proc none /proc && mount -t sysfs none /sys && mount -t devtmpfs none /dev
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
for word in $(cat /proc/cmdline); do
    case $word in acknowledged=*) last=${word#*=} ;; rows=*) rows=${word#*=} ;; end=*) end=${word#*=} ;; esac
done
off() { echo "$*"; sync; poweroff -f; }
# A kernel that does not know its disks, for a module that is missing, never will.
devices() {
    tries=0
    until [ -b /dev/vda ] && [ -b /dev/pmem0 ]; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || off "FAILED: no /dev/vda or no /dev/pmem0; modules: $(ls /modules | tr '\n' ' ')"
        sleep 0.1
    done
}
devices
# The first start makes a namespace of mode fsdax, as `ndctl create-namespace --mode=fsdax` does; the driver finds it at the next.
if [ "$last" -lt 0 ]; then
    cd /sys/bus/nd/devices
    echo namespace0.0 >/sys/bus/nd/drivers/nd_pmem/unbind
    seed=$(cat region0/pfn_seed)
    echo 6f3a1d52-4c1e-4d0a-9a55-1d3c8e0b7a11 >"$seed/uuid"
    echo pmem >"$seed/mode"
    echo namespace0.0 >"$seed/namespace"
    echo "$seed" >/sys/bus/nd/drivers/nd_pmem/bind || off "FAILED: fsdax namespace"
    cd /
    devices
    mkfs.ext4 -q -F -b 4096 /dev/pmem0 && mkfs.ext4 -q -F /dev/vda || off "FAILED: mkfs"
fi
# A cut may leave ext4's own structures so that only e2fsck can mend them: docs/guide/vm-lab.md.
for disk in /dev/vda /dev/pmem0; do e2fsck -fp $disk >/tmp/fsck 2>&1 || [ $? -le 1 ] || off "FAILED: e2fsck of $disk: $(cat /tmp/fsck)"; done
mount -t ext4 /dev/vda /data && mount -t ext4 -o dax=always /dev/pmem0 /pmem || off "FAILED: mount"
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
    for file in fsx.data fsx.redo; do
        [ ! -e /data/db/$file ] || cat /data/db/$file >/dev/null || off "VIOLATION: $file cannot be read"
    done
    [ -x /bin/sqlite3 ] && [ $rows -gt 0 ] || return 0
    said=$(sql 'PRAGMA integrity_check' 2>&1) && [ "$said" = ok ] || off "VIOLATION: SQLite finds: $said"
    said=$(sql "SELECT count(*) FROM t WHERE id <= $rows AND length(payload) = 300" 2>&1) && [ "$said" = $rows ] ||
        off "VIOLATION: of $rows rows $said are there"
}
if [ "$last" -lt 0 ]; then
    mkdir -p /data/db
    tiersmith attach /data/db --fast /pmem --size 64M --profile /profile.toml || off "FAILED: attach"
else
    tiersmith check /data/db >/tmp/check 2>&1 || off "VIOLATION: the tier at rest: $(cat /tmp/check)"
    tiersmith attach /data/db || off "FAILED: attach after the cut"
    look
    echo "looked after: all of $last, and $rows rows, is there"
fi
if [ "$end" = 1 ]; then
    tiersmith detach /data/db || off "FAILED: detach"
    look
    off "looked after: and in the plain directory"
fi
# Random operations beside all else, until the power goes.
for file in fsx.data fsx.redo; do
    [ -x /bin/fsx ] || break
    rm -f /data/db/$file
    (
        while :; do
            seed=$(od -An -tu4 -N4 /dev/urandom | tr -d ' ')
            fsx -f /fsx.toml -N 300 -S "$seed" -P /tmp /data/db/$file >/tmp/$file.said 2>&1 ||
                off "VIOLATION: fsx on $file, seed $seed: $(tail -n 12 /tmp/$file.said)"
            echo "fsx ran on $file"
        done
    ) &
done
# Each insert is a commit; told when several are. What an earlier life wrote and did not tell may be there.
if [ -x /bin/sqlite3 ]; then
    (
        mode=wal
        [ $((rows / 5 % 2)) = 0 ] || mode=delete
        sql "PRAGMA journal_mode = $mode; CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, payload TEXT)" >/dev/null ||
            off "FAILED: SQLite"
        while :; do
            inserts="PRAGMA synchronous = FULL"
            for number in 1 2 3 4 5; do
                rows=$((rows + 1))
                inserts="$inserts; INSERT OR REPLACE INTO t VALUES ($rows, hex(randomblob(150)))"
            done
            sql "$inserts" || off "FAILED: SQLite's insert"
            echo "rows $rows"
        done
    ) &
fi
number=$((last + 1))
while :; do
    block $number >/tmp/new
    dd if=/tmp/new of=/data/db/b.redo bs=8192 seek=$number conv=notrunc,fsync 2>/dev/null || off "FAILED: write"
    dd if=/tmp/new of=/data/db/a.data bs=8192 seek=$((number % 100)) conv=notrunc,fsync 2>/dev/null || off "FAILED: write"
    echo "acknowledged $number"
    number=$((number + 1))
done
END
    chmod +x "$guest/init"
    (cd "$guest" && find . | cpio -o -H newc --quiet) >"$place/initrd"
}

# Starts the machine. Its console goes to $place/console. On a busy host the timer looks dead to the guest: no_timer_check.
start() { # ACKNOWLEDGED ROWS END
    : >"$place/console"
    qemu-system-x86_64 -machine q35,nvdimm=on,nvdimm-persistence=mem-ctrl -accel "${TIERSMITH_DAX_ACCELERATOR:-tcg}" -cpu max \
        -m 512M,slots=2,maxmem=2G -display none -monitor none -no-reboot -nic none \
        -serial "file:$place/console" -drive "if=virtio,format=raw,file=$place/home" \
        -object "memory-backend-file,id=m1,share=on,mem-path=$place/nvdimm,size=256M" -device nvdimm,id=n1,memdev=m1 \
        -kernel "$(find "$tools/root/boot" -name 'vmlinuz-*' | head -n 1)" -initrd "$place/initrd" \
        -append "console=ttyS0 quiet no_timer_check panic=-1 acknowledged=$1 rows=$2 end=$3" </dev/null >"$place/qemu" 2>&1 &
    machine=$!
}

# Waits for words on the console; what is wrong ends everything.
await() { # WORDS
    local waited=0
    until grep -aq "$1" "$place/console"; do
        if grep -aqE '^(VIOLATION|FAILED)' "$place/console" || ! kill -0 "$machine" 2>/dev/null; then
            grep -aq "$1" "$place/console" && return 0
            tail -n 30 "$place/console" "$place/qemu" >&2
            echo "dax suite: failed while waiting for: $1" >&2
            exit 1
        fi
        waited=$((waited + 1))
        [ "$waited" -lt 6000 ] || { tail -n 30 "$place/console" >&2; give_up "the guest did not say in ten minutes: $1"; }
        sleep 0.1
    done
}

program=${TIERSMITH_PROGRAM:-}
if [ -z "$program" ]; then
    cargo build -q --release -p tiersmith-cli </dev/null || give_up "tiersmith does not build"
    program=$target/release/tiersmith
fi
fetch
find_fsx
place=$(mktemp -d "${TMPDIR:-/tmp}/dax-suite.XXXXXX")
pack
truncate -s 256M "$place/nvdimm" "$place/home"
# The number of the last whole line of this kind: the last line may be cut short, and a whole one ends as a terminal's does.
told() { # WORD
    grep -ao "^$1 [0-9]*"$'\r$' "$place/console" | tail -n 1 | tr -dc 0-9
}
acknowledged=-1
rows=0
ran=0
for cut in $(seq "$cuts"); do
    start "$acknowledged" "$rows" 0
    # The cut comes at any moment after some writes.
    await "^acknowledged $((acknowledged + 20 + RANDOM % 30))"
    kill -9 "$machine"
    wait "$machine" 2>/dev/null || true
    machine=
    acknowledged=$(told acknowledged)
    rows=$(told rows | grep . || echo "$rows")
    ran=$((ran + $(grep -ac '^fsx ran' "$place/console" || true)))
    echo "cut $cut: up to block $acknowledged and row $rows acknowledged, fsx ran $ran times"
done
start "$acknowledged" "$rows" 1
await '^looked after: and in the plain directory'
# It switches itself off; one that hangs in that is ended.
for _ in $(seq 600); do
    kill -0 "$machine" 2>/dev/null || break
    sleep 0.1
done
kill -9 "$machine" 2>/dev/null || true
wait "$machine" 2>/dev/null || true
machine=
grep -a '^looked after' "$place/console"
echo "dax suite: $cuts power cuts, $((acknowledged + 1)) blocks and $rows rows acknowledged, all there, fsx ran $ran times"
