/* dnn_shapes DEVICE.json CONFIG...   whether cuDNN's own support check, asked for the device that the file describes, takes the
 * attention of each configuration: a line a direction, "ok" with the scratch memory it takes, or "own" with the reason. */
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "dnn_attention.h"
#include "model/model.h"

/* Of layers without a window. */
static struct mt_call call_of(const mt_config *cfg, enum mt_op op)
{
    const struct mt_shape d = mt_shape_of(cfg);
    int64_t full = 0;
    while (full < d.L - 1 && mt_is_near(&d, full)) full++;
    const int64_t heads[2][9] = {{d.H, 1, d.H, d.G, d.G}, {d.H, d.G, d.G, d.H, d.H, 1, d.H, d.G, d.G}},
                  width[2][9] = {{d.B, d.N, d.A, d.A, d.B}, {d.A, d.A, d.B, d.B, d.B, d.N, d.A, d.A, d.B}};
    const int back = op == MT_OP_attention_bwd;
    struct mt_call c = {.op = (uint16_t)op, .dtype = MT_BF16};
    c.dim['N' - 'A'] = d.N, c.dim['H' - 'A'] = d.H, c.dim['G' - 'A'] = d.G, c.dim[0] = d.A, c.dim[1] = d.B;
    c.scalar[0].f = 1, c.scalar[1].i = mt_model_pairs(&d, full);
    for (int i = 0; i < (back ? 9 : 5); i++)
        c.ld[i] = width[back][i], c.stride[i] = heads[back][i] * width[back][i] * 2;
    return c;
}
static void ask(const mt_config *cfg, const char *name, enum mt_op op, const char *json)
{
    const struct mt_call c = call_of(cfg, op);
    int64_t bytes;
    mt_err e = {0};
    if (mt_sdpa_support(&c, json, &bytes, &e))
        printf("%s %s own: %s\n", name, mt_op_info[op].name, e.msg);
    else if (bytes > cfg->device_scratch)
        printf("%s %s own: it would take %lld bytes of scratch memory, and device.scratch is %lld\n", name,
               mt_op_info[op].name, (long long)bytes, (long long)cfg->device_scratch);
    else
        printf("%s %s ok: %lld bytes\n", name, mt_op_info[op].name, (long long)bytes);
}

int main(int argc, char **argv)
{
    static mt_config cfg;
    char json[4096] = "", over[] = "data.train=none", *override[] = {over};
    FILE *f = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!f || !fread(json, 1, sizeof json - 1, f)) return 2;
    fclose(f);
    for (int i = 2; i < argc; i++) {
        mt_err e = {0};
        if (mt_config_load(&cfg, argv[i], 1, override, &e)) {
            printf("%s: %s\n", argv[i], e.msg);
            return 1;
        }
        ask(&cfg, argv[i], MT_OP_attention_fwd, json);
        ask(&cfg, argv[i], MT_OP_attention_bwd, json);
    }
    return 0;
}
