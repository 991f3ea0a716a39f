# `moetitan submit --dry-run` and `moetitan job` without a Slurm: what a script says, and what is refused.
source tests/check.sh
source tests/train/tiny.sh
# shellcheck disable=SC2154,SC2016
tiny_setup
root=$PWD
site() { echo "$root/slurm/sites/$1.yaml"; }
render() { # ARGUMENTS...
    run "$MT_BIN" submit "$work/tiny.yaml" train.global_batch=8 train.micro_batch=1 run.dir="$work/my run" --dry-run "$@"
    cp "$work/out" "$work/script"
}
clean() { command -v shellcheck >/dev/null || return 0; shellcheck "$@" >"$work/out" 2>&1; }
has() { grep -qxF -- "$1" "$work/script"; }

for f in slurm/*.sbatch; do
    check "$f: shellcheck" clean "$f"
    check "$f: bash reads it" bash -n "$f"
    # shellcheck disable=SC2016 # as it stands there
    check "$f: cores for srun" grep -q '^export SRUN_CPUS_PER_TASK=\${SLURM_CPUS_PER_TASK:-' "$f"
    check "$f: the ring fence" grep -qx 'export SLURM_PMIX_FENCE=ring' "$f"
done

render --site "$(site jupiter)" --nodes 2 --account "a project" --time 90m --exclude 'n1,n[3-5]' --partition booster2
check "jupiter: rendered" ended 0
check "jupiter: shellcheck" clean "$work/script"
for line in '#SBATCH --nodes=2' '#SBATCH --ntasks-per-node=4' '#SBATCH --cpus-per-task=72' '#SBATCH --account="a project"' \
    '#SBATCH --time=01:30:00' '#SBATCH --signal=USR1@600' '#SBATCH --exclude=n1,n[3-5]' '#SBATCH --partition=booster2' \
    '#SBATCH --gres=gpu:4' '#SBATCH --job-name="my run"' "#SBATCH --output=\"$work/my run/jobs/%j.log\"" "moetitan=$MT_BIN" \
    "where=$root" "args=($work/tiny.yaml train.global_batch=8 train.micro_batch=1 'run.dir=$work/my run')" chain=self stalled=3; do
    check "jupiter: $line" has "$line"
done
check "each directive stands once" test -z "$(grep -o '^#SBATCH --[a-z-]*' "$work/script" | sort | uniq -d)"
check "the rest is the template's" test "$(diff "$work/script" slurm/jupiter.sbatch | grep -c '^>')" = 9
check "nothing was made" test ! -e "$work/my run"
render --site "$(site generic)" --nodes 2 --tasks-per-node 4 --chain none --stalled 7 --dry-run
check "generic: shellcheck" clean "$work/script"
check "generic: flags win" has chain=none
check "generic: and again" has stalled=7
check "generic: the template's time" has '#SBATCH --time=01:00:00'
check "a word of shell" bash -c "source <(grep '^args=' '$work/script'); [[ \${args[3]} == 'run.dir=$work/my run' ]]"

render --site="$(site generic)" --nodes=2 --job-name="it's one" --partition="p'q" --account=a=b
check "--flag=value" ended 0
for line in '#SBATCH --nodes=2' "#SBATCH --job-name=\"it's one\"" "#SBATCH --partition=\"p'q\"" '#SBATCH --account=a=b'; do
    check "--flag=value: $line" has "$line"
done
cp "$work/script" "$work/said"
render --site "$(site generic)" --nodes 2 --job-name "it's one" --partition "p'q" --account a=b
check "--flag=value: as --flag value" cmp "$work/script" "$work/said"

mkdir "$work/site" && sed 's/^chain=.*//' slurm/generic.sbatch >"$work/site/mine.sbatch"
printf 'template: ./mine.sbatch\nnodes: 2\nexclude_file: %s\n' "$work/bad" >"$work/site/mine.yaml"
printf 'n7 # slow\nn9,n10\n' >"$work/bad"
cd "$work/site" || exit
render --site ./mine.yaml
check "a template without a value: refused" ended 2
check "a template without a value: named" says "the template './mine.sbatch' has no line \"chain=...\""
cp "$root/slurm/generic.sbatch" mine.sbatch
render --site ./mine.yaml --exclude n9,n1
check "a site of one's own" ended 0
check "nodes from its list" has '#SBATCH --exclude=n9,n1,n7,n10'
rm "$work/bad"
render --site ./mine.yaml
check "a list that is not there" says "cannot read the list of nodes '$work/bad'"
echo 'nodez: 3' >>mine.yaml
render --site ./mine.yaml
check "an unknown key: where, and what was meant" says "^moetitan: ./mine.yaml:4:1: a site has no 'nodez'; did you mean nodes"
cd "$root" || exit

refused() { # WHAT WORDS ARGUMENTS...
    run "$MT_BIN" submit "$work/tiny.yaml" --dry-run "${@:3}"
    check "$1: exit code 2" ended 2
    check "$1: says so" says "$2"
}
refused "no number of nodes" 'how many nodes' --site "$(site generic)"
refused "no such site" 'no site "jupitre".*jupiter and generic' --site jupitre
refused "no such flag" "no flag '--nodez'" --nodez 3
refused "no time" '--time: ' --nodes 1 --time soon train.micro_batch=1
refused "nearly a flag" "no flag '--node'; did you mean --nodes\\? usage" --node 1
refused "a name that sbatch cannot read" "--partition is 'a b\"c': sbatch takes no value with" --nodes 1 --partition 'a b"c' train.micro_batch=1
refused "a site file that is not there" 'reading a site file: ./none.yaml: ' --nodes 1 --site ./none.yaml
refused "no number" '--nodes: ' --nodes many
refused "a batch that does not divide" 'train.global_batch' --nodes 3
refused "an option that there is not" 'train.stepz' --nodes 1 train.stepz=3
# as `make install` lays it out
mkdir -p "$work/prefix/bin" "$work/prefix/share/moetitan" && cp "$MT_BIN" "$work/prefix/bin" && cp -r slurm "$work/prefix/share/moetitan"
cd "$work" || exit
run "$MT_BIN" submit --help
check "help, where there is no site" ended 0
check "help lists the flags" says '--tasks-per-node  *Ranks of a node'
run prefix/bin/moetitan submit tiny.yaml --site jupiter --nodes 1 train.micro_batch=1 --dry-run
check "installed: its own sites and templates" ended 0
check "installed: its own path for the nodes" says "^moetitan=$work/prefix/bin/moetitan$"
cd "$root" || exit
PATH=/nowhere run "$MT_BIN" submit "$work/tiny.yaml" --nodes 1 train.micro_batch=1 run.dir="$work/none"
check "no sbatch: exit code 6" ended 6
check "no sbatch: says so" says "needs Slurm's commands in PATH .*: cannot run sbatch"
check "no sbatch: nothing was made" test ! -e "$work/none"
run env -u SLURM_JOB_ID "$MT_BIN" job begin "$work/tiny.yaml"
check "no job: exit code 2" ended 2
check "no job: says so" says 'no SLURM_JOB_ID'

# what a batch script does, with no Slurm to ask
export SLURM_JOB_ID=11 SOME_TOKEN=hidden SLURM_JOB_NODELIST='n[1-2]'
export PATH=$work/bin:$PATH
mkdir "$work/bin"
echo 'echo "$*" >>"$0.calls"; cat >/dev/null; echo 12' >"$work/bin/sbatch"
echo 'echo "$*" >>"$0.calls"' >"$work/bin/scancel"
echo '[[ ! -e $0.says ]] || echo "JobId=11 JobState=$(cat "$0.says") Reason=None"' >"$work/bin/scontrol"
echo 'exit 1' >"$work/bin/sacct"
sed -i '1i #!/bin/bash' "$work"/bin/* && chmod 755 "$work"/bin/*
job() { # VERB ARGUMENTS...
    run "$MT_BIN" job "$1" "${@:2}" "$work/tiny.yaml" run.dir="$work/run"
}
echo '#!/bin/bash' >"$work/text"
mkdir -p "$work/run/jobs" && echo n4 >"$work/run/jobs/exclude"
job begin --chain self --script "$work/text"
check "begin" ended 0
check "begin: the next job" grep -qx -- '--parsable --dependency=afterany:11 --exclude=n4' "$work/bin/sbatch.calls"
check "begin: the chain" diff <(printf '11 first\n12 next\n') "$work/run/jobs/chain"
check "begin: the script" cmp -s "$work/text" "$work/run/jobs/11/script"
check "begin: no secret" grep -qx 'SOME_TOKEN=(left out)' "$work/run/jobs/11/environment"
check "begin: the nodes" grep -q '"nodes":.*"n\[1-2\]"' "$work/run/jobs/11/begin.json"
job begin --chain self --script "$work/text"
check "begin again, after a requeue: no second successor" test "$(grep -c parsable "$work/bin/sbatch.calls")" = 1
reason() { printf '{"code": %d, "name": "X", "message": "%s", "step": 3, "job": "%s"}\n' "$1" "$2" "$3" >"$work/run/exit.json"; }
ends() { # WHAT CODE WORDS
    check "$1: exit code $2" ended "$2"
    check "$1: says so" says "$3"
}
reason 9 "rank 3 is stuck" 11
job end --code 137
ends "what the ranks wrote wins" 9 'job 11 ended with 9, HANG: rank 3 is stuck; job 12 goes on'
check "it is put away" grep -q '"rank 3 is stuck"' "$work/run/jobs/11/end.json"
check "and the next job stays" test ! -e "$work/bin/scancel.calls"
reason 10 "no number" 10
job end --code 143
ends "another job's reason does not count" 8 'srun ended with 143, and no rank wrote why'
job end --code 2
ends "srun's code, where it is one of ours" 2 'CONFIG.*the chain ends here'
check "the next job goes" grep -qx -- '--state=PENDING 12' "$work/bin/scancel.calls"
job end --code 0
ends "done" 0 '^job 11 ended: .*; the chain ends here'

export SLURM_JOB_ID=12
reason 75 "stopped after step 3" 11
rm "$work/run/jobs/11/end.json"
job begin --stalled 2
check "what the job before did not put away" grep -q 'stopped after step 3' "$work/run/jobs/11/end.json"
check "one job without progress is none too many" ended 0
echo '13 next' >>"$work/run/jobs/chain"
export SLURM_JOB_ID=13
job begin --stalled 2
ends "two are" 8 'the last 2 jobs of the chain saved nothing new.*job 12 ended with 8'
mkdir -p "$work/run/ckpt/step-00000005"
job begin --stalled 2
check "but with progress none is" ended 0
echo "CANCELLED" >"$work/bin/scontrol.says"
job begin
ends "a person cancelled the one before" 75 'job 12, before this one, is CANCELLED: the chain ends here'
printf '#!/bin/bash\necho "CANCELLED by 0"\n' >"$work/bin/sacct"
job begin
check "Slurm itself did" ended 0
touch "$work/run/jobs/stop"
job begin
ends "a file asks the chain to end" 75 "run/jobs/stop' is there: the chain ends here"
reason 75 "stopped after step 9" 13
job end --code 75
ends "and takes the next job" 75 'stopped after step 9; the chain ends here'
job list
check "job list wants a folder" ended 2
run "$MT_BIN" job list "$work/run"
check "job list" says '^11 +0  75 PREEMPTED: stopped after step 3$'
finish
