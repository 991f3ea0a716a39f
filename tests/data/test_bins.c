#include "data/bins.h"
#include "data/writer.h"
#include "files.h"

enum { DOCUMENTS = 3000 };

static int32_t lengths[DOCUMENTS];
static mt_index x;

/* Lengths from 0 to `most`, skewed to short ones, from a linear congruential sequence. */
static void open_documents(uint64_t seed, int32_t most)
{
    static int32_t zeros[1 << 16];
    mt_index_writer *w;
    mt_err e = {0};
    CHECK_INT(mt_index_writer_open(&w, in_folder("d"), 256, &e), MT_OK);
    for (int d = 0; d < DOCUMENTS; d++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double u = (double)(seed >> 11) / 9007199254740992.0;
        lengths[d] = (int32_t)(u * u * most);
        CHECK_INT(mt_index_writer_tokens(w, zeros, lengths[d], &e), MT_OK);
        CHECK_INT(mt_index_writer_end_document(w, &e), MT_OK);
    }
    CHECK_INT(mt_index_writer_close(w, &e), MT_OK);
    CHECK_INT(mt_index_open(&x, in_folder("d"), &e), MT_OK);
}

static int descending(const void *a, const void *b)
{
    int32_t p, q;
    memcpy(&p, a, 4);
    memcpy(&q, b, 4);
    return (q > p) - (q < p);
}

/* Bins that first-fit and best-fit by plain search need for the same pieces, the latter longest first. */
static void plain_search(int32_t T, int64_t *first_fit, int64_t *best_fit)
{
    static int32_t piece[40000], room[2][40000];
    int64_t n = 0, bins[2] = {0};
    for (int d = 0; d < DOCUMENTS; d++)
        for (int32_t at = 0; at < lengths[d]; at += T) piece[n++] = lengths[d] - at < T ? lengths[d] - at : T;
    for (int best = 0; best < 2; best++) {
        if (best) qsort(piece, (size_t)n, 4, descending);
        for (int64_t p = 0; p < n; p++) {
            int64_t to = -1;
            for (int64_t b = 0; b < bins[best] && !(to >= 0 && !best); b++)
                if (room[best][b] >= piece[p] && (to < 0 || room[best][b] < room[best][to])) to = b;
            if (to < 0) room[best][to = bins[best]++] = T;
            room[best][to] -= piece[p];
        }
    }
    *first_fit = bins[0];
    *best_fit = bins[1];
}

static void check_packing(uint64_t seed, int32_t most, int64_t T)
{
    static unsigned char covered[1 << 24];
    mt_bins b;
    mt_err e = {0};
    open_documents(seed, most);
    CHECK_INT(mt_bins_write(&x, in_folder("d"), T, &e), MT_OK);
    CHECK_INT(mt_bins_open(&b, &x, in_folder("d"), T, &e), MT_OK);
    CHECK(x.n_tokens <= (int64_t)sizeof covered);
    memset(covered, 0, (size_t)x.n_tokens);
    int64_t crossing = 0, lost = 0;
    for (int64_t p = 0; p < b.n_pieces; p++) {
        int64_t d = mt_index_document_at(&x, b.start[p]);
        crossing += b.start[p] + b.length[p] > mt_index_document_start(&x, d + 1);
        for (int64_t i = 0; i < b.length[p]; i++) covered[b.start[p] + i]++;
    }
    for (int64_t i = 0; i < x.n_tokens; i++) lost += covered[i] != 1; /* lost, or twice */
    CHECK_INT(crossing, 0);
    CHECK_INT(lost, 0);
    int64_t first_fit, best_fit, floor_ = (x.n_tokens + T - 1) / T;
    plain_search((int32_t)T, &first_fit, &best_fit);
    CHECK_INT(b.n_bins, best_fit);
    CHECK(b.n_bins <= first_fit && b.n_bins >= floor_);
    mt_bins_close(&b);
    mt_index_close(&x);
}

TEST(no_token_is_lost_and_waste_is_bounded)
{
    check_packing(1, 700, 256);
    check_packing(2, 300, 512);
    check_packing(3, 4000, 4096);
    check_packing(7, 9000, 4095);
    check_packing(4, 200, 65);
    check_packing(5, 4, 1);
    check_packing(6, 40, 20000);
}

TEST(the_same_twice)
{
    static char one[1 << 20], two[1 << 20];
    mt_err e = {0};
    open_documents(9, 500);
    CHECK_INT(mt_bins_write(&x, in_folder("one"), 300, &e), MT_OK);
    CHECK_INT(mt_bins_write(&x, in_folder("two"), 300, &e), MT_OK);
    int64_t n = get_file(in_folder("one.pack"), one, sizeof one);
    CHECK_INT(get_file(in_folder("two.pack"), two, sizeof two), n);
    CHECK(n > 1000 && !memcmp(one, two, (size_t)n));
    mt_index_close(&x);
}

static mt_status parse(unsigned char *bytes, int64_t n, int64_t T, mt_err *e)
{
    static char path[] = "d.pack";
    mt_bins b = {.path = path, .file = {.at = bytes, .bytes = n}};
    *e = (mt_err){0};
    return mt_bins_parse(&b, &x, T, e);
}

TEST(damaged_packing_files)
{
    static _Alignas(8) unsigned char sound[1 << 20], hurt[1 << 20];
    mt_err e = {0};
    open_documents(11, 100);
    CHECK_INT(mt_bins_write(&x, in_folder("d"), 64, &e), MT_OK);
    int64_t n = get_file(in_folder("d.pack"), sound, sizeof sound), bins, pieces;
    memcpy(&bins, sound + 24, 8);
    memcpy(&pieces, sound + 32, 8);
    CHECK_INT(parse(sound, n, 64, &e), MT_OK);
    CHECK_INT(parse(sound, n, 0, &e), MT_OK);
    CHECK_INT(parse(sound, n, 128, &e), MT_DATA);
    CHECK(strstr(e.msg, "packed for samples of 64 tokens, train.seq_len is 128"));
    for (int64_t cut = 0; cut < n; cut += cut < 100 ? 1 : 997) CHECK_INT(parse(sound, cut, 64, &e), MT_DATA);
    const struct {
        int64_t at, value;
        const char *message;
    } wrong[] = {{0, 7, "does not begin with MTPACK"},
                 {8, 2, "format version 2"},
                 {16, 0, "bins of 0 tokens"},
                 {24, INT64_MAX, "damaged"},
                 {32, INT64_MAX / 12, "damaged"},
                 {24, -1, "damaged"},
                 {40, 5, "pack it again"},
                 {48, 5, "pack it again"},
                 {56, 1, "bins cover pieces"},
                 {56 + 8, 0, "bin 0: pieces 0 to 0"},
                 {56 + 8, INT64_MAX, "bin 0: pieces"},
                 {56 + 8 * (bins + 1), -1, "piece 0:"},
                 {56 + 8 * (bins + 1), INT64_MAX, "piece 0:"},
                 {56 + 8 * (bins + 1) + 8 * pieces, 0, "piece 0: 0 tokens"},
                 {56 + 8 * (bins + 1) + 8 * pieces, INT64_C(0x100000041), "room for 64"}};
    for (int i = 0; i < 15; i++) {
        memcpy(hurt, sound, (size_t)n);
        memcpy(hurt + wrong[i].at, &wrong[i].value, 8);
        CHECK_INT(parse(hurt, n, 64, &e), MT_DATA);
        if (!CHECK(strstr(e.msg, wrong[i].message) && strstr(e.msg, "d.pack")))
            printf("  case %d: %s\n", i, e.msg);
    }
    mt_bins b;
    unlink(in_folder("d.pack"));
    e = (mt_err){0};
    CHECK_INT(mt_bins_open(&b, &x, in_folder("d"), 64, &e), MT_DATA);
    CHECK(strstr(e.msg, "--pack-length"));
    CHECK_INT(mt_bins_write(&x, in_folder("d"), 0, &(mt_err){0}), MT_CONFIG);
    CHECK_INT(mt_bins_write(&x, in_folder("d"), MT_BINS_MAX_LENGTH + 1, &(mt_err){0}), MT_CONFIG);
    mt_index_close(&x);
}

int main(void)
{
    RUN(no_token_is_lost_and_waste_is_bounded);
    RUN(the_same_twice);
    RUN(damaged_packing_files);
    remove_temporary_folder();
    return DONE();
}
