# test: timeout=120
# Weights written for Hugging Face by a process beside the run: after each save, when a file asks for it, and what fails.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
glm=(train.steps=20 train.eval_interval=0 ckpt.interval=8)
event() { grep -qE "\"event\": \"$1\", \"text\": \"$2" "$at/run/events.jsonl"; }

at=$work/each
mkdir -p "$work/words"
echo '{}' >"$work/words/tokenizer.json"
run train "$at" "${glm[@]}" ckpt.export_dir=hf ckpt.keep_last=1 data.tokenizer="$work/words"
check "after each save" ended 0
check "after each save: the tokenizer's file" cmp -s "$work/words/tokenizer.json" "$at/hf/step-00000020/tokenizer.json"
check "after each save: the last one is there" test -s "$at/hf/step-00000020/config.json"
check "after each save: told" says '^step +20  exported to hf/step-00000020: 1 file of weights, bf16 in [0-9.]+ s$'
check "after each save: in the events" event export 'hf/step-00000020: 1 file'
run "$MT_BIN" ckpt export "$at/run/ckpt/step-00000020" "$work/hand"
check "after each save: as by hand" diff -r "$at/hf/step-00000020" "$work/hand"

at=$work/exists
mkdir -p "$at/hf/step-00000020"
run train "$at" "${glm[@]}" ckpt.interval=0 ckpt.export_dir=hf
check "a folder that is there: the run ends well" ended 0
check "a folder that is there: told" says "^moetitan: the checkpoint of step 20 is not exported to 'hf/step-00000020': .*is there"
check "a folder that is there: in the events" event unexported 'hf/step-00000020: '

at=$work/refused
mkdir -p "$at"
echo >"$at/hf"
run train "$at" "${glm[@]}" ckpt.export_dir=hf/below
check "a folder that cannot be made: the run ends well" ended 0
check "a folder that cannot be made: told" says "step 8 is not exported to 'hf/below/step-00000008': cannot"

at=$work/no_tokenizer
run train "$at" "${glm[@]}" ckpt.export_dir=hf data.tokenizer=nowhere
check "a tokenizer that is not there: before the first step" ended 2
check "a tokenizer that is not there: told" says "data.tokenizer: cannot read 'nowhere', which exports to ckpt.export_dir are to get: No such file"

# The first export stands still: no step waits for it, what it reads stays, the next is left out, and the end does not wait longer than it is told.
cat >"$work/stands.c" <<'END'
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
__attribute__((constructor)) static void stand(void)
{
    char words[4096] = "";
    FILE *f = fopen("/proc/self/cmdline", "r");
    size_t n = f ? fread(words, 1, sizeof words - 1, f) : 0;
    if (f) fclose(f);
    for (size_t i = 0; i + 1 < n; i++)
        if (!words[i]) words[i] = ' ';
    if (!strstr(words, "ckpt export")) return;
    usleep(500000); /* its parent sets the priority */
    f = fopen(getenv("STANDS"), "w");
    if (f) fprintf(f, "%d\n", getpriority(PRIO_PROCESS, 0));
    if (f) fclose(f);
    pause();
}
END
at=$work/stands_still
check "what stands still builds" ${CC:-gcc} -std=c11 -D_GNU_SOURCE -shared -fPIC -o "$work/stands.so" "$work/stands.c"
STANDS=$work/nice LD_PRELOAD=$work/stands.so run train "$at" "${glm[@]}" ckpt.export_dir=hf ckpt.export_wait=1s ckpt.keep_last=1
check "one that stands still: the run ends well" ended 0
check "one that stands still: the lowest priority" test "$(cat "$work/nice")" = 19
check "one that stands still: the next is left out" says '^step +16  not exported: the export of step 8 is not over'
check "one that stands still: given up" says "^moetitan: the checkpoint of step 8 is not exported to 'hf/step-00000008': the run ends before"
check "one that stands still: its checkpoint stayed" test -e "$at/run/ckpt/step-00000008/manifest.json" -a ! -e "$at/run/ckpt/step-00000016"
check "one that stands still: nothing is left of it" test -z "$(ls "$at/hf")"

# RUN/export
at=$work/asked
start "$at" "${glm[@]}" train.steps=1000000 ckpt.interval=0
until_file() { # PATTERN
    for _ in $(seq 600); do
        compgen -G "$1" >/dev/null && return 0
        sleep 0.05
    done
    return 1
}
check "a long run" until_file "$at/run/metrics.jsonl"
touch "$at/run/export"
check "RUN/export: it is there" until_file "$at/run/export-step-*[0-9]/config.json"
check "RUN/export is gone" test ! -e "$at/run/export"
touch "$at/run/stop"
rc=0
wait $pid || rc=$?
check "RUN/export: the run goes on, and stops when asked" ended 75
check "RUN/export: one alone" test "$(compgen -G "$at/run/export-step-*" | wc -l)" = 1
finish
