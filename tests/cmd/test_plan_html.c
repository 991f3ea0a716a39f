/* The page of `moetitan plan --html`: well-formed, complete in itself, its numbers those of --json, bounded, always the same. */
#include "cmd/html.h"
#include "cmd/plan_picture.h"
#include "command.h"
#include "train/forecast.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <math.h>

enum { MOST_PAGE = 4 << 20 };
static char page[MOST_PAGE], other[MOST_PAGE], text[1 << 16];

#define TINY                                                                                    \
    "model:\n  vocab: 64\n  dim: 64\n  heads: 2\n  kv_heads: 1\n  head_dim: 32\n  experts: 8\n" \
    "  top_k: 2\n  expert_ffn: 32\n  shared_ffn: 32\n  layers: %d\n"                            \
    "mesh:\n  ep: 4\n"                                                                          \
    "train:\n  seq_len: 64\n  global_batch: 16\n  dtype: bf16\n"                                \
    "data:\n  train: no/such/file\n"

/* The name of the configuration must be escaped. */
static const char *config(int layers)
{
    char yaml[1024];
    int n = snprintf(yaml, sizeof yaml, TINY, layers);
    put_file(in_folder("a&b<c>.yaml"), yaml, n);
    return in_folder("a&b<c>.yaml");
}

/* Plans with `words` behind the configuration; what it prints goes nowhere. */
static mt_status plan(int layers, const char *words)
{
    static char line[2048];
    snprintf(line, sizeof line, "plan %s %s", config(layers), words);
    return command_run(mt_cmd_plan, line, "/dev/null");
}
static int64_t read_page(const char *name, char *out)
{
    return command_text(in_folder(name), out, MOST_PAGE);
}
/* Writes page.html and report.json, and has the page in `page`. */
static int64_t make(int layers, const char *words, mt_status want)
{
    char all[1024], html[512];
    snprintf(html, sizeof html, "%s", in_folder("page.html"));
    snprintf(all, sizeof all, "%s --html %s --json %s", words, html, in_folder("report.json"));
    if (!CHECK_INT(plan(layers, all), want)) printf("  %s\n", e.msg);
    return read_page("page.html", page);
}

/* ---- XML ---- */
static const char *name_end(const char *s)
{
    while (isalnum((unsigned char)*s) || *s == '-' || *s == ':') s++;
    return s;
}
/* Text up to `stop`; NULL: it has what must be escaped, or an entity that XML does not know. */
static const char *text_end(const char *s, char stop)
{
    static const char *const known[] = {"&lt;", "&gt;", "&amp;", "&quot;"};
    for (; *s && *s != stop; s++) {
        bool good = *s != '&' && *s != '<';
        for (int i = 0; i < 4 && *s == '&'; i++) good = good || !strncmp(s, known[i], strlen(known[i]));
        if (!good || ((unsigned char)*s < ' ' && *s != '\n')) return NULL;
    }
    return s;
}
/* Behind the attributes of a tag. */
static const char *attributes_end(const char *s)
{
    while (s && *s == ' ') {
        const char *name = s + 1;
        s = name_end(name);
        if (s == name || s[0] != '=' || s[1] != '"') return NULL;
        s = text_end(s + 2, '"');
        if (s && *s == '"') s++;
    }
    return s;
}
/* Where one element with all in it is over; NULL: it is not well-formed. */
static const char *element_end(const char *s, int depth)
{
    const char *name = s + 1, *end = name_end(name);
    if (*s != '<' || end == name || depth > 20) return NULL;
    s = attributes_end(end);
    if (s && !strncmp(s, "/>", 2)) return s + 2;
    if (!s || *s++ != '>') return NULL;
    while (s && *s && strncmp(s, "</", 2) != 0) s = *s == '<' ? element_end(s, depth + 1) : text_end(s, '<');
    if (!s || !*s || strncmp(s + 2, name, (size_t)(end - name)) != 0 || s[2 + (end - name)] != '>')
        return NULL;
    return s + 3 + (end - name);
}

static void check_well_formed(const char *s)
{
    static const char doctype[] = "<!DOCTYPE html>\n";
    if (!CHECK(!strncmp(s, doctype, sizeof doctype - 1))) return;
    const char *end = element_end(s + sizeof doctype - 1, 0);
    CHECK(end && !strcmp(end, "\n"));
}
static void check_alone(const char *s)
{
    static const char *const never[] = {"http:", "https:", "src=",  "@import", "url(",    "<script", "<link",
                                        "href",  "<img",   "data:", "<object", "<iframe", "nan",     "inf\""};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (!CHECK(!strstr(s, never[i]))) printf("  the page has %s\n", never[i]);
}

TEST(escaped)
{
    static const char bad[] = "a<b>&\"c\" \xc2\xb5 \xff\x01\xc0\x80\xed\xa0\x80 \xe2\x82";
    FILE *f = fopen(in_folder("text"), "w");
    mt_html_text(f, bad);
    fclose(f);
    read_page("text", page);
    CHECK_STR(page, "a&lt;b&gt;&amp;&quot;c&quot; \xc2\xb5 ??????? ??");
    CHECK_CLOSE(mt_tick_step(87, 8), 20, 1e-12);
    CHECK_CLOSE(mt_tick_step(0.012, 8), 0.002, 1e-12);
    CHECK_CLOSE(mt_tick_step(0, 8), 1, 0);
    CHECK(!element_end("<a><b></a></b>", 0) && !element_end("<a b=c/>", 0) && !element_end("<a>&x;</a>", 0) &&
          !element_end("<a>", 0) && element_end("<a b=\"c\"><d/>e</a>", 0));
}

/* ---- numbers ---- */
static const char *value_of(const char *key)
{
    char tag[256];
    snprintf(tag, sizeof tag, "data-key=\"%s\" value=\"", key);
    const char *s = strstr(page, tag);
    if (!CHECK(s)) printf("  not on the page: %s\n", key);
    return s ? s + strlen(tag) : NULL;
}
static int compare(const cJSON *x, const char *key)
{
    int n = 0, i = 0;
    char sub[192];
    for (const cJSON *y = x->child; y; y = y->next, i++) {
        if (y->string && !strcmp(y->string, "class")) continue; /* the row's name */
        if (y->string)
            snprintf(sub, sizeof sub, "%s%s%s", key, *key ? "." : "", y->string);
        else
            snprintf(sub, sizeof sub, "%s.%d", key, i);
        n += compare(y, sub);
    }
    if (x->child || !strcmp(key, "config")) return n;
    const char *v = value_of(key);
    if (v && cJSON_IsNumber(x) && !CHECK_CLOSE(strtod(v, NULL), x->valuedouble, 1e-15 * fabs(x->valuedouble)))
        printf("  %s\n", key);
    if (v && cJSON_IsString(x)) CHECK(!strncmp(v, x->valuestring, strlen(x->valuestring)));
    if (v && cJSON_IsBool(x)) CHECK(!strncmp(v, cJSON_IsTrue(x) ? "true\"" : "false\"", 5));
    return n + 1;
}

TEST(the_page)
{
    make(3, "--ranks 8 --price 2 --documents 20:0.5 --trace-rank 5", MT_OK);
    check_well_formed(page);
    check_alone(page);
    CHECK(get_file(in_folder("report.json"), text, sizeof text - 1) > 0);
    cJSON *o = cJSON_Parse(text);
    CHECK(o && compare(o, "") > 80);
    cJSON_Delete(o);
    CHECK(strstr(page, "a&amp;b&lt;c&gt;.yaml") && !strstr(page, "b<c>"));
    static const char *const parts[] = {"rank 5",
                                        "The step</h3>",
                                        "Forward, from",
                                        "Backward, from",
                                        "the optimizer</h3>",
                                        "Device</h3>",
                                        ">arena ",
                                        "f32 masters\n",
                                        "works ",
                                        "ep, ",
                                        "gemm.efficiency",
                                        "SonicMoE",
                                        "the bound",
                                        "prefers-color-scheme:dark"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!CHECK(strstr(page, parts[i]))) printf("  not on the page: %s\n", parts[i]);
    CHECK(!strstr(page, "+20%</th>"));
}

TEST(what_does_not_fit_and_what_is_assumed)
{
    make(2, "--ranks 4 --assumptions cluster.size.device=1e6 cluster.size.device_other=9e5", MT_NOFIT);
    check_well_formed(page);
    CHECK(strstr(page, "Does not fit: ") && strstr(page, "+20%</th>") && strstr(page, ">limit "));
    CHECK(strstr(page, "checkpoint +25.0% -16.7%</td>") && strstr(page, "fits if ") == NULL);
    CHECK_INT(plan(2, "--html /no/such/folder/page.html"), MT_IO);
    CHECK(strstr(e.msg, "/no/such/folder/page.html"));
    CHECK_INT(plan(2, "--trace-rank 16 --html /dev/null"), MT_CONFIG);
}

TEST(always_the_same_and_bounded)
{
    int64_t n = make(2, "--ranks 8", MT_OK), deep;
    memcpy(other, page, sizeof page);
    CHECK_INT(make(2, "--ranks 8", MT_OK), n);
    CHECK(!strcmp(page, other));
    deep = make(32, "--ranks 4", MT_OK); /* four micro-batches */
    check_well_formed(page);
    CHECK(n > 20000 && deep < 1000000);
    if (deep >= 1000000) printf("  %lld bytes\n", (long long)deep);
}

/* ---- pictures of a real step ---- */
/* Columns' worth of a window in which a stream is at work, or its transfers wait for other ranks. */
static double at_work(const struct mt_timeline *t, int s, const struct mt_window *w)
{
    double sum = 0;
    for (int64_t i = 0; i < t->q->n; i++) {
        int64_t from = t->begin[i] > w->from ? t->begin[i] : w->from,
                to = t->end[i] < w->to ? t->end[i] : w->to;
        if (t->q->rec[i].stream == s && t->q->rec[i].op != MT_OP_wait && to > from)
            sum += (double)(to - from);
    }
    return sum * MT_COLUMNS / (double)(w->to - w->from);
}
static void check_runs(const struct mt_timeline *t)
{
    static struct mt_run run[MT_COLUMNS];
    struct mt_window w[MT_MOST_WINDOWS];
    int n, windows = mt_picture_windows(t, w);
    double filled;
    CHECK_INT(windows, 4);
    for (int i = 0; i < windows; i++)
        for (int s = 0; s < MT_N_STREAMS; s++) {
            CHECK_INT(mt_picture_stream(t, s, &w[i], run, &n, &e), MT_OK);
            filled = 0;
            for (int k = 0; k < n; k++) filled += run[k].to - run[k].from;
            if (s != MT_COMPUTE) CHECK(fabs(filled - at_work(t, s, &w[i])) < 0.51);
            for (int k = 0; k < n; k++)
                CHECK(run[k].from < run[k].to && run[k].from >= (k ? run[k - 1].to : 0) &&
                      run[k].to <= MT_COLUMNS && run[k].ink < 2 * MT_N_INKS &&
                      t->q->rec[run[k].longest].stream == s);
        }
}
/* What is held at a time is never more than the layout has room for. */
static void check_held(const struct mt_timeline *t, const struct mt_plan_info *plan)
{
    static struct mt_filling m;
    for (int a = 0; a < MT_N_ARENAS; a++) {
        CHECK_INT(mt_picture_memory(t, (enum mt_arena)a, &m, &e), MT_OK);
        int64_t sum = 0;
        for (int c = 0; c < MT_N_ROW_CLASSES; c++) sum += m.held[m.fullest][c];
        CHECK_INT(sum, m.most);
        CHECK(m.most > 0 && m.most <= plan->peak[a] && 2 * m.most > plan->peak[a]);
    }
}

TEST(pictures_of_a_step)
{
    static mt_config cfg;
    static struct mt_cluster c;
    const struct mt_target *target;
    struct mt_forecast f;
    struct mt_forecast_options o = {.world = 8, .seed = 1};
    CHECK_INT(mt_config_load(&cfg, config(4), 0, NULL, &e), MT_OK);
    cfg.mesh_ranks_per_node = 4;
    CHECK_INT(mt_cluster_load(&c, "configs/clusters/jupiter.yaml", &e), MT_OK);
    CHECK_INT(mt_forecast_target(&c, &target, &e), MT_OK);
    CHECK_INT(mt_forecast_open(&f, &cfg, &c, target, &o, &e), MT_OK);
    for (int rank = 0; rank < 8; rank += 7) {
        struct mt_forecast_line l;
        CHECK_INT(mt_forecast_line_open(&l, &f, &c, MT_ALG_DIRECT, rank, &e), MT_OK);
        check_runs(&l.line);
        check_held(&l.line, &f.s.plan);
        mt_forecast_line_close(&l);
    }
    mt_forecast_close(&f);
}

/* ---- pictures of what is known ---- */
/* Eight hundred and forty nanoseconds, so that a column is one. */
static struct mt_rec rec[8];
static struct mt_rec_arg arg[8];
static int64_t begin[8], ready[8], end[8];
static struct mt_timeline known(struct mt_recording *q, int64_t n)
{
    *q = (struct mt_recording){.rec = rec, .arg = arg, .n = n, .n_args = n};
    return (struct mt_timeline){.q = q, .begin = begin, .ready = ready, .end = end, .length = MT_COLUMNS};
}
static void note(int i, int op, int stream, int64_t seq, int64_t from, int64_t moved, int64_t to)
{
    rec[i] = (struct mt_rec){.op = (uint16_t)op, .stream = (uint8_t)stream, .seq = seq, .arg = (uint32_t)i};
    begin[i] = from, ready[i] = moved, end[i] = to;
}
static void run_is(const struct mt_run *r, int from, int to, int ink, int64_t operations, int64_t longest)
{
    CHECK_INT(r->from, from);
    CHECK_INT(r->to, to);
    CHECK_INT(r->ink, ink);
    CHECK_INT(r->operations, operations);
    CHECK_INT(r->longest, longest);
}

TEST(runs_of_a_known_step)
{
    struct mt_recording q;
    static struct mt_run run[MT_COLUMNS];
    struct mt_timeline t = known(&q, 6);
    struct mt_window all = {0, MT_COLUMNS, "all"}, part = {100, 100 + 2 * MT_COLUMNS, "part"};
    int n, weights = MT_INK_OF_STANDS + MT_STAND_WEIGHTS, products = mt_ink_of_work(MT_WORK_GEMM);
    note(0, MT_OP_gather_cut, MT_GATHER, 1, 0, 50, 300); /* stands still for 50 */
    note(1, MT_OP_linear_fwd, MT_COMPUTE, 1, 0, 0, 100);
    note(2, MT_OP_linear_bwdx, MT_COMPUTE, 2, 100, 100, 220);
    note(3, MT_OP_wait, MT_COMPUTE, 3, 220, 220, 300);
    rec[3].ev = (mt_event){MT_GATHER, 1};
    note(4, MT_OP_attention_fwd, MT_COMPUTE, 4, 300, 300, 400);
    note(5, MT_OP_adamw, MT_COMPUTE, 5, 500, 500, 840);
    CHECK_INT(mt_picture_stream(&t, MT_GATHER, &all, run, &n, &e), MT_OK);
    if (CHECK_INT(n, 2)) {
        run_is(&run[0], 0, 50, weights + MT_N_INKS, 1, 0);
        run_is(&run[1], 50, 300, weights, 1, 0);
    }
    CHECK_INT(mt_picture_stream(&t, MT_COMPUTE, &all, run, &n, &e), MT_OK);
    if (CHECK_INT(n, 4)) {
        run_is(&run[0], 0, 220, products, 2, 2);
        run_is(&run[1], 220, 300, weights + MT_N_INKS, 1, 3);
        run_is(&run[2], 300, 400, mt_ink_of_work(MT_WORK_ATTENTION), 1, 4);
        run_is(&run[3], 500, 840, mt_ink_of_work(MT_WORK_STREAM), 1, 5);
    }
    CHECK_INT(mt_picture_stream(&t, MT_COMPUTE, &part, run, &n, &e), MT_OK); /* two nanoseconds a column */
    if (CHECK_INT(n, 4)) run_is(&run[0], 0, 60, products, 1, 2);
    CHECK_INT(mt_picture_windows(&t, (struct mt_window[MT_MOST_WINDOWS]){{0}}), 1);
}

/* The compute stream waits for a copy, which waits for a gather, which waits for other ranks. */
TEST(waits_behind_waits)
{
    struct mt_recording q;
    static struct mt_run run[MT_COLUMNS];
    struct mt_timeline t = known(&q, 5);
    struct mt_window all = {0, MT_COLUMNS, "all"};
    int n, faint = MT_N_INKS + MT_INK_OF_STANDS;
    note(0, MT_OP_gather_cut, MT_GATHER, 1, 0, 50, 300);
    note(1, MT_OP_wait, MT_D2H, 1, 0, 0, 300);
    rec[1].ev = (mt_event){MT_GATHER, 1};
    note(2, MT_OP_copy_d2h, MT_D2H, 2, 300, 300, 340);
    note(3, MT_OP_linear_fwd, MT_COMPUTE, 1, 0, 0, 20);
    note(4, MT_OP_wait, MT_COMPUTE, 2, 20, 20, 340);
    rec[4].ev = (mt_event){MT_D2H, 2};
    CHECK_INT(mt_picture_stream(&t, MT_COMPUTE, &all, run, &n, &e), MT_OK);
    if (!CHECK_INT(n, 4)) return;
    run_is(&run[0], 0, 20, mt_ink_of_work(MT_WORK_GEMM), 1, 3);
    run_is(&run[1], 20, 50, faint + MT_STAND_LATE, 1, 4);
    run_is(&run[2], 50, 300, faint + MT_STAND_WEIGHTS, 1, 4);
    run_is(&run[3], 300, 340, faint + MT_STAND_COPIES, 1, 4);
}

/* Two rows that follow each other, one beside them, one that lasts. */
TEST(memory_of_a_known_step)
{
    static struct mt_filling m;
    struct mt_recording q;
    struct mt_ledger g;
    struct mt_timeline t = known(&q, 5);
    static const uint8_t dir[] = {MT_OUT, MT_IN, MT_OUT, MT_OUT, MT_IN};
    static const int stream[] = {MT_COMPUTE, MT_GATHER, MT_COMPUTE, MT_COMPUTE, MT_COMPUTE};
    static const int64_t from[] = {10, 20, 200, 250, 300}, to[] = {20, 200, 250, 300, 400},
                         seq[] = {1, 1, 2, 3, 4};
    mt_ledger_init(&g, 1);
    mt_row_add(&g, MT_DEVICE_ARENA, MT_ROW_WEIGHT, 1000, "lasts");
    int32_t a = mt_row_add(&g, MT_DEVICE_ARENA, MT_ROW_GATHERED, 500, "a"),
            b = mt_row_add(&g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, 700, "b"),
            c = mt_row_add(&g, MT_DEVICE_ARENA, MT_ROW_STAGING, 20, "c");
    const int32_t row[] = {a, a, b, c, b};
    t.ledger = &g;
    for (int i = 0; i < 5; i++) {
        note(i, MT_OP_fill0, stream[i], seq[i], from[i], from[i], to[i]);
        rec[i].n_args = 1;
        arg[i] = (struct mt_rec_arg){.row = row[i], .dir = dir[i], .whole = true};
    }
    CHECK_INT(mt_picture_memory(&t, MT_DEVICE_ARENA, &m, &e), MT_OK);
    CHECK_INT(m.most, 1720);
    CHECK_INT(m.at, 250);
    CHECK_INT(m.fullest, 250);
    for (int i = 0; i < MT_COLUMNS; i++) {
        CHECK_INT(m.held[i][MT_ROW_WEIGHT], 1000);
        CHECK_INT(m.held[i][MT_ROW_GATHERED], i >= 10 && i < 200 ? 500 : 0);
        CHECK_INT(m.held[i][MT_ROW_SCRATCH], i >= 200 && i < 400 ? 700 : 0);
        CHECK_INT(m.held[i][MT_ROW_STAGING], i >= 250 && i < 300 ? 20 : 0);
    }
    CHECK_INT(mt_picture_memory(&t, MT_HOST_ARENA, &m, &e), MT_OK);
    CHECK_INT(m.most, 0);
    mt_ledger_release(&g);
}

int main(void)
{
    RUN(escaped);
    RUN(the_page);
    RUN(what_does_not_fit_and_what_is_assumed);
    RUN(always_the_same_and_bounded);
    RUN(pictures_of_a_step);
    RUN(runs_of_a_known_step);
    RUN(waits_behind_waits);
    RUN(memory_of_a_known_step);
    remove_temporary_folder();
    return DONE();
}
