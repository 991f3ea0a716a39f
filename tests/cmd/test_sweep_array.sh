# test: timeout=60
# `moetitan sweep --slurm` with stand-ins for Slurm's programs: what is asked of them, and that the script it renders runs its runs.
# tests/slurm/test_sweep.sh is the same on a real one.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
root=$PWD
cd "$work" || exit

# sbatch keeps the script; squeue knows the jobs in `queue`; srun starts one process of what it is given
mkdir bin
cat >bin/sbatch <<'END'
#!/bin/bash
[[ ! -e refuse ]] || { echo "sbatch: error: invalid partition specified: nowhere" >&2; exit 1; }
cat >script
echo 4711 | tee -a queue
END
cat >bin/squeue <<'END'
#!/bin/bash
[[ -e queue ]] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
cat queue
END
cat >bin/srun <<'END'
#!/bin/bash
echo "$*" >>srun.words
while [[ $1 == --* ]]; do shift; done
exec "$@"
END
chmod 755 bin/*
export PATH=$work/bin:$PATH

cat >grid.yaml <<END
extends: tiny.yaml
dir: grid
set: {train.steps: 5, optim.warmup_steps: 1, train.eval_interval: 0, device.workers: 1}
grid: {optim.lr: [1e-3, 1e-2], shard.prefetch: [1, 2, 3]}
metric: loss
at_once: 2
slurm: {pack: 4, jobs: 7}
END
site=(--site "$root/slurm/sites/generic.yaml" --tasks-per-node 2 --time 90m)
sweep() { run "$MT_BIN" sweep grid.yaml "$@"; }

for name in generic jupiter; do
    sweep --slurm --site "$root/slurm/sites/$name.yaml" --nodes 1 --tasks-per-node 2 --time 90m --account project --dry-run
    check "$name: the script" ended 0
    cp out "$name.sbatch"
    check "$name: two jobs, at most seven at a time" says '^#SBATCH --array=0-1%7$'
    check "$name: what the site's flags say" says '^#SBATCH --time=01:30:00$'
    check "$name: its values" test "$(grep -cE "^(pack=4|at_once=2|ranks=1|points=grid/array-001.points|where=$work)$" out)" = 5
    run shellcheck "$name.sbatch"
    check "$name: shellcheck" ended 0
done
check "a dry run leaves no file of an array" test -z "$(ls grid | grep array)"
touch refuse
sweep --slurm "${site[@]}"
check "refused" ended 2
check "in sbatch's words" says 'invalid partition specified: nowhere'
check "nothing of an array stays" test -z "$(ls grid | grep -E 'array|jobs')"
rm refuse
sweep --slurm "${site[@]}"
check "submitted" says '^array     job 4711: 2 jobs for 6 runs'
check "a line a run" test "$(grep -cE $'^grid/points/[0-9a-f]{16}/config.yaml\trun.dir=grid/points/[0-9a-f]{16}/run-1$' grid/array-001.points)" = 6
sweep --slurm "${site[@]}"
check "not twice" says 'job 4711 of this sweep is still there: nothing is submitted'

run env SLURM_ARRAY_TASK_ID=0 bash script
check "the first job" ended 0
check "has four runs" says '^run +4/4  done'
check "started side by side" grep -qE '^--mpi=pmix .*--exact --ntasks=1 .*moetitan train grid/points/[0-9a-f]+/config.yaml run.dir=' srun.words
sweep --collect
check "collected so far" says '4 runs done, 0 failed'
run env SLURM_ARRAY_TASK_ID=1 bash script
check "the second has the rest" says '^run +2/2  done'
rm queue
sweep --slurm "${site[@]}"
check "all is done" says '^array     no run is due$'
check "and told" says '6 points, 6 of them to run, 1 time each; 6 runs done, 0 failed'
check "each once" test "$(grep -c . srun.words)" = 6
finish
