#!/usr/bin/env bash
# A directory attached through the mount in a virtual machine with a virtual NVDIMM, whose power is cut while it is written to.
#
# QEMU is killed in mid-write; the machine is started again on the same images, checks the tiers at rest, attaches, and looks whether everything
# that was acknowledged is there and no block is torn. Written are blocks by dd; rows by SQLite, whose own check must find nothing; two files,
# of class data and redo, by fsx, which compares each read with what it must give; a log of segments that the kernel may write itself (lent); and
# a PostgreSQL with full_page_writes off. What that shows and what it does not is in docs/guide/vm-lab.md. Correctness only: nothing is timed.
# The guest, whose part is dax_guest.sh, is Debian's cloud kernel with busybox, fetched by apt-get into the build directory, and this project's
# programs; sqlite3, PostgreSQL and fsx are those of this machine (fsx comes from crates.io).
# Exit codes: 0 good or skipped, 1 something is wrong, 2 it could not run.
set -eu

help() {
    cat <<'END'
usage: .ci/dax_suite.sh

Needs qemu-system-x86_64, apt-get with a package list, mkfs.ext4, e2fsck, cpio; says so and ends well without them. What sqlite3, fsx and
PostgreSQL do is left out, with a line, where they are not to be had; so is lending, without a kernel of 6.9 or later.
The last line is "dax suite: N power cuts, L of them with redo lent; M blocks, R log records, K rows of SQLite and P of PostgreSQL acknowledged,
all there, fsx ran T times".

Environment: TIERSMITH_DAX_CUTS (default 3), TIERSMITH_PROGRAM the program tiersmith (default: it is built), TIERSMITH_DAX_KEEP a directory for what
the guest said.
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

# Kernels, modules and busybox, once: the kernel that apt-get knows, and one that lets FUSE pass files through (6.9), if that one does not. A newer
# one is in Debian's backports, whose list is kept apart from the machine's own.
fetch() {
    [ -e "$tools/fetched" ] || fetch_usual
    passes_through usual || [ -d "$tools/kernels/newer" ] || fetch_newer ||
        echo "skipped: redo that the kernel writes itself, because Linux $(release usual) is older than 6.9 and apt-get could not fetch one of Debian's backports"
}

fetch_usual() {
    rm -rf "$tools"
    mkdir -p "$tools/debs" "$tools/lists/partial" "$tools/busybox"
    local image
    image=$(newest_image)
    [ -n "$image" ] || skip_all "apt-get knows no linux-image-cloud-amd64"
    (cd "$tools/debs" && apt-get download -q "$image" busybox-static </dev/null >/dev/null 2>&1) ||
        skip_all "apt-get could not fetch $image and busybox-static"
    dpkg-deb -x "$tools"/debs/busybox-static_*.deb "$tools/busybox"
    unpack_kernel "$image" usual
    : >"$tools/fetched"
}

newest_image() { # OPTION...
    apt-cache "$@" depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1
}

unpack_kernel() { # PACKAGE NAME
    rm -rf "$tools/kernels/$2.part"
    mkdir -p "$tools/kernels/$2.part"
    dpkg-deb -x "$tools"/debs/"$1"_*.deb "$tools/kernels/$2.part"
    mv "$tools/kernels/$2.part" "$tools/kernels/$2"
}

passes_through() { # NAME
    grep -qs '^CONFIG_FUSE_PASSTHROUGH=y' "$tools/kernels/$1"/boot/config-*
}

fetch_newer() {
    local code image key=/usr/share/keyrings/debian-archive-keyring.gpg
    code=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    [ -n "$code" ] && [ -e "$key" ] || return 1
    echo "deb [signed-by=$key] http://deb.debian.org/debian $code-backports main" >"$tools/backports.list"
    set -- -o "Dir::Etc::sourcelist=$tools/backports.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$tools/lists" \
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    apt-get "$@" -qq update </dev/null >/dev/null 2>&1 || return 1
    image=$(newest_image "$@")
    [ -n "$image" ] || return 1
    (cd "$tools/debs" && apt-get "$@" download -q "$image" </dev/null >/dev/null 2>&1) || return 1
    unpack_kernel "$image" newer
    passes_through newer || { rm -rf "$tools/kernels/newer"; return 1; }
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
add_module() { # KERNEL NAME
    local file dependence modules
    file=$(find "$tools/kernels/$1/lib/modules" -name "${2//[-_]/[-_]}.ko*" | head -n 1)
    modules=$guest/modules/$(release "$1")
    [ -n "$file" ] && [ ! -e "$modules/$2.ko" ] || return 0
    mkdir -p "$modules"
    # Later kernels have them compressed.
    case $file in
    *.xz) "$busybox" unxz -c "$file" >"$modules/$2.ko" ;;
    *) cp "$file" "$modules/$2.ko" ;;
    esac
    for dependence in $(tr '\0' '\n' <"$modules/$2.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do add_module "$1" "$dependence"; done
    echo "$2" >>"$modules/order"
}

release() { # KERNEL
    basename "$tools/kernels/$1"/lib/modules/*
}

# A program's libraries, each at its own place below a directory, or, flat, in that directory.
add_libraries() { # DIRECTORY PROGRAM [flat]
    local library to
    ldd "$2" >/dev/null 2>&1 || return 0
    ldd "$2" | grep -o '/[^ ]*' | while read -r library; do
        to=$1/$library
        [ -z "${3:-}" ] || to=$1/$(basename "$library")
        mkdir -p "$(dirname "$to")"
        cp -L "$library" "$to"
    done
}

# The guest's whole system: what it does is in dax_guest.sh.
pack() {
    local guest=$place/guest module kernel
    busybox=$(find "$tools/busybox" -name busybox -type f -perm -100 | head -n 1)
    mkdir -p "$guest"/{bin,sbin,lib,lib64,modules,proc,sys,dev,run,tmp,data,disk,pmem,trace,etc}
    cp "$busybox" "$guest/bin/busybox"
    cp "$program" "$guest/bin/tiersmith"
    cp "$segments" "$guest/bin/segments"
    cp "$(command -v mkfs.ext4)" "$(command -v e2fsck)" "$guest/sbin/"
    ! have setpriv || cp "$(command -v setpriv)" "$guest/sbin/setpriv.linux"
    if have sqlite3; then cp "$(command -v sqlite3)" "$guest/bin/"; else echo "skipped: SQLite in the guest, because there is no sqlite3"; fi
    [ -z "$fsx" ] || cp "$fsx" "$guest/bin/fsx"
    # The guest's memory is small, and unpacking takes time.
    ! have strip || strip "$guest/bin/tiersmith" "$guest/bin/segments"
    for module in "$guest"/bin/* "$guest"/sbin/*; do add_libraries "$guest" "$module"; done
    printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$guest/etc/passwd"
    for kernel in "${kernels[@]}"; do
        for module in virtio_pci virtio_blk nfit nd_pmem nd_btt dax_pmem device_dax fuse ext4; do add_module "$kernel" "$module"; done
        [ -f "$guest/modules/$(release "$kernel")/nd_pmem.ko" ] || skip_all "there is no module nd_pmem.ko in $tools/kernels/$kernel"
    done
    cat >"$guest/profile.toml" <<'END'
description = "blocks of 8 KiB"
[default]
class = "data"
block_size = 8192
[[rule]]
files = ["pg_wal/0000000100000000????????"]
class = "redo"
block_size = 8192
lend = true
why = "it has its size from the beginning, and is overwritten and renamed, never grown"
[[rule]]
files = ["**/*.redo", "pg_wal/*"]
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
    cp "$root/.ci/dax_guest.sh" "$guest/init"
    chmod +x "$guest/init"
    (cd "$guest" && find . | cpio -o -H newc --quiet) >"$place/initrd"
}

# PostgreSQL's programs and a new cluster, with segments as small as there are. Nothing if there is none.
pack_postgres() {
    local disk=$place/disk initdb bin file as=()
    disk_image=
    initdb=$(find /usr/lib/postgresql -name initdb 2>/dev/null | sort | tail -n 1)
    bin=$(dirname "${initdb:-/}")
    if [ -z "$initdb" ] || ! [ -x "$bin/pgbench" ] || ! have setpriv; then
        echo "skipped: PostgreSQL in the guest, because there is none at /usr/lib/postgresql (apt-get install postgresql), or no setpriv"
        return 0
    fi
    mkdir -p "$disk/libraries" "$disk$bin" "$disk/usr/share/zoneinfo/Etc" "$disk/cluster"
    for file in postgres psql pgbench pg_ctl pg_checksums; do
        cp "$bin/$file" "$disk$bin/"
        add_libraries "$disk/libraries" "$bin/$file" flat
    done
    cp -R "$bin/../lib" "$disk$bin/.."
    rm -rf "$disk$bin/../lib/bitcode" "$disk$bin"/../lib/llvmjit*
    mkdir -p "$disk$(dirname "$(share_of "$bin")")"
    cp -R "$(share_of "$bin")" "$disk$(dirname "$(share_of "$bin")")/"
    cp -L /usr/share/zoneinfo/UTC /usr/share/zoneinfo/GMT "$disk/usr/share/zoneinfo/" 2>/dev/null || true
    cp -L /usr/share/zoneinfo/Etc/UTC "$disk/usr/share/zoneinfo/Etc/" 2>/dev/null || true
    # It refuses to be run by root.
    if [ "$(id -u)" = 0 ]; then
        as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
        chmod 711 "$place" && chown 65534:65534 "$disk/cluster"
    fi
    "${as[@]}" "$initdb" -D "$disk/cluster" -U postgres -A trust -k --wal-segsize=1 --no-locale -E UTF8 -N </dev/null >"$place/initdb" 2>&1 ||
        { cat "$place/initdb" >&2; give_up "initdb failed"; }
    # One statement a line, by the server without clients.
    "${as[@]}" "$bin/postgres" --single -j -D "$disk/cluster" postgres >"$place/initdb" 2>&1 <<'END' || { cat "$place/initdb" >&2; give_up "PostgreSQL could not make its tables"; }
CREATE EXTENSION amcheck;

CREATE TABLE ledger (id bigint PRIMARY KEY, payload text);

CREATE TABLE accounts (id int PRIMARY KEY, balance int, filler char(84));

INSERT INTO accounts SELECT n, 0, '' FROM generate_series(1, 5000) n;

CREATE TABLE tellers (id int PRIMARY KEY, balance int, filler char(84));

INSERT INTO tellers SELECT n, 0, '' FROM generate_series(1, 10) n;

CREATE TABLE history (teller int, account int, delta int, at timestamp, filler char(22));

END
    if grep -q 'ERROR' "$place/initdb"; then
        cat "$place/initdb" >&2
        give_up "PostgreSQL could not make its tables"
    fi
    cat >"$disk/transfer.sql" <<'END'
\set account random(1, 5000)
\set teller random(1, 10)
\set delta random(-5000, 5000)
BEGIN;
UPDATE accounts SET balance = balance + :delta WHERE id = :account;
UPDATE tellers SET balance = balance + :delta WHERE id = :teller;
INSERT INTO history (teller, account, delta, at) VALUES (:teller, :account, :delta, CURRENT_TIMESTAMP);
COMMIT;
END
    truncate -s 512M "$place/disk.image"
    mkfs.ext4 -q -F -d "$disk" "$place/disk.image" || give_up "mkfs.ext4 could not make the disk with PostgreSQL"
    rm -rf "$disk"
    disk_image=$place/disk.image
}

share_of() { # BIN
    "$1/pg_config" --sharedir 2>/dev/null || echo "/usr/share/postgresql/$(basename "$(dirname "$1")")"
}

# Starts the machine with one of the kernels. Its console goes to $place/console. On a busy host the timer looks dead to the guest: no_timer_check.
# QEMU 7.2 without KVM spoils the flags of an unlocked cmpxchg16b at times, with which later kernels allocate memory: the guest has none (cx16).
start() { # KERNEL WORDS...
    : >"$place/console"
    local kernel=$1 disk=() accelerator=${TIERSMITH_DAX_ACCELERATOR:-tcg} cpu=max
    shift
    [ "$accelerator" != tcg ] || cpu=max,-cx16
    [ -z "$disk_image" ] || disk=(-drive "if=virtio,format=raw,readonly=on,file=$disk_image")
    qemu-system-x86_64 -machine q35,nvdimm=on,nvdimm-persistence=mem-ctrl -accel "$accelerator" -cpu "$cpu" \
        -m 1G,slots=2,maxmem=4G -display none -monitor none -no-reboot -nic none \
        -serial "file:$place/console" -drive "if=virtio,format=raw,file=$place/home" "${disk[@]}" \
        -drive "if=none,id=nvme,format=raw,file=$place/nvme" -device nvme,serial=tiersmith,drive=nvme \
        -object "memory-backend-file,id=m1,share=on,mem-path=$place/nvdimm,size=256M" -device nvdimm,id=n1,memdev=m1 \
        -kernel "$(find "$tools/kernels/$kernel/boot" -name 'vmlinuz-*' | head -n 1)" -initrd "$place/initrd" \
        -append "console=ttyS0 quiet no_timer_check panic=-1 $*" </dev/null >"$place/qemu" 2>&1 &
    machine=$!
}

# What the guest said, for whoever wants to see it.
keep() { # NAME
    [ -z "${TIERSMITH_DAX_KEEP:-}" ] || cp "$place/console" "$TIERSMITH_DAX_KEEP/console.$1"
}

# Waits for words on the console; what is wrong ends everything.
await() { # WORDS
    local waited=0
    until grep -aq "$1" "$place/console"; do
        if grep -aqE '^(VIOLATION|FAILED)' "$place/console" || ! kill -0 "$machine" 2>/dev/null; then
            grep -aq "$1" "$place/console" && return 0
            tail -n 30 "$place/console" "$place/qemu" >&2
            keep failed
            echo "dax suite: failed while waiting for: $1" >&2
            exit 1
        fi
        waited=$((waited + 1))
        [ "$waited" -lt 9000 ] || { tail -n 30 "$place/console" >&2; give_up "the guest did not say in fifteen minutes: $1"; }
        sleep 0.1
    done
}

# The guest switches itself off; one that hangs in that is ended.
stop() {
    for _ in $(seq 600); do
        kill -0 "$machine" 2>/dev/null || break
        sleep 0.1
    done
    kill -9 "$machine" 2>/dev/null || true
    wait "$machine" 2>/dev/null || true
    machine=
}

program=${TIERSMITH_PROGRAM:-}
if [ -z "$program" ]; then
    cargo build -q --release -p tiersmith-cli </dev/null || give_up "tiersmith does not build"
    program=$target/release/tiersmith
fi
cargo build -q --release -p tiersmith-mount --example segments </dev/null || give_up "the example segments does not build"
segments=$target/release/examples/segments
fetch
find_fsx
kernels=()
for kernel in newer usual; do [ ! -d "$tools/kernels/$kernel" ] || kernels+=("$kernel"); done
place=$(mktemp -d "${TMPDIR:-/tmp}/dax-suite.XXXXXX")
pack
pack_postgres
# The access modes, each life on a medium of its own, which begins as raw memory.
for life in modes devdax; do
    rm -f "$place/nvdimm"
    truncate -s 256M "$place/nvdimm"
    truncate -s 64M "$place/home" "$place/nvme"
    start "${kernels[0]}" "life=$life"
    await '^modes: \(what cannot\|devdax was\)'
    stop
    keep "$life"
    grep -a '^modes: ' "$place/console"
    rm -f "$place/home"
done
rm -f "$place/nvdimm"
truncate -s 256M "$place/nvdimm"
truncate -s 512M "$place/home"
# The number of the last whole line of this kind: the last line may be cut short, and a whole one ends as a terminal's does.
told() { # WORD BEFORE
    grep -ao "^$1 [0-9]*"$'\r$' "$place/console" | tail -n 1 | tr -dc 0-9 | grep . || echo "$2"
}
acknowledged=-1
rows=0
wal=-1
pg=0
ran=0
lent=0
for cut in $(seq "$cuts"); do
    # Every third life is one of the kernel that does not pass files through, if there are two: what was lent is there, and nobody takes it.
    kernel=${kernels[0]}
    [ $((cut % 3)) != 0 ] || kernel=${kernels[-1]}
    method=fdatasync
    [ $((cut % 2)) != 0 ] || method=open_datasync
    start "$kernel" "acknowledged=$acknowledged rows=$rows wal=$wal pg=$pg method=$method"
    # The cut comes at any moment after all have written something.
    await "^acknowledged $((acknowledged + 20 + RANDOM % 30))"
    await '^wal [0-9]'
    [ -z "$disk_image" ] || await "^pg $((pg + 5 + RANDOM % 20))"
    kill -9 "$machine"
    wait "$machine" 2>/dev/null || true
    machine=
    acknowledged=$(told acknowledged "$acknowledged")
    rows=$(told rows "$rows")
    wal=$(told wal "$wal")
    pg=$(told pg "$pg")
    ran=$((ran + $(grep -ac '^fsx ran' "$place/console" || true)))
    said=$(grep -ac 'lent: *[1-9][0-9]* files' "$place/console" || true)
    if passes_through "$kernel" && [ "$said" = 0 ]; then
        grep -a -e 'redo files:' -e 'lent:' "$place/console" >&2 || true
        echo "dax suite: failed: no redo was lent to Linux $(release "$kernel")" >&2
        exit 1
    fi
    ! passes_through "$kernel" || lent=$((lent + 1))
    echo "cut $cut, Linux $(release "$kernel"): acknowledged up to block $acknowledged, row $rows, log record $wal, row $pg of PostgreSQL; fsx ran $ran times"
    keep "$cut"
done
start "${kernels[0]}" "acknowledged=$acknowledged rows=$rows wal=$wal pg=$pg end=1"
await '^looked after: and in the plain director'
stop
grep -a '^looked after' "$place/console"
keep end
echo "dax suite: $cuts power cuts, $lent of them with redo lent; $((acknowledged + 1)) blocks, $((wal + 1)) log records, $rows rows of SQLite and $pg of PostgreSQL acknowledged, all there, fsx ran $ran times"
