# plan_numbers.sh: for scripts that make tables of plans; sourced. $program is the program, $report the last plan's JSON.
# shellcheck shell=bash
program=${1:-${MT_BIN:-build/release/moetitan}}
report=$(mktemp)
trap 'rm -f "$report"' EXIT

number() { # KEY: the number of that name in the report
    sed -n "s/^[[:space:]]*\"$1\":[[:space:]]*\([-0-9.e+]*\),\{0,1\}$/\1/p" "$report" | head -n 1
}

gib() { # KEY
    awk "BEGIN { print $(number "$1") / 2^30 }"
}
