/* The types of options: what each reads, refuses and writes. */
#include "config/table.h"
#include "config/word.h"
#include "helper.h"

static mt_config c;

TEST(every_default_is_within_its_limit)
{
    char why[MT_VALUE_WHY];
    mt_config_defaults(&c);
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        const mt_option *o = &mt_options[i];
        if (o->list) continue;
        if (!CHECK(mt_value_set(o, &c, o->def, why))) printf("  %s: %s\n", o->key, why);
    }
}

/* The field is the key with underscores for dots: so a row cannot name another row's field. */
TEST(keys_are_unique_and_name_their_field)
{
    static const char *const fields[] = {
#define MT_OPTION(key, field, type, def, limit, scope, resume, doc) #field,
#include "config/option.def"
    };
    for (int i = 0; i < MT_OPTION_COUNT; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s", mt_options[i].key);
        CHECK_INT(mt_option_find(key), i);
        CHECK(strchr(key, '.') != NULL);
        for (char *dot; (dot = strchr(key, '.'));) *dot = '_';
        CHECK_STR(key, fields[i]);
        CHECK(mt_options[i].doc[0] != 0);
    }
}

TEST(whole_numbers_and_units)
{
    CHECK_STR(OVERRIDE(&c, "train.steps=64Ki", "optim.warmup_steps=0"), "");
    CHECK_INT(c.train_steps, 65536);
    CHECK_STR(OVERRIDE(&c, "train.steps=25k"), "");
    CHECK_INT(c.train_steps, 25000);
    CHECK_STR(OVERRIDE(&c, "train.steps=2M"), "");
    CHECK_INT(c.train_steps, 2000000);
    CHECK_STR(OVERRIDE(&c, "train.seed=4Gi"), "");
    CHECK_INT(c.train_seed, INT64_C(1) << 32);
    CHECK_STR(OVERRIDE(&c, "data.eod=-1"), "");
    CHECK_INT(c.data_eod, -1);
    CHECK_STR(OVERRIDE(&c, "device.memory=80GB"), "");
    CHECK_INT(c.device_memory, INT64_C(80000000000));
    CHECK_STR(OVERRIDE(&c, "device.memory=3GiB"), "");
    CHECK_INT(c.device_memory, INT64_C(3) << 30);
    CHECK_STR(OVERRIDE(&c, "device.memory=17"), "");
    CHECK_INT(c.device_memory, 17);
}

TEST(lists_of_numbers)
{
    char text[MT_VALUE_TEXT];
    const mt_option *o = &mt_options[MT_OPTION_train_trace_steps];
    static const char *const same[] = {"train.trace.steps=3,4k", "train.trace.steps=[3, 4000]",
                                       "train.trace.steps= 3 ,4000"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        CHECK_STR(OVERRIDE(&c, same[i]), "");
        CHECK_INT(c.train_trace_steps.n, 2);
        CHECK_INT(c.train_trace_steps.at[0], 3);
        CHECK_INT(c.train_trace_steps.at[1], 4000);
        CHECK_STR(mt_value_text(o, &c, text), "[3, 4000]");
    }
    CHECK_STR(OVERRIDE(&c, "train.trace.steps=7"), "");
    CHECK_STR(mt_value_text(o, &c, text), "[7]");
    CHECK_STR(OVERRIDE(&c, "train.trace.steps=7", "train.trace.steps=[]"), "");
    CHECK_STR(mt_value_text(o, &c, text), "[]");
    CHECK_STR(OVERRIDE(&c, "train.trace.steps="), "");
    CHECK_INT(c.train_trace_steps.n, 0);
    CHECK_STR(OVERRIDE(&c, "train.trace.steps=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"), "");
    CHECK_INT(c.train_trace_steps.n, MT_INTS_MOST);
    CHECK_STR(OVERRIDE(&c, "train.trace.steps=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"),
              "command line: train.trace.steps: more than 16 numbers");
    CHECK_STR(OVERRIDE(&c, "train.trace.steps=3,0"), "command line: train.trace.steps: 0 is outside [1, 1G]");
    CHECK_STR(OVERRIDE(&c, "train.trace.steps=3,x"),
              "command line: train.trace.steps: expected whole numbers such as [3, 4], got 'x'");
    CHECK_STR(OVERRIDE(&c, "train.trace.steps=3,,4"),
              "command line: train.trace.steps: expected whole numbers such as [3, 4], got ''");
}

TEST(fractions_and_times)
{
    CHECK_STR(OVERRIDE(&c, "optim.lr=3e-4"), "");
    CHECK_CLOSE(c.optim_lr, 3e-4, 0);
    CHECK_STR(OVERRIDE(&c, "optim.lr=.5"), "");
    CHECK_CLOSE(c.optim_lr, 0.5, 0);
    CHECK_STR(OVERRIDE(&c, "optim.lr=1E+0"), "");
    CHECK_CLOSE(c.optim_lr, 1, 0);
    CHECK_STR(OVERRIDE(&c, "run.hang_timeout=1.5h"), "");
    CHECK_CLOSE(c.run_hang_timeout, 5400, 0);
    CHECK_STR(OVERRIDE(&c, "run.hang_timeout=30s"), "");
    CHECK_CLOSE(c.run_hang_timeout, 30, 0);
    CHECK_STR(OVERRIDE(&c, "run.hang_timeout=0s"), "");
    CHECK_CLOSE(c.run_hang_timeout, 0, 0);
}

TEST(choices_and_text)
{
    CHECK_STR(OVERRIDE(&c, "model.score=sigmoid", "device.isa=avx512-bf16", "train.dtype=f32"), "");
    CHECK_INT(c.model_score, MT_SCORE_SIGMOID);
    CHECK_INT(c.device_isa, MT_DEVICE_ISA_AVX512_BF16);
    CHECK_INT(c.train_dtype, MT_F32);
    CHECK_STR(OVERRIDE(&c, "train.dtype=bf16", "muon.dtype=f32"), "");
    CHECK_INT(c.train_dtype, MT_BF16);
    CHECK_INT(c.muon_dtype, MT_F32);
    CHECK_STR(OVERRIDE(&c, "run.dir=a b=c: \"d\" # e"), "");
    CHECK_STR(c.run_dir, "a b=c: \"d\" # e");
    CHECK_STR(OVERRIDE(&c, "data.train="), "");
    CHECK_STR(c.data_train, "");
    CHECK_STR(OVERRIDE(&c, "model.tied=true"), "");
    CHECK(c.model_tied);
}

static const struct {
    const char *override, *message;
} refused[] = {
    {"train.steps=", "train.steps: expected a whole number such as 512, 64Ki or 2M, got ''"},
    {"train.steps=ten", "train.steps: expected a whole number such as 512, 64Ki or 2M, got 'ten'"},
    {"train.steps=1.5",
     "train.steps: expected a whole number such as 512, 64Ki or 2M, got '1.5': units are Ki, Mi, "
     "Gi, Ti, k, M, G, T"},
    {"train.steps=12 ",
     "train.steps: expected a whole number such as 512, 64Ki or 2M, got '12 ': units are Ki, Mi, "
     "Gi, Ti, k, M, G, T"},
    {"train.steps=010", "train.steps: expected a whole number such as 512, 64Ki or 2M, got '010'"},
    {"train.steps=0x10",
     "train.steps: expected a whole number such as 512, 64Ki or 2M, got '0x10': units are Ki, Mi, "
     "Gi, Ti, k, M, G, T"},
    {"train.steps=0", "train.steps: 0 is outside [1, 1G]"},
    {"train.steps=-5", "train.steps: -5 is outside [1, 1G]"},
    {"train.steps=2G", "train.steps: 2G is outside [1, 1G]"},
    {"train.steps=9223372036854775808", "train.steps: 9223372036854775808 is too large or too small"},
    {"train.steps=9223372036854775807Ki", "train.steps: 9223372036854775807Ki is too large or too small"},
    {"device.memory=8G",
     "device.memory: expected a number of bytes such as 4096, 512MiB or 80GB, got '8G': units are "
     "PiB, TiB, GiB, MiB, KiB, PB, TB, GB, MB, kB, B"},
    {"optim.lr=nan", "optim.lr: expected a number such as 0.5 or 3e-4, got 'nan'"},
    {"optim.lr=inf", "optim.lr: expected a number such as 0.5 or 3e-4, got 'inf'"},
    {"optim.lr=0x1p3", "optim.lr: expected a number such as 0.5 or 3e-4, got '0x1p3'"},
    {"optim.lr=1e999", "optim.lr: 1e999 is too large or too small"},
    {"optim.lr=1e-999", "optim.lr: 1e-999 is too large or too small"},
    {"optim.lr=1e", "optim.lr: expected a number such as 0.5 or 3e-4, got '1e'"},
    {"optim.lr=.", "optim.lr: expected a number such as 0.5 or 3e-4, got '.'"},
    {"optim.lr=-", "optim.lr: expected a number such as 0.5 or 3e-4, got '-'"},
    {"optim.lr=0", "optim.lr: 0 is outside (0, 10]"},
    {"adamw.beta1=1", "adamw.beta1: 1 is outside [0, 1)"},
    {"run.hang_timeout=30", "run.hang_timeout: expected a time such as 30s, 5m or 2h, got '30'"},
    {"run.hang_timeout=3min",
     "run.hang_timeout: expected a time such as 30s, 5m or 2h, got '3min': units are d, h, m, "
     "s"},
    {"run.hang_timeout=8d", "run.hang_timeout: 8d is outside [0s, 7d]"},
    {"model.tied=yes", "model.tied: expected true or false, got 'yes'"},
    {"model.score=sigmod",
     "model.score: expected one of softmax, sigmoid, got 'sigmod'; did you mean sigmoid?"},
    {"model.score=relu", "model.score: expected one of softmax, sigmoid, got 'relu'"},
    {"run.dir=a\nb", "run.dir: byte 2 of the text is not printable UTF-8 (0x0a)"},
    {"run.dir=a\xff", "run.dir: byte 2 of the text is not printable UTF-8 (0xff)"},
    {"run.dir=\xc2\x85", "run.dir: byte 1 of the text is not printable UTF-8 (0xc2)"},
};

TEST(refused_values)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char text[128], want[256];
        snprintf(text, sizeof text, "%s", refused[i].override);
        snprintf(want, sizeof want, "command line: %s", refused[i].message);
        CHECK_STR(OVERRIDE(&c, text), want);
    }
}

TEST(too_long_text)
{
    char text[MT_CONFIG_PATH + 16] = "run.dir=";
    memset(text + 8, 'x', MT_CONFIG_PATH - 1);
    CHECK_STR(OVERRIDE(&c, text), "");
    CHECK_INT(strlen(c.run_dir), MT_CONFIG_PATH - 1);
    text[8 + MT_CONFIG_PATH - 1] = 'x';
    CHECK_STR(OVERRIDE(&c, text), "command line: run.dir: the text has 1024 bytes, at most 1023 fit");
}

/* What is written reads back to the same bits, and equal values have one text. */
TEST(text_round_trips)
{
    static const char *const floats[][2] = {
        {"0.1", "0.1"}, {"1e-8", "1e-08"}, {"0.30000000000000004", "0.30000000000000004"},
        {"1.0", "1"},   {"2.50", "2.5"},   {"1e-300", "1e-300"}};
    static const char *const bytes[][2] = {
        {"1024", "1KiB"}, {"1536", "1536"}, {"80GB", "78125000KiB"}, {"0", "0"}};
    static const char *const times[][2] = {
        {"60s", "1m"}, {"90s", "90s"}, {"48h", "2d"}, {"0.5s", "0.5s"}, {"0m", "0s"}};
    const mt_option *f = &mt_options[MT_OPTION_optim_lr], *b = &mt_options[MT_OPTION_host_memory];
    const mt_option *t = &mt_options[MT_OPTION_run_hang_timeout];
    char why[MT_VALUE_WHY], out[MT_VALUE_TEXT];
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        CHECK(mt_value_set(f, &c, floats[i][0], why));
        CHECK_STR(mt_value_text(f, &c, out), floats[i][1]);
    }
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        CHECK(mt_value_set(b, &c, bytes[i][0], why));
        CHECK_STR(mt_value_text(b, &c, out), bytes[i][1]);
    }
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        CHECK(mt_value_set(t, &c, times[i][0], why));
        CHECK_STR(mt_value_text(t, &c, out), times[i][1]);
    }
}

TEST(printable_text)
{
    CHECK_INT(mt_word_printable("gr\xc3\xbc\xc3\x9f", 6, false), 6);
    CHECK_INT(mt_word_printable("a\xf0\x9f\x98\x80", 5, false), 5);
    CHECK_INT(mt_word_printable("a\tb", 3, false), 1);
    CHECK_INT(mt_word_printable("a\tb\r\n", 5, true), 5);
    CHECK_INT(mt_word_printable("a\x7f", 2, true), 1);
    CHECK_INT(mt_word_printable("a\0b", 3, true), 1);
    CHECK_INT(mt_word_printable("\xc0\xaf", 2, true), 0);         /* overlong */
    CHECK_INT(mt_word_printable("\xed\xa0\x80", 3, true), 0);     /* surrogate */
    CHECK_INT(mt_word_printable("\xf4\x90\x80\x80", 4, true), 0); /* past the last character */
    CHECK_INT(mt_word_printable("\xe2\x82", 2, true), 0);         /* cut */
    CHECK_INT(mt_word_printable("\x80", 1, true), 0);
}

TEST(clean_text)
{
    char out[8];
    CHECK_STR(mt_word_clean(out, sizeof out, "abcdefg"), "abcdefg");
    CHECK_STR(mt_word_clean(out, sizeof out, "abcdefgh"), "abcd...");
    CHECK_STR(mt_word_clean(out, sizeof out, "abc\xc3\xbcxyz"), "abc...");
    CHECK_STR(mt_word_clean(out, sizeof out, "a\nb\xff"), "a?b?");
    CHECK_STR(mt_word_clean(out, sizeof out, ""), "");
}

static const char *unknown(const char *key, bool section)
{
    static char out[256];
    return mt_option_unknown(key, section, out, sizeof out);
}

TEST(nearest_names)
{
    CHECK_STR(unknown("model.dims", false), "no option 'model.dims'; did you mean model.dim?");
    CHECK_STR(unknown("model.dmi", false), "no option 'model.dmi'; did you mean model.dim?");
    CHECK_STR(unknown("optim.learning_rate", false), "no option 'optim.learning_rate'");
    CHECK_STR(unknown("vocab", false), "no option 'vocab'; did you mean model.vocab?");
    CHECK_STR(unknown("rope_teta", false), "no option 'rope_teta'; did you mean model.rope_theta?");
    CHECK_STR(unknown("modle.layers", false), "no option 'modle.layers'; did you mean model.layers?");
    CHECK_STR(unknown("chkpt", true), "no option 'chkpt'; did you mean ckpt?");
    CHECK_STR(unknown("", false), "no option ''");
    CHECK_STR(unknown("x", false), "no option 'x'");
    char longest[100] = {0};
    memset(longest, 'm', 99);
    CHECK(!strstr(unknown(longest, false), "mean"));
}

int main(void)
{
    RUN(every_default_is_within_its_limit);
    RUN(keys_are_unique_and_name_their_field);
    RUN(whole_numbers_and_units);
    RUN(lists_of_numbers);
    RUN(fractions_and_times);
    RUN(choices_and_text);
    RUN(refused_values);
    RUN(too_long_text);
    RUN(text_round_trips);
    RUN(printable_text);
    RUN(clean_text);
    RUN(nearest_names);
    return DONE();
}
