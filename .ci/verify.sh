# What was downloaded is what .ci/checksums says: for the scripts that download, which source this
# file.
#
# What it is not: the check of Debian's packages, whose signed indexes apt compares them with; of
# crates, which cargo compares with Cargo.lock or the registry's index; of what rustup fetches then.
# shellcheck shell=bash

checksums=${BASH_SOURCE[0]%/*}/checksums

# verify FILE NAME: whether FILE has the checksum that is pinned for NAME. If not it says so, and
# removes the file, so that nobody runs it by mistake.
verify() {
    local file=$1 name=$2 pinned found
    pinned=$(awk -v name="$name" '!/^#/ && $2 == name { print $1 }' "$checksums")
    case ${#pinned} in
    64) found=$(sha256sum <"$file") ;;
    128) found=$(sha512sum <"$file") ;;
    *) found= ;;
    esac
    found=${found%% *}
    [ -z "$found" ] || [ "$found" != "$pinned" ] || return 0
    rm -f "$file"
    if [ -z "$found" ]; then
        echo "$name was downloaded, and .ci/checksums has no checksum for it: it was removed;" \
            "add a line for this version" >&2
    else
        echo "$name was downloaded with the checksum $found, and .ci/checksums has $pinned:" \
            "somebody changed the file on its way or where it lies; it was removed, and nothing of" \
            "it was run" >&2
    fi
    return 1
}
