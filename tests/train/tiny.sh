# tiny.sh: a corpus and a configuration of a few thousand parameters, for tests that run the program. Sourced after
# tests/check.sh; the configuration is $work/tiny.yaml, its data $work/corpus.
# shellcheck shell=bash
MT_BIN=$(realpath "$MT_BIN")

tiny_text() { # LINES SEED   sentences of a few words, so that there is something to learn
    awk -v lines="$1" -v x="$2" 'BEGIN {
        n = split("the sea a ship of sails and wind over under old new sun moon bright calm deep water harbour light", w, " ")
        for (l = 0; l < lines; l++) {
            words = 4 + l % 7
            for (i = 0; i < words; i++) {
                x = (x * 1103515245 + 12345) % 2147483648
                printf "%s%s", w[1 + int(x / 65536) % n], i < words - 1 ? " " : ".\n"
            }
        }
    }'
}

tiny_setup() {
    tiny_text 600 7 >"$work/text"
    "$MT_BIN" data pack "$work/text" -o "$work/corpus" --document line >"$work/out" 2>&1 || cat "$work/out"
    cat >"$work/tiny.yaml" <<END
model:
  vocab: 256
  dim: 32
  layers: 2
  heads: 2
  kv_heads: 1
  head_dim: 16
  qk_norm: true
  first_dense: 1
  ffn: 48
  experts: 4
  top_k: 2
  expert_ffn: 16
  shared_ffn: 16
  score: sigmoid
  bias_rate: 0.001
moe:
  buffer_factor: 0.7
train:
  steps: 60
  seq_len: 32
  global_batch: 4
  micro_batch: 2
  dtype: bf16
  log_interval: 20
  eval_interval: 20
  eval_batches: 2
optim:
  lr: 3e-3
  warmup_steps: 5
ckpt:
  interval: 7
data:
  train: $work/corpus
device:
  workers: 2
run:
  dir: run
END
}

# train IN_FOLDER [key=value ...]: the run's folder is IN_FOLDER/run, so that two runs have the same configuration.
train() {
    mkdir -p "$1"
    (cd "$1" && exec "$MT_BIN" train "$work/tiny.yaml" "${@:2}")
}
# The same behind the shell's back; its process in $pid.
start() {
    mkdir -p "$1"
    (cd "$1" && exec "$MT_BIN" train "$work/tiny.yaml" "${@:2}") >"$work/log" 2>&1 </dev/null &
    pid=$!
}
# What must not depend on interruptions: every line of metrics.jsonl but for times.
curve() { # FOLDER
    sed -E 's/, "(tokens_per_s|mfu|data_wait_s|resident_bytes|exposed_s)": [^,}]*//g; s/, "rank_s": .*\]//' "$1/run/metrics.jsonl"
}
same_curve() { # A B
    [[ -s $1/run/metrics.jsonl ]] && diff <(curve "$1") <(curve "$2") >"$work/out"
}
# Their files are alike, but for the times in metrics.jsonl.
same_checkpoint() { # A B STEP
    local a=$1/run/ckpt/step-$3 b=$2/run/ckpt/step-$3 files
    files=$(ls "$a") || return 1
    [[ $files == *metrics.jsonl*rank-00000.safetensors* && $files == *manifest.json* ]] || return 1
    diff -r -x metrics.jsonl -x manifest.json "$a" "$b" >"$work/out" &&
        diff <(grep -vE 'metrics.jsonl|^\]' "$a/manifest.json") <(grep -vE 'metrics.jsonl|^\]' "$b/manifest.json") >"$work/out"
}
