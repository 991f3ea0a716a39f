# test: timeout=240
# A run of eight processes, killed at random moments, weighted towards saves: a shorter form of tests/slow/test_kills.sh.
source tests/check.sh
source tests/comm/mpirun.sh
source tests/train/tiny.sh
source tests/train/kills.sh
tiny_setup
check_kills 6
finish
