# test: timeout=600
# 384 ranks in one process, 96 "nodes" of four, through the command line: each owns exactly one expert of every block; losses of
# one rank's. How near they must be by the spread of sum orders, test_spread384.c shows.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
config=$(realpath configs/fake-384.yaml)
options=(data.train="$work/corpus" data.valid= train.steps=4 train.eval_interval=0 optim.decay_ratio=0)
job() { # NAME ARGUMENTS...
    mkdir -p "$work/$1"
    (cd "$work/$1" && exec "$MT_BIN" train "$config" "${options[@]}" run.dir=run "${@:2}")
}
losses() { sed -nE 's/.*"step": ([0-9]+),.*"loss": ([^,]+),.*"grad_norm": ([^,]+),.*/\1 \2 \3/p' "$work/$1/run/metrics.jsonl"; }
near() { # A B   within 1e-6, in f32
    paste <(losses "$1") <(losses "$2") >"$work/out"
    awk 'function far(x, y) { return !((x - y) ^ 2 <= (1e-6 * y) ^ 2) }
        NF != 6 || $1 != $4 || far($2, $5) || far($3, $6) { bad = 1 } END { exit bad || NR != 4 }' "$work/out"
}
run job one mesh.ep=1
check "one rank" ended 0
run job many --fake-ranks 384 run.print_owners=true
check "384 ranks" ended 0
check "losses and norms of one rank" near one many
finish
