#!/usr/bin/env bash
# Mutation testing: leaves out one step of the code at a time, and asks whether a test notices.
# Called by `./check --mutants`.
#
# The mutants are in .ci/mutants, a file a crate, each with the tests that should notice it: to run
# every test for every mutant would take days. What is changed is a copy of the tree in the build
# directory, never the tree itself.
# Exit codes: 0 good; 1 a mutant lived; 2 it could not run, or a mutant no longer fits the code.
set -eu

help() {
    cat <<'END'
usage: .ci/mutants.sh [--list | --sample N] [NAME...]

--list      says which mutants there are, and whether each still fits the code; runs nothing
--sample N  N mutants, spread over all of them
NAME        only mutants whose name, or list (store, pmem, sqlite, mount), has this in it

A list is blocks with an empty line between them:

    mutant NAME                what is wrong, in words with hyphens
    file PATH                  which file is changed
    kill CRATE TARGET [TEST]   a test that should fail: the name of a test file, or "lib", and what
                               is in the test's name; there may be several such lines
    equal REASON               instead of "kill": why nobody can tell it from the code as it is
    - LINE                     what is left out: lines that follow each other, once in the file
    + LINE                     what comes instead

The last line is "mutants: N tried, K killed, D defended, L lived". Environment:
TIERSMITH_MUTANT_LIMIT seconds that a test may take (default 600; one that hangs counts as killed).
END
}

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# shellcheck source=.ci/set_up.sh
. "$root/.ci/set_up.sh"

target=${CARGO_TARGET_DIR:-$root/target}
place=$target/mutants
tree=$place/tree
limit=${TIERSMITH_MUTANT_LIMIT:-600}
list_only=
sample=0
wanted=()
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h)
        help
        exit 0
        ;;
    --list) list_only=1 ;;
    --sample)
        sample=${2:-}
        [[ $sample =~ ^[1-9][0-9]*$ ]] || give_up "--sample $sample: give a number, for instance 12"
        shift
        ;;
    -*) give_up "there is no option $1; see .ci/mutants.sh --help" ;;
    *) wanted+=("$1") ;;
    esac
    shift
done

# Optimised, because the crash suite is slow else; not fully, because every mutant is compiled.
export CARGO_PROFILE_DEV_OPT_LEVEL=${CARGO_PROFILE_DEV_OPT_LEVEL:-1}
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=1 CARGO_TARGET_DIR=$place/build

names=() lists=() files=() kills=() equals=() olds=() news=()

# Reads one list into the arrays, one element a mutant.
read_list() {
    local line number=0 n=-1 list
    list=$(basename "$1" .txt)
    while IFS= read -r line || [ -n "$line" ]; do
        number=$((number + 1))
        case $line in
        '' | '#'*) ;;
        'mutant '*)
            n=${#names[@]}
            names+=("${line#mutant }") lists+=("$list")
            files+=('') kills+=('') equals+=('') olds+=('') news+=('')
            ;;
        'file '*) files[n]=${line#file } ;;
        'kill '*) kills[n]+=${line#kill }$'\n' ;;
        'equal '*) equals[n]=${line#equal } ;;
        '- '*) olds[n]+=${line#- }$'\n' ;;
        '+ '*) news[n]+=${line#+ }$'\n' ;;
        *) give_up "$1, line $number: \"$line\" is none of mutant, file, kill, equal, - and +" ;;
        esac
    done <"$1"
}

# A whole file into `text`, with a line feed before it and those at its end.
read_file() {
    text=$'\n'$(cat "$1" && echo .)
    text=${text%.}
}

# Why a mutant cannot be made of the code as it is; nothing when it can.
unfit() {
    local n=$1 text rest
    if [ ! -f "${files[n]:-/}" ]; then
        echo "there is no file \"${files[n]}\""
    elif [ -z "${olds[n]}" ]; then
        echo "it leaves nothing out"
    elif [ -z "${kills[n]}${equals[n]}" ]; then
        echo "it names no test, nor a reason why none can notice it"
    else
        read_file "${files[n]}"
        rest=${text#*$'\n'"${olds[n]}"}
        if [ "$rest" = "$text" ]; then
            echo "its lines are not in ${files[n]}"
        elif [ "${rest#*$'\n'"${olds[n]}"}" != "$rest" ]; then
            echo "its lines are in ${files[n]} more than once"
        fi
    fi
}

# Writes the mutant into the copy of the tree.
change() {
    local n=$1 text before
    cp "$tree/${files[n]}" "$place/before"
    read_file "$place/before"
    before=${text%%$'\n'"${olds[n]}"*}$'\n'
    text=$before${news[n]}${text:${#before} + ${#olds[n]}}
    printf '%s' "${text#?}" >"$tree/${files[n]}"
}

# Cargo's options for what a line "kill" names, into `options`.
options_for() {
    local crate test
    read -r crate test _ <<<"$1"
    options=(-p "tiersmith-$crate")
    case $test in
    lib) options+=(--lib) ;;
    *) if [ -f "crates/$crate/tests/alone/$test.rs" ]; then options+=(--test alone); else options+=(--test it); fi ;;
    esac
}

# Says "killed by TEST", "lived" or "no code".
try() {
    local n=$1 line test filter log=$place/log options
    while IFS= read -r line; do
        [ -n "$line" ] || continue
        options_for "$line"
        read -r _ test filter <<<"$line"
        # All tests of a file are a module of the crate's program.
        if [ -z "$filter" ] && [ "$test" != lib ]; then filter=$test::; fi
        if ! (cd "$tree" && cargo test "${options[@]}" --no-run) >"$log" 2>&1; then
            echo "no code"
            return
        fi
        # shellcheck disable=SC2086  # several words are several filters
        if ! (cd "$tree" && timeout "$limit" cargo test "${options[@]}" -- $filter) >"$log" 2>&1; then
            echo "killed by $line"
            return
        elif grep -q '^test result: ok. 0 passed' "$log"; then
            echo "no test $line"
            return
        fi
    done <<<"${kills[n]}"
    echo "lived"
}

for list in .ci/mutants/*.txt; do read_list "$list"; done
chosen=()
for n in "${!names[@]}"; do
    fits=${wanted[0]-yes}
    for want in "${wanted[@]}"; do
        case "${lists[n]} ${names[n]}" in *"$want"*) fits=yes && break ;; *) fits= ;; esac
    done
    if [ -n "$fits" ]; then chosen+=("$n"); fi
done
[ "${#chosen[@]}" -gt 0 ] || give_up "no mutant has ${wanted[*]} in its name"
if [ "$sample" -gt 0 ] && [ "$sample" -lt "${#chosen[@]}" ]; then
    some=()
    for ((i = 0; i < sample; i++)); do some+=("${chosen[i * ${#chosen[@]} / sample]}"); done
    chosen=("${some[@]}")
fi

stale=0
for n in "${chosen[@]}"; do
    why=$(unfit "$n")
    if [ -n "$why" ]; then
        echo "${lists[n]} ${names[n]}: $why"
        stale=$((stale + 1))
    elif [ -n "$list_only" ]; then
        echo "${lists[n]} ${names[n]}"
    fi
done
[ "$stale" -eq 0 ] || give_up "$stale of ${#chosen[@]} mutants do not fit the code: mend .ci/mutants"
if [ -n "$list_only" ]; then
    echo "mutants: ${#chosen[@]}"
    exit 0
fi

mkdir -p "$place"
exec 9>"$place/lock"
flock -n 9 || give_up "mutants are being tried already in $place: wait for that run"
rm -rf "$tree"
mkdir "$tree"
git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf - | tar -xf - -C "$tree"

killed=0 defended=0 bad=0 survivors=()
for n in "${chosen[@]}"; do
    began=$SECONDS
    if [ -n "${equals[n]}" ]; then
        said="defended: ${equals[n]}"
        defended=$((defended + 1))
    else
        change "$n"
        said=$(try "$n")
        cp "$place/before" "$tree/${files[n]}"
        case $said in
        killed*) killed=$((killed + 1)) ;;
        lived) survivors+=("${lists[n]} ${names[n]}") ;;
        *) bad=$((bad + 1)) ;;
        esac
    fi
    echo "${lists[n]} ${names[n]}: $said, $((SECONDS - began)) s"
done
for survivor in "${survivors[@]}"; do echo "  LIVED: $survivor"; done
[ "$bad" -eq 0 ] || give_up "$bad mutants do not compile, or name a test that is not there"
echo "mutants: ${#chosen[@]} tried, $killed killed, $defended defended, ${#survivors[@]} lived"
[ "${#survivors[@]}" -eq 0 ]
