# test: timeout=600
# Killed at a random moment and restarted, the loss curve and the checkpoint are the same to the bit: 20 times of 20.
source tests/check.sh
source tests/train/tiny.sh
source tests/train/resume.sh
tiny_setup
whole_run
check_killed 20 100
finish
