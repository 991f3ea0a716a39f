/* Pictures of numbers: what lies where, gaps, bounds, and that every file is well-formed whatever is drawn. */
#include "cmd/chart.h"
#include "cmd/html.h"
#include "command.h"

#include <math.h>

static char text[1 << 20];

static const char *drawn(const struct mt_chart *c)
{
    FILE *f = fopen(in_folder("chart.svg"), "w");
    mt_chart_draw(f, c);
    fclose(f);
    command_text(in_folder("chart.svg"), text, sizeof text);
    return text;
}
static const char *mapped(const struct mt_map *m)
{
    FILE *f = fopen(in_folder("map.svg"), "w");
    mt_map_draw(f, m);
    fclose(f);
    command_text(in_folder("map.svg"), text, sizeof text);
    return text;
}
static int count(const char *s, const char *what)
{
    int n = 0;
    for (; (s = strstr(s, what)); s += strlen(what)) n++;
    return n;
}
/* Every number of a path, in order. Returns how many. */
static int path_numbers(const char *class_, double *out, int most)
{
    char key[64];
    snprintf(key, sizeof key, "class=\"%s\" d=\"", class_);
    const char *s = strstr(text, key), *end = s ? strchr(s + strlen(key), '"') : NULL;
    int n = 0;
    for (s = s ? s + strlen(key) : NULL; s && s < end && n < most;) {
        char *next;
        double v = strtod(s, &next);
        if (next == s) {
            s++;
            continue;
        }
        out[n++] = v;
        s = next;
    }
    return n;
}
static void check_sound(void)
{
    CHECK(!strstr(text, "nan") && !strstr(text, "inf\"") && !strstr(text, "inf "));
    CHECK_INT(count(text, "<svg"), 1);
    CHECK_INT(count(text, "</svg>"), 1);
    CHECK_INT(count(text, "<title>"), count(text, "</title>"));
}

TEST(a_line)
{
    const double x[] = {0, 10, 20}, y[] = {1, 3, 2};
    const struct mt_series s[] = {{.name = "a<b", .x = x, .y = y, .n = 3}};
    const struct mt_chart c = {.label = "l", .x_text = "step", .y_text = "loss", .series = s, .n = 1};
    double at[6];
    drawn(&c);
    check_sound();
    CHECK(strstr(text, ">a&lt;b</text>") && strstr(text, ">step</text>") && strstr(text, ">loss</text>"));
    if (!CHECK_INT(path_numbers("line l0", at, 6), 6)) return;
    CHECK_CLOSE(at[2] - at[0], at[4] - at[2], 0.11); /* equal steps */
    CHECK(at[3] < at[5] && at[5] < at[1]);           /* the highest is at the top */
    CHECK_CLOSE((at[5] - at[3]) * 2, at[1] - at[3], 0.21);
    CHECK(strstr(text, ">10</text>") && strstr(text, ">20</text>") && strstr(text, ">1.5</text>"));
}

TEST(gaps_marks_and_dots)
{
    const double gap = (double)NAN, x[] = {1, 2, 3, 4, 5}, y[] = {1, 2, gap, 4, 5}, low[] = {0, 1, gap, 3, 4},
                 high[] = {2, 3, gap, 5, 9};
    const char *const tip[] = {"one", "two & more", "three", "four", "five"};
    const struct mt_chart_mark mark[] = {{2, "resume"}, {99, "far"}};
    const struct mt_series s[] = {
        {.x = x, .y = y, .n = 5, .ink = 1},
        {.x = x, .y = y, .n = 5, .low = low, .high = high, .tip = tip, .dots = true, .ink = 2}};
    const struct mt_chart c = {
        .label = "l", .x_text = "", .y_text = "", .series = s, .n = 2, .mark = mark, .n_marks = 2};
    drawn(&c);
    check_sound();
    CHECK_INT(count(text, "<circle"), 4);
    CHECK_INT(count(text, "class=\"line l2\""), 4); /* bars through dots */
    CHECK_INT(count(text, "class=\"event\""), 1);
    CHECK(strstr(text, "two &amp; more") && strstr(text, ">resume<") && !strstr(text, "three") &&
          !strstr(text, "far"));
    const char *d = strstr(text, "class=\"line l1\"");
    CHECK(d && count(d, "M") >= 2); /* it begins anew behind the gap */
}

TEST(names_of_places)
{
    const double x[] = {0, 1, 1}, y[] = {5, 6, 7};
    const char *const names[] = {"full", "none"};
    const struct mt_series s[] = {{.x = x, .y = y, .n = 3, .dots = true}};
    const struct mt_chart c = {.label = "l",
                               .x_text = "k",
                               .y_text = "v",
                               .names = names,
                               .n_names = 2,
                               .series = s,
                               .n = 1,
                               .alone = true};
    drawn(&c);
    check_sound();
    CHECK(strstr(text, ">full</text>") && strstr(text, ">none</text>") && strstr(text, "xmlns=") &&
          strstr(text, "<style>"));
}

TEST(nothing_one_and_equal)
{
    const double x[] = {3, 4}, y[] = {7, 7}, none[] = {(double)NAN, (double)NAN};
    struct mt_series s[] = {{.x = x, .y = y, .n = 0}};
    const struct mt_chart c = {.label = "l", .x_text = "", .y_text = "", .series = s, .n = 1, .zero = true};
    drawn(&c);
    check_sound();
    s[0].n = 1;
    drawn(&c);
    check_sound();
    s[0].n = 2;
    drawn(&c);
    check_sound();
    CHECK(strstr(text, ">7</text>") || strstr(text, ">8</text>") || strstr(text, ">6</text>"));
    s[0].y = none;
    drawn(&c);
    check_sound();
}

/* A million points: a bounded picture that still has the spike. */
TEST(many_points)
{
    enum { N = 1000000 };
    double *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y), *at = malloc(8192 * sizeof *at);
    if (!CHECK(x && y && at)) return;
    for (int i = 0; i < N; i++) x[i] = i, y[i] = i % 2;
    y[777777] = 50;
    const struct mt_series s[] = {{.x = x, .y = y, .n = N}};
    const struct mt_chart c = {.label = "l", .x_text = "", .y_text = "", .series = s, .n = 1};
    drawn(&c);
    check_sound();
    CHECK(strlen(text) < 60000);
    int n = path_numbers("line l0", at, 8192);
    double top = 1e9, top_x = 0;
    for (int i = 0; i + 1 < n; i += 2)
        if (at[i + 1] < top) top = at[i + 1], top_x = at[i];
    CHECK(n > 1000 && top < 40);
    CHECK_CLOSE((top_x - 90) / 820, 0.7728, 0.005); /* 0.01 of room on each side */
    free(x);
    free(y);
    free(at);
}

TEST(maps)
{
    const double cell[] = {1, 0, 3, (double)NAN, 1, 2}, x[] = {10, 20, 30};
    const int row[] = {4, 7};
    const struct mt_map m = {.label = "l",
                             .x_text = "step",
                             .y_text = "layer",
                             .cell = cell,
                             .rows = 2,
                             .columns = 3,
                             .x = x,
                             .row = row,
                             .full = 3};
    mapped(&m);
    check_sound();
    CHECK(strstr(text, ">30</text>") && strstr(text, ">4</text>") && strstr(text, ">7</text>"));
    /* Colour: all that is below 1 one colour, all above another, 1 and what is not known blank. */
    CHECK_INT(count(text, "class=\"dot0\" fill-opacity=\"1.00\" d=\""),
              2); /* the 0 and its place in the scale */
    CHECK_INT(count(text, "class=\"dot4\" fill-opacity=\"1.00\" d=\""), 2);
    CHECK_INT(count(text, "class=\"dot4\" fill-opacity=\"0.50\" d=\""), 2);
}

/* More cells than there is room for: the one that is furthest from balance stays in sight. */
TEST(large_maps)
{
    enum { ROWS = 600, COLUMNS = 4000 };
    double *cell = malloc(sizeof *cell * ROWS * COLUMNS);
    if (!CHECK(cell)) return;
    for (int i = 0; i < ROWS * COLUMNS; i++) cell[i] = 1;
    cell[123 * COLUMNS + 3999] = 9;
    const struct mt_map m = {
        .label = "l", .x_text = "", .y_text = "", .cell = cell, .rows = ROWS, .columns = COLUMNS, .full = 9};
    mapped(&m);
    check_sound();
    CHECK(strlen(text) < 20000);
    CHECK_INT(count(text, "class=\"dot4\" fill-opacity=\"1.00\" d=\""), 2);
    free(cell);
}

int main(void)
{
    RUN(a_line);
    RUN(gaps_marks_and_dots);
    RUN(names_of_places);
    RUN(nothing_one_and_equal);
    RUN(many_points);
    RUN(maps);
    RUN(large_maps);
    remove_temporary_folder();
    return DONE();
}
