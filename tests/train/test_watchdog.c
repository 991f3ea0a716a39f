/* Deadlines of phases, in processes of their own, for a phase that is late ends its process. */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "train/control.h"
#include "train/watchdog.h"

static char dir_[] = "/tmp/test_watchdog.XXXXXX";

struct child {
    mt_config cfg;
    struct mt_job job;
    struct mt_ending ending;
    struct mt_nodes nodes;
    struct mt_watchdog *w;
};
static void child_open(struct child *c)
{
    mt_err e = {0};
    mt_config_defaults(&c->cfg);
    snprintf(c->cfg.run_dir, sizeof c->cfg.run_dir, "%s", dir_);
    c->cfg.run_hang_timeout = c->cfg.watchdog_setup = c->cfg.watchdog_save = 0.5;
    c->cfg.watchdog_factor = 20;
    c->job = mt_job_alone(2);
    c->ending = (struct mt_ending){.cfg = &c->cfg, .job = &c->job};
    mt_control_block_signals();
    mt_ending_begin(&c->ending);
    MT_ASSERT(mt_nodes_open(&c->nodes, &c->job, &e) == MT_OK);
    MT_ASSERT(mt_watchdog_open(&c->w, &c->ending, &c->nodes, &e) == MT_OK);
}
static void pause_for(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)(1e9 * (s - (double)(time_t)s))}, NULL);
}
static struct child c_;
/* What a process comes to that does this: its exit code, or 128 + the signal that ended it. */
static int ends(void (*run)(struct child *))
{
    int status = 0;
    fflush(stdout);
    pid_t id = fork();
    if (id == 0) {
        child_open(&c_);
        run(&c_);
        mt_watchdog_close(c_.w);
        mt_nodes_close(&c_.nodes);
        _exit(0);
    }
    MT_ASSERT(waitpid(id, &status, 0) == id);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
/* Whether RUN/exit.json has a text. */
static bool told(const char *text)
{
    char path[64], line[2048] = "";
    snprintf(path, sizeof path, "%s/exit.json", dir_);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    (void)!fgets(line, sizeof line, f);
    fclose(f);
    return strstr(line, text);
}

static void ends_in_time(struct child *c)
{
    mt_watchdog_enter(c->w, MT_PHASE_STEP, 1);
}
TEST(a_process_in_time_ends_by_itself)
{
    CHECK_INT(ends(ends_in_time), 0);
    CHECK(!told("code"));
}

static void hangs_in_setup(struct child *c)
{
    (void)c;
    pause_for(60);
}
static void hangs_in_a_save(struct child *c)
{
    mt_watchdog_enter(c->w, MT_PHASE_SAVE, 7);
    pause_for(60);
}
TEST(a_late_phase_ends_the_job)
{
    CHECK_INT(ends(hangs_in_setup), MT_HANG);
    CHECK(told("{\"code\":9,\"name\":\"HANG\",\"message\":\"no progress: set-up is not over after 0."));
    CHECK_INT(ends(hangs_in_a_save), MT_HANG);
    CHECK(told("no progress: a checkpoint (step 7) is not over after 0."));
    CHECK(told("\"job\":null}") || getenv("SLURM_JOB_ID"));
}

/* A step of 0.3 s has been seen: one of 1.5 s, thrice the floor, is no hang. */
static void learns(struct child *c)
{
    mt_watchdog_enter(c->w, MT_PHASE_STEP, 1);
    pause_for(0.3);
    mt_watchdog_enter(c->w, MT_PHASE_STEP, 2);
    pause_for(1.5);
    mt_watchdog_enter(c->w, MT_PHASE_SAVE, 2);
    if (!(mt_watchdog_longest(c->w, MT_PHASE_STEP) >= 1.5)) _exit(3);
    if (!(mt_watchdog_longest(c->w, MT_PHASE_SAVE) < 1.5)) _exit(4);
    if (mt_watchdog_longest(c->w, MT_PHASE_VALIDATION) > 0) _exit(5);
    pause_for(0.2);
    if (!(mt_watchdog_longest(c->w, MT_PHASE_SAVE) >= 0.2)) _exit(6); /* while it lasts */
}
static void is_not_watched(struct child *c)
{
    c->cfg.run_hang_timeout = 0;
    mt_watchdog_enter(c->w, MT_PHASE_STEP, 1);
    pause_for(1.5);
}
TEST(deadlines_learn_and_can_be_left_out)
{
    CHECK_INT(ends(learns), 0);
    CHECK_INT(ends(is_not_watched), 0);
}

static void is_asked(struct child *c)
{
    mt_watchdog_enter(c->w, MT_PHASE_FIRST_STEP, 1);
    if (mt_watchdog_stop(c->w)) _exit(3);
    kill(getpid(), SIGTERM);
    kill(getpid(), SIGINT);
    while (!mt_watchdog_stop(c->w)) pause_for(0.01);
    kill(getpid(), SIGTERM); /* a second of these changes nothing */
    pause_for(0.5);
}
static void is_asked_twice(struct child *c)
{
    mt_watchdog_enter(c->w, MT_PHASE_FIRST_STEP, 1);
    kill(getpid(), SIGINT);
    while (!mt_watchdog_stop(c->w)) pause_for(0.01);
    kill(getpid(), SIGINT);
    pause_for(60);
}
TEST(signals_ask_and_a_second_interrupt_ends_at_once)
{
    CHECK_INT(ends(is_asked), 0);
    CHECK_INT(ends(is_asked_twice), 128 + SIGINT);
    CHECK(told("{\"code\":130,\"name\":\"INTERRUPTED\""));
}

int main(void)
{
    char command[80];
    MT_ASSERT(mkdtemp(dir_));
    RUN(a_process_in_time_ends_by_itself);
    RUN(a_late_phase_ends_the_job);
    RUN(deadlines_learn_and_can_be_left_out);
    RUN(signals_ask_and_a_second_interrupt_ends_at_once);
    snprintf(command, sizeof command, "rm -r %s", dir_);
    CHECK(system(command) == 0);
    return DONE();
}
