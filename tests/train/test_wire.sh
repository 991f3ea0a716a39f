# test: timeout=120
# What a run of several ranks tells of its collectives: sums in the metrics, the table and traffic.json, logs; and without
# these options nothing of it, and nothing is allocated.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
ranks=(--fake-ranks 4 train.micro_batch=1 mesh.ep=2 mesh.ranks_per_node=2 train.steps=40 train.eval_interval=0 ckpt.interval=0 ckpt.at_end=false)

run train "$work/shown" "${ranks[@]}" run.stop_after=3 ckpt.at_end=true run.traffic=true run.trace_collectives=true
check "runs" ended 75
check "the table is printed" grep -qE '^  slot +gather +gather_cut +2 +0 +[1-9][0-9]* ' "$work/out"
folder=$work/shown/run
check "metrics have every group" grep -qE '"wire_node_bytes": [1-9][0-9]*, "wire_net_bytes": [1-9][0-9]*, "wire_padding_bytes": [0-9]+, "wire_world": \[[0-9]+, [0-9]+\], "wire_shard": \[[0-9]+, [0-9]+\], "wire_slot": \[0, [1-9][0-9]*\], "wire_ep": \[[1-9][0-9]*, 0\], "wire_replica": \[0, 0\], "wire_shard_node": \[[1-9][0-9]*, 0\], "wire_shard_rail": \[0, [1-9][0-9]*\], "wire_slot_node": \[0, 0\], "wire_slot_rail": \[0, 0\]\}$' "$folder/metrics.jsonl"
sum() { # LINK DIRECTION   over all ranks and collectives of traffic.json
    grep -oE "\"$1\": \{\"sent\": [0-9]+, \"received\": [0-9]+" "$folder/traffic.json" | awk -v f="$2" '{ gsub(/[^0-9 ]/, ""); n += $f } END { print n }'
}
field() { head -n 1 "$folder/metrics.jsonl" | grep -oE "\"$1\": [0-9]+" | grep -oE '[0-9]+$'; }
for link in node net; do
    check "$link: the ranks' bytes add up to the metrics'" test "$(sum "$link" 1)" -eq "$(field "wire_${link}_bytes")"
    check "$link: what is sent is received" test "$(sum "$link" 1)" -eq "$(sum "$link" 2)"
done
check "all ranks are there" test "$(grep -c '"rank"' "$folder/traffic.json")" = 4
# The type is that of what a rank has, if it has anything.
calls() { sed -E 's/ of [^ ]*( type)? in / in /' "$folder/collectives-0000$1.log"; }
check "rank 2 calls what rank 0 calls" cmp <(calls 0) <(calls 2)
check "rank 3 calls what rank 1 calls" cmp <(calls 1) <(calls 3)
# The two rails (group 6) bring regions of their own sizes.
elsewhere() { calls "$1" | sed -E 's/(group 6, .*): .*/\1/'; }
check "rank 1 calls what rank 0 calls" cmp <(elsewhere 0) <(elsewhere 1)
check "the log has them all" test "$(wc -l <"$folder/collectives-00000.log")" -gt 100

run train "$work/plain" "${ranks[@]}" run.stop_after=3 ckpt.at_end=true
check "runs without" ended 75
check "no files without the options" test ! -e "$work/plain/run/traffic.json" -a ! -e "$work/plain/run/collectives-00000.log"
check "sums without the groups" grep -qE '"wire_padding_bytes": [0-9]+\}$' "$work/plain/run/metrics.jsonl"
check "the options change no bit" cmp <(grep -oE '"(loss|grad_norm)": [^,]*' "$folder/metrics.jsonl") <(grep -oE '"(loss|grad_norm)": [^,]*' "$work/plain/run/metrics.jsonl")

counter=$work/alloc_count.so
# Behind step 1, traffic.json is written.
check "the counter builds" ${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -fPIC -shared -o "$counter" tests/interpose/alloc_count.c -ldl
MT_ALLOC_METRICS=$work/count/run/metrics.jsonl MT_ALLOC_STEPS=3,39 MT_ALLOC_REPORT=$work/report LD_PRELOAD=$counter run train "$work/count" "${ranks[@]}" run.traffic=true
check "runs with the counter" ended 0
check "nothing is allocated in a step" grep -qx 'during 0' "$work/report"

run train "$work/one" train.steps=40 run.stop_after=2 ckpt.interval=0 train.eval_interval=0
check "one rank has no wire" test "$(grep -c wire "$work/one/run/metrics.jsonl")" = 0
finish
