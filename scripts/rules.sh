#!/usr/bin/env bash
# scripts/rules.sh LIBRARY: rules of the house that a look at objects and sources can check.
set -euo pipefail
cd "$(dirname "$0")/.."
library=${1:?usage: scripts/rules.sh build/release/libmoetitan.a}
failed=0

# $1: the rule, $2: what breaks it, one a line; nothing if it holds.
rule() {
    [[ -z $2 ]] && return
    echo "rules: $1:"
    sed 's/^/    /' <<<"$2"
    failed=1
}

# The section decides, not nm's letter: constant tables that hold addresses (.data.rel.ro) are "d" there too.
mutable=$(objdump -t "$library" | awk '
    /\.o:  / { object = $1 }
    match($0, /[ \t](\.data|\.bss|\.tdata|\.tbss|\*COM\*)[^ \t]*[ \t]/) {
        section = substr($0, RSTART + 1, RLENGTH - 2)
        if (section !~ /^\.data\.rel\.ro/ && $NF !~ /^\./) print object " " $NF " in " section
    }')
rule "no mutable globals, no thread-local state" "$mutable"

rule "rounding is never left to the compiler" \
    "$(grep -nE 'ffast-math|funsafe-math|Ofast' Makefile || true)"
rule "no unbounded string functions" \
    "$(grep -rnE '\b(strcpy|strcat|sprintf|vsprintf|gets|strtok|alloca|atoi|atof)\(' src cuda --include='*.[ch]' || true)"
rule "no work left as a note in the source" \
    "$(grep -rnwE 'TODO|FIXME|XXX|HACK' src cuda scripts tests Makefile --include='*.[ch]' --include='*.sh' \
        --include='*.cu' --include=Makefile --exclude=rules.sh || true)"
rule "no tabs in C" "$(grep -rn $'\t' src tests cuda --include='*.[ch]' --include='*.def' || true)"

[[ $failed == 0 ]] && echo "rules: held by $(ar t "$library" | wc -l) objects"
exit $failed
