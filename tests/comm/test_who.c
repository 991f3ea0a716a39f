/* Ranks as text. */
#include "check.h"
#include "comm/job.h"
#include "comm/who.h"

static const char *text_of(const int *ranks, int n)
{
    static struct mt_who w;
    w = mt_who_none();
    for (int i = 0; i < n; i++) mt_who_add(&w, ranks[i]);
    CHECK_INT(w.n, n);
    return mt_who_text(&w);
}
#define TEXT_OF(...) text_of((const int[]){__VA_ARGS__}, sizeof(int[]){__VA_ARGS__} / (int)sizeof(int))

TEST(runs)
{
    CHECK_STR(text_of(NULL, 0), "");
    CHECK_STR(TEXT_OF(0), "0");
    CHECK_STR(TEXT_OF(7), "7");
    CHECK_STR(TEXT_OF(0, 1, 2, 3, 8), "0-3, 8");
    CHECK_STR(TEXT_OF(0, 2, 4, 5), "0, 2, 4-5");
    CHECK_STR(TEXT_OF(1534, 1535), "1534-1535");
}
TEST(what_does_not_fit)
{
    struct mt_who w = mt_who_none();
    for (int i = 0; i < 100000; i += 2) mt_who_add(&w, i);
    const char *text = mt_who_text(&w);
    CHECK_INT(w.n, 50000);
    CHECK(strlen(text) < sizeof w.text && !strncmp(text, "0, 2, 4, ", 9));
    CHECK_STR(text + strlen(text) - 5, ", ...");
    CHECK(!strstr(text, "..., "));
}
TEST(alone)
{
    struct mt_job j = mt_job_alone(4);
    struct mt_who w = mt_job_who(&j, false);
    CHECK_INT(w.n, 0);
    w = mt_job_who(&j, true);
    CHECK_STR(mt_who_text(&w), "0");
}

int main(void)
{
    RUN(runs);
    RUN(what_does_not_fit);
    RUN(alone);
    return DONE();
}
