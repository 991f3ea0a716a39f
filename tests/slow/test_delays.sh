# test: timeout=240
# 1,000 steps of eight ranks, whose operations and host code are late at random: the bits of an undisturbed run.
MT_TEST_STEPS=1000 exec "$MT_BUILD/tests/train/test_delays"
