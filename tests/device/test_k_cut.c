/* Collectives whose pieces are cut anywhere: what each member has afterwards, for empty and uneven pieces, in any number of
 * parts. */
#include "check.h"
#include "device/cpu/kernels.h"
#include "device/device.h"

enum { MEMBERS = 5, WHOLE = 20011, STRIDE = 13000, UNTOUCHED = 0xee };
static int64_t at[MEMBERS + 1] = {0, 4096, 4096, 4099, 17000, WHOLE};
static const int32_t order[MEMBERS] = {3, 0, 4, 2, 1};
static const struct mt_cut cut = {.n = MEMBERS, .at = at}, mixed = {.n = MEMBERS, .at = at, .of = order};

static unsigned char source[MEMBERS][WHOLE], got[MEMBERS * STRIDE + 64];

static void fill(void)
{
    for (int m = 0; m < MEMBERS; m++)
        for (int64_t i = 0; i < WHOLE; i++) source[m][i] = (unsigned char)(i * 31 + m * 67 + (i >> 8));
    memset(got, UNTOUCHED, sizeof got);
}

/* One member's share of the collective. third: stride or root. */
static void run(enum mt_op op, int me, int64_t third, int parts)
{
    void *src[MEMBERS];
    for (int m = 0; m < MEMBERS; m++) src[m] = source[m];
    struct mt_call c = {.op = (uint16_t)op};
    c.arg[0] = got;
    c.arg[1] = src;
    c.dim['R' - 'A'] = MEMBERS;
    c.dim['I' - 'A'] = me;
    c.scalar[1].i = (int64_t)(intptr_t)&cut;
    c.scalar[2].i = third;
    for (int p = 0; p < parts; p++) mt_cpu_kernel[op](&c, p, parts, NULL, NULL);
}
/* Bytes of got that are not want's; those outside of it should be untouched. */
static int64_t wrong(int64_t off, const unsigned char *want, int64_t n)
{
    int64_t bad = 0;
    for (int64_t i = off; i < off + n; i++) {
        bad += got[i] != *want++;
        got[i] = UNTOUCHED;
    }
    return bad;
}
static int64_t touched(void)
{
    int64_t n = 0;
    for (size_t i = 0; i < sizeof got; i++) n += got[i] != UNTOUCHED;
    return n;
}

TEST(gathered_by_everyone_or_by_the_root)
{
    for (int me = 0; me < MEMBERS; me++)
        for (int root = -1; root < MEMBERS; root++)
            for (int parts = 1; parts <= 7; parts += 3) {
                fill();
                run(root < 0 ? MT_OP_gather_cut : MT_OP_collect_cut, me, root, parts);
                bool gets = root < 0 || root == me;
                for (int m = 0; m < MEMBERS && gets; m++)
                    CHECK_INT(wrong(at[m], source[m], at[m + 1] - at[m]), 0);
                CHECK_INT(touched(), 0);
            }
}

TEST(scattered_by_everyone)
{
    for (int me = 0; me < MEMBERS; me++)
        for (int parts = 1; parts <= 7; parts += 3) {
            fill();
            run(MT_OP_scatter_cut, me, STRIDE, parts);
            for (int m = 0; m < MEMBERS; m++)
                CHECK_INT(wrong(m * STRIDE, source[m] + at[me], at[me + 1] - at[me]), 0);
            CHECK_INT(touched(), 0);
        }
}

TEST(spread_by_the_root)
{
    for (int me = 0; me < MEMBERS; me++)
        for (int root = 0; root < MEMBERS; root++)
            for (int parts = 1; parts <= 7; parts += 3) {
                fill();
                run(MT_OP_spread_cut, me, root, parts);
                CHECK_INT(wrong(0, source[root] + at[me], at[me + 1] - at[me]), 0);
                CHECK_INT(touched(), 0);
            }
}

/* Pieces that lie in another order than their members, of which one's own is in its place. */
TEST(pieces_in_any_order)
{
    for (int me = 0; me < MEMBERS; me++)
        for (int parts = 1; parts <= 7; parts += 3) {
            void *src[MEMBERS];
            struct mt_call c = {.op = MT_OP_gather_rest};
            fill();
            for (int m = 0; m < MEMBERS; m++) src[m] = m == me ? got + at[order[m]] : source[m];
            memcpy(src[me], source[me], (size_t)(at[order[me] + 1] - at[order[me]]));
            c.arg[0] = got;
            c.arg[1] = src;
            c.dim['R' - 'A'] = MEMBERS;
            c.dim['I' - 'A'] = me;
            c.scalar[1].i = (int64_t)(intptr_t)&mixed;
            for (int p = 0; p < parts; p++) mt_cpu_kernel[c.op](&c, p, parts, NULL, NULL);
            for (int m = 0; m < MEMBERS; m++)
                CHECK_INT(wrong(at[order[m]], source[m], at[order[m] + 1] - at[order[m]]), 0);
            CHECK_INT(touched(), 0);
        }
}

int main(void)
{
    RUN(pieces_in_any_order);
    RUN(gathered_by_everyone_or_by_the_root);
    RUN(scattered_by_everyone);
    RUN(spread_by_the_root);
    return DONE();
}
