# Sourced by check.sh and quickstart.sh: runs a job in named parts and prints the minutes of each at the end.
# shellcheck shell=bash
part_names=() part_seconds=() part_notes=()
jobs=$(nproc)

begin_part() { # NAME
    echo
    echo "== $1"
    part_names+=("$1")
    part_start=$(date +%s%N)
}

end_part() { # [NOTE]
    part_seconds+=("$(awk "BEGIN { print ($(date +%s%N) - $part_start) / 1e9 }")")
    part_notes+=("${1:-}")
}

print_parts() {
    local i total=0
    echo
    printf '%-18s %8s\n' part minutes
    for i in "${!part_seconds[@]}"; do
        printf '%-18s %8.2f  %s\n' "${part_names[i]}" "$(awk "BEGIN { print ${part_seconds[i]} / 60 }")" "${part_notes[i]}"
        total=$(awk "BEGIN { print $total + ${part_seconds[i]} }")
    done
    printf '%-18s %8.2f\n' all "$(awk "BEGIN { print $total / 60 }")"
}
