# The command line as a whole: help, version, unknown commands, exit codes.
source tests/check.sh

run "$MT_BIN" --version
check "--version" ended 0
check "--version prints one" says '^moetitan [0-9]+\.[0-9]+\.[0-9]+$'
for call in help --help -h; do
    run "$MT_BIN" $call
    check "$call" ended 0
    check "$call lists the commands" says '^  moetitan train CONFIG'
    check "$call lists the exit codes" says '2 CONFIG.*75 PREEMPTED'
done
flags() { # COMMAND   that its sources understand, without those of programs that they call and of array jobs
    cat src/cmd/"$1".c src/cmd/"$1"_*.c 2>/dev/null | grep -ohE '"--[a-z-]{2,}"|\{"[a-z-]+", [01], NULL, ' |
        sed -E 's/^\{"/--/; s/"//g; s/,.*//' | sort -u | grep -vE '^--(help|version|exact|list-gpus)$'
}
for command in train plan sweep report doctor submit job sample ckpt data options; do
    run "$MT_BIN" $command --help
    check "$command --help" ended 0
    check "$command --help: names it" says "moetitan $command "
    for flag in $(flags $command); do check "$command --help: tells of $flag" says "(^|[^a-z-])$flag([^a-z-]|$)"; done
    cp "$work/out" "$work/help"
    for call in "help $command" "$command -h" "$command some.yaml --help"; do
        run "$MT_BIN" $call
        check "$call" ended 0
        check "$call: the same" cmp "$work/out" "$work/help"
    done
done
for call in "help help" "help version" "version --help"; do
    run "$MT_BIN" $call
    check "$call" ended 0
done
run "$MT_BIN"
check "no command: a configuration error" ended 2
check "no command: where help is" says '^moetitan: .*moetitan help'
run "$MT_BIN" trian
check "a slip: a configuration error" ended 2
check "a slip: what was meant" says '^moetitan: no command "trian"; did you mean "train"'
run "$MT_BIN" qqqqqqqq
check "nothing near" says '^moetitan: no command "qqqqqqqq". Try'
run "$MT_BIN" help qqqqqqqq
check "help of nothing" ended 2
run "$MT_BIN" $'bad\nname\033[1m'
check "what a terminal would obey is not repeated" silent_about $'\033'
run "$MT_BIN" version now
check "an argument too many" ended 2
run bash -c '"$MT_BIN" help >/dev/full'
check "a full disk is a failure" ended 6
finish
