/* test: variants=release,asan,tsan */
/* Texts grow, files are read whole or refused; of tasks that fail, the first one's message is kept. */
#include "check.h"

#include <unistd.h>

#include "base/parallel.h"
#include "base/text.h"

TEST(files_are_read_whole_or_refused)
{
    char path[] = "/tmp/moetitan-text-XXXXXX";
    struct mt_text t = {0};
    mt_err e = {0};
    static char big[100000];
    memset(big, 'x', sizeof big);
    int fd = mkstemp(path);
    if (!CHECK(fd >= 0)) return;
    CHECK_INT(mt_text_read(&t, path, 10, MT_DATA, &e), MT_OK);
    CHECK(t.bytes == 0 && t.at && t.at[0] == 0);
    CHECK_INT(write(fd, big, sizeof big), sizeof big);
    CHECK_INT(mt_text_append(&t, "ab", 2, &e), MT_OK);
    CHECK_INT(mt_text_read(&t, path, sizeof big, MT_DATA, &e), MT_OK);
    CHECK(t.bytes == 2 + sizeof big && !memcmp(t.at, "abxx", 4) && t.at[t.bytes] == 0);
    CHECK_INT(mt_text_read(&t, path, sizeof big - 1, MT_CONFIG, &e), MT_CONFIG);
    CHECK(strstr(e.msg, "has more than 99999 bytes"));
    e = (mt_err){0};
    CHECK_INT(mt_text_read(&t, "/no/such/file", 10, MT_DATA, &e), MT_DATA);
    CHECK(strstr(e.msg, "cannot open '/no/such/file'"));
    e = (mt_err){0};
    CHECK_INT(mt_text_read(&t, "/", 10, MT_DATA, &e), MT_IO);
    mt_text_release(&t);
    close(fd);
    unlink(path);
}

struct work {
    struct mt_tasks tasks;
    int fails_from; /* each task from this one on */
    _Atomic int done[1000];
};
static void *work(void *arg)
{
    struct work *w = arg;
    for (int64_t i; mt_tasks_next(&w->tasks, &i);) {
        mt_err e = {0};
        w->done[i]++;
        if (i < w->fails_from) continue;
        mt_err_set(&e, MT_DATA, "task %d", (int)i);
        mt_tasks_fail(&w->tasks, i, &e);
    }
    return NULL;
}
TEST(the_first_failure_is_kept)
{
    static struct work w;
    for (int from = 0; from <= 1000; from += 250) {
        mt_err e = {0};
        char want[20];
        memset(&w, 0, sizeof w);
        w.fails_from = from;
        mt_tasks_open(&w.tasks, 1000, &e);
        CHECK_INT(mt_tasks_run(&w.tasks, work, &w), from < 1000 ? MT_DATA : MT_OK);
        snprintf(want, sizeof want, "task %d", from);
        CHECK_STR(e.msg, from < 1000 ? want : "");
        for (int i = 0; i < 1000; i++) CHECK_INT(w.done[i], 1);
    }
    mt_tasks_open(&w.tasks, 0, NULL);
    CHECK_INT(mt_tasks_run(&w.tasks, work, &w), MT_OK);
}

int main(void)
{
    RUN(files_are_read_whole_or_refused);
    RUN(the_first_failure_is_kept);
    return DONE();
}
