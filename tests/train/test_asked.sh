# test: timeout=120
# What makes a run save, or save and stop, from outside: files in its folder, the job's time, signals.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
long=(train.steps=1000000 train.eval_interval=0 ckpt.interval=0)
until_lines() { # FOLDER N   metrics of so many steps
    for _ in $(seq 600); do
        [[ ! -e $1/run/metrics.jsonl || $(wc -l <"$1/run/metrics.jsonl") -lt $2 ]] || return 0
        sleep 0.05
    done
    return 1
}
until_gone() { # FILE
    for _ in $(seq 600); do
        [[ -e $1 ]] || return 0
        sleep 0.05
    done
    return 1
}
finished() {
    rc=0
    wait $pid || rc=$?
    cp "$work/log" "$work/out"
}

start "$work/files" "${long[@]}"
check "a long run" until_lines "$work/files" 3
touch "$work/files/run/save"
check "RUN/save is taken" until_gone "$work/files/run/save"
check "the run goes on" until_lines "$work/files" $(($(wc -l <"$work/files/run/metrics.jsonl") + 10))
check "a checkpoint is there" test -n "$(compgen -G "$work/files/run/ckpt/step-*/manifest.json")"
touch "$work/files/run/stop"
finished
check "RUN/stop: exit code 75" ended 75
check "RUN/stop: saved, and told" says "run/stop' was there"
check "RUN/stop is gone" test ! -e "$work/files/run/stop"
check "two checkpoints" test "$(compgen -G "$work/files/run/ckpt/step-*/manifest.json" | wc -l)" = 2
check "the reason is in the folder" grep -q '^{"code":75,"name":"PREEMPTED","message":"stopped after step ' "$work/files/run/exit.json"
step=$(sed -E 's/.*"step":([0-9]+),.*/\1/' "$work/files/run/exit.json")
run train "$work/files" "${long[@]}" train.steps=$((step + 2))
check "it goes on from there" says "going on from .*step-0*$step\$"
check "and ends well, which is told too" grep -q "^{\"code\":0,\"name\":\"OK\",\"message\":\"\",\"step\":$((step + 2)),\"rank\":0," "$work/files/run/exit.json"

run train "$work/time" "${long[@]}" run.time_limit=3s run.time_margin=1s
check "run.time_limit: exit code 75" ended 75
check "run.time_limit: why" says 'the job has [0-9-]+ s left, and another step with its checkpoint may take [0-9]+ s'
check "run.time_limit: after some steps" until_lines "$work/time" 2
mkdir "$work/bin"
printf '#!/bin/sh\n[ "$*" = "-h -j 4711 -o %%L" ] && echo 0:03\n' >"$work/bin/squeue"
chmod +x "$work/bin/squeue"
SLURM_JOB_ID=4711 PATH="$work/bin:$PATH" run train "$work/slurm" "${long[@]}" run.time_margin=1s
check "the time that squeue tells: exit code 75" ended 75
check "the time that squeue tells: whose job" grep -q '"job":"4711"}$' "$work/slurm/run/exit.json"
SLURM_JOB_ID=4711 SLURM_JOB_END_TIME=$(($(date +%s) + 30)) run train "$work/end" "${long[@]}" run.time_margin=29s
check "the time that Slurm's variable tells: exit code 75" ended 75

# One step of many seconds: the first SIGINT asks, the second does not.
start "$work/twice" "${long[@]}" train.global_batch=20000 train.micro_batch=500 data.prefetch=1
for _ in $(seq 600); do
    [[ ! -s $work/twice/run/config.yaml ]] || break
    sleep 0.05
done
kill -INT $pid
sleep 1
check "after one SIGINT it runs" kill -0 $pid
kill -INT $pid
finished
check "after two it does not" ended 130
check "it says so" says '^moetitan: interrupted a second time: ended at once, unsaved'
check "also in the folder" grep -q '^{"code":130,"name":"INTERRUPTED",' "$work/twice/run/exit.json"
finish
