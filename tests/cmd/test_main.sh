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
run "$MT_BIN" help data
check "help of one command" test "$(wc -l <"$work/out")" = 1
check "help of one command names it" says 'moetitan data '
for command in train plan sweep report doctor submit job sample ckpt data options; do
    run "$MT_BIN" $command --help
    check "$command --help" ended 0
    check "$command --help: names it" says "moetitan $command "
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
