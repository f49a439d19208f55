# Sets a machine up for `check`, `study` and `.ci/run`, which source this file: Rust and a C compiler, nothing else.
#
# What it is not: it runs nothing of the project. It changes the machine only where something is missing, and says so.
# shellcheck shell=bash

# shellcheck source=.ci/verify.sh
. "${BASH_SOURCE[0]%/*}/verify.sh"

# The oldest compiler that builds the workspace (crates/pmem/Cargo.toml says why).
RUST_OLDEST=1.89
# Its installer, whose checksums are in .ci/checksums.
RUSTUP=1.28.2
# The one the project is written and checked with: lints and formatting differ from one to the next.
RUST_CHECKED=1.95.0

# Ends the program: something outside the project is not as it must be.
give_up() {
    echo "$(basename "$0"): $*" >&2
    exit 2
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# Installs Debian packages when that is possible without asking; else says the one command.
install_packages() {
    if have apt-get && [ "$(id -u)" = 0 ]; then
        echo "installing with apt-get: $*"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"; } >/dev/null ||
            give_up "apt-get could not install $*; look at its message above"
    else
        give_up "missing: $*. Install it with: sudo apt-get install $*"
    fi
}

set_up_c_compiler() {
    # rustc links with `cc`.
    have cc || install_packages gcc libc6-dev
}

# The official installer, from where https://sh.rustup.rs would take it, of a version that is known.
install_rust() {
    local place url
    echo "installing Rust with rustup into $1"
    have curl || install_packages curl ca-certificates
    place=$(mktemp -d)
    url=https://static.rust-lang.org/rustup/archive/$RUSTUP/$(uname -m)-unknown-linux-gnu/rustup-init
    if ! { curl --proto '=https' --tlsv1.2 -sSf -o "$place/rustup-init" "$url" &&
        verify "$place/rustup-init" "rustup-init-$RUSTUP-$(uname -m)" &&
        chmod +x "$place/rustup-init" &&
        "$place/rustup-init" -y -q --no-modify-path --profile minimal -c rustfmt -c clippy \
            --default-toolchain "$RUST_CHECKED" >"$place/said" 2>&1; }; then
        cat "$place/said" 2>/dev/null || true
        rm -rf "$place"
        give_up "Rust could not be installed from $url; see https://rustup.rs"
    fi
    rm -rf "$place"
}

# Uses this version from here on, if rustup has it or can install it.
use_rust() {
    have rustup || return 1
    if ! rustup toolchain list 2>/dev/null | grep -q "^$1-"; then
        echo "installing Rust $1 with rustup"
        rustup toolchain install "$1" --profile minimal -c rustfmt -c clippy >/dev/null 2>&1 || return 1
    fi
    export RUSTUP_TOOLCHAIN=$1
}

set_up_rust() {
    # A container may run without it.
    export HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
    local cargo_home=${CARGO_HOME:-$HOME/.cargo}
    case ":$PATH:" in
    *":$cargo_home/bin:"*) ;;
    *) PATH=$PATH:$cargo_home/bin ;;
    esac
    export PATH
    if ! have cargo; then
        install_rust "$cargo_home"
    fi
    local version
    version=$(rustc --version | cut -d' ' -f2)
    if [ "$(printf '%s\n' "$RUST_OLDEST" "$version" | sort -V | head -n1)" != "$RUST_OLDEST" ]; then
        have rustup || give_up "rustc $version is older than $RUST_OLDEST and rustup is not there; install Rust from https://rustup.rs"
        use_rust "$RUST_CHECKED" || give_up "rustc $version is older than $RUST_OLDEST and rustup could not install $RUST_CHECKED"
    fi
    # A crash of the compiler leaves no file in the tree.
    export RUSTC_ICE=0
}

set_up() {
    set_up_c_compiler
    set_up_rust
}

# What some tests and studies use: real servers and their tools, and a browser for the reports. Without them those tests are skipped, each
# with a line: so nothing here ends the program.
set_up_servers() {
    local missing=() found
    have fusermount3 || missing+=(fuse3)
    found=$(find /usr/lib/postgresql -name initdb 2>/dev/null | head -n1)
    [ -n "$found" ] || missing+=(postgresql postgresql-contrib)
    have mariadbd || [ -x /usr/sbin/mariadbd ] || missing+=(mariadb-server)
    have redis-server || missing+=(redis-server)
    have sysbench || missing+=(sysbench)
    have strace || missing+=(strace)
    have chromium || have chromium-browser || have google-chrome || missing+=(chromium)
    [ "${#missing[@]}" -gt 0 ] || return 0
    if ! have apt-get || [ "$(id -u)" != 0 ]; then
        echo "skipped: tests that need ${missing[*]}, because they are not installed; sudo apt-get install ${missing[*]}"
        return 0
    fi
    echo "installing with apt-get: ${missing[*]}"
    apt-get update -qq >/dev/null 2>&1 || true
    # Together, which is faster; one by one if one of them is not to be had. No server of the system's own is started: the tests start theirs.
    if ! install_quietly "${missing[@]}"; then
        local package
        for package in "${missing[@]}"; do
            install_quietly "$package" || echo "skipped: tests that need $package, because apt-get could not install it"
        done
    fi
}

# A Python with the libraries that the Python package is tried with. Without it those tests are skipped, each with a line.
set_up_python() {
    local place=${CARGO_TARGET_DIR:-$root/target}/python
    local libraries=(datasette django pysqlite3-binary sqlalchemy)
    have python3 || return 0
    if [ ! -e "$place/complete" ]; then
        echo "installing with pip into $place: ${libraries[*]}"
        rm -rf "$place"
        { python3 -m venv "$place" && "$place/bin/pip" install -q "${libraries[@]}" && : >"$place/complete"; } >/dev/null 2>&1 || return 0
    fi
    export TIERSMITH_PYTHON=$place/bin/python
}

# Installs packages without starting their servers, now or with the machine: the tests start their own. A package asks
# policy-rc.d whether it may start one, under systemd too.
install_quietly() {
    local policy=/usr/sbin/policy-rc.d made=no code=0 package
    if [ ! -e "$policy" ] && printf '#!/bin/sh\nexit 101\n' >"$policy" 2>/dev/null; then
        made=yes
        chmod +x "$policy"
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null 2>&1 </dev/null || code=$?
    [ "$made" = no ] || rm -f "$policy"
    for package in "$@"; do
        case $package in
        redis-server | postgresql) systemctl disable -q "$package" >/dev/null 2>&1 || true ;;
        mariadb-server) systemctl disable -q mariadb >/dev/null 2>&1 || true ;;
        esac
    done
    return "$code"
}
