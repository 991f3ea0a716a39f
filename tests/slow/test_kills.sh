# test: timeout=3000
# A run of eight processes, killed 300 times: one of them or all, at random moments, weighted towards saves. Every start goes on
# from the newest complete checkpoint, and the end is that of a run that nobody disturbed, to the bit.
source tests/check.sh
source tests/comm/mpirun.sh
source tests/train/tiny.sh
source tests/train/kills.sh
tiny_setup
random=300
check_kills 300
finish
