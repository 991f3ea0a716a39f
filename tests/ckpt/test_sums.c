/* What a rank tells of the tensors it wrote: read as written or not at all. */
#include "ckpt/sums.h"

#include "helper.h"

static mt_status parse(const char *text, struct mt_sums *s, mt_err *e)
{
    *e = (mt_err){0};
    return mt_sums_parse(s, "FILE", text, (int64_t)strlen(text), e);
}

#define SUM "\"xxh3\": \"0123456789abcdef\""
#define FILE_ "{\"file\": {\"bytes\": 4512, \"xxh3\": \"00000000000000ff\"}, \"tensors\": {"
TEST(both_versions)
{
    struct mt_sums s;
    mt_err e;
    CHECK_INT(parse("{\"tensors\":{\"b\":\"0123456789abcdef\",\"a.weight\":\"00000000000000ff\"}}\n", &s, &e),
              MT_OK);
    CHECK(!s.has_file);
    CHECK_INT(s.n, 2);
    CHECK_STR(s.entry[0].key, "a.weight");
    CHECK(s.entry[0].whole && s.entry[0].xxh3 == 255);
    mt_sums_release(&s);
    CHECK_INT(parse(FILE_ "\"w@4\": {\"shape\": [8,12], \"row\": 4, " SUM
                          "}, \"b\": {\"shape\": [5], \"row\": 0, " SUM "}}}\n",
                    &s, &e),
              MT_OK);
    CHECK(s.has_file && s.bytes == 4512 && s.xxh3 == 255);
    CHECK_INT(s.n, 2);
    CHECK_STR(s.entry[0].key, "b");
    CHECK(!s.entry[0].whole && s.entry[0].rows == 5 && s.entry[0].cols == 0 && s.entry[0].row == 0);
    CHECK(s.entry[1].rows == 8 && s.entry[1].cols == 12 && s.entry[1].row == 4);
    CHECK(s.entry[1].xxh3 == UINT64_C(0x0123456789abcdef));
    mt_sums_release(&s);
    CHECK_INT(parse(FILE_ "}}", &s, &e), MT_OK);
    CHECK_INT(s.n, 0);
    mt_sums_release(&s);
}

TEST(refused)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "not a JSON object"},
        {"[]", "not a JSON object"},
        {"{}", "holds no checksums of tensors"},
        {"{\"tensors\": 5}", "holds no checksums of tensors"},
        {"{\"tensors\":{\"a\":7}}", "entry 0"},
        {"{\"tensors\":{\"a\":\"0123\"}}", "entry 0"},
        {"{\"tensors\":{\"a\":\"0123456789ABCDEF\"}}", "entry 0"},
        {"{\"tensors\":{\"a\":\"0123456789abcdef\",\"\":\"0123456789abcdef\"}}", "entry 1"},
        {"{\"tensors\":{\"a b\":\"0123456789abcdef\"}}", "entry 0"},
        {"{\"tensors\":{\"a\\u001b\":\"0123456789abcdef\"}}", "entry 0"},
        {"{\"tensors\":{\"a\":\"0123456789abcdef\",\"a\":\"0123456789abcdef\"}}", "lists tensor 'a' twice"},
        {"{\"tensors\":{\"a\":{\"shape\":[5],\"row\":0," SUM "}}}", "another version"},
        {"{\"file\": 5, \"tensors\": {}}", "\"file\" has no valid"},
        {"{\"file\": {\"bytes\": -1, " SUM "}, \"tensors\": {}}", "\"file\" has no valid"},
        {"{\"file\": {\"bytes\": 1}, \"tensors\": {}}", "\"file\" has no valid"},
        {FILE_ "\"a\": \"0123456789abcdef\"}}", "another version"},
        {FILE_ "\"a\": {\"shape\": [5], \"row\": 1, " SUM "}}}", "entry 0"},
        {FILE_ "\"a@1\": {\"shape\": [5], \"row\": 0, " SUM "}}}", "entry 0"},
        {FILE_ "\"a@01\": {\"shape\": [5], \"row\": 1, " SUM "}}}", "entry 0"},
        {FILE_ "\"a@-1\": {\"shape\": [5], \"row\": -1, " SUM "}}}", "entry 0"},
        {FILE_ "\"a@\": {\"shape\": [5], \"row\": 0, " SUM "}}}", "entry 0"},
        {FILE_ "\"@1\": {\"shape\": [5], \"row\": 1, " SUM "}}}", "entry 0"},
        {FILE_ "\"a@1@1\": {\"shape\": [5], \"row\": 1, " SUM "}}}", "entry 0"},
        {FILE_ "\"a@99999999999999999999\": {\"shape\": [5], \"row\": 1, " SUM "}}}", "entry 0"},
        {FILE_ "\"a\": {\"shape\": [], \"row\": 0, " SUM "}}}", "entry 0"},
        {FILE_ "\"a\": {\"shape\": [1,2,3], \"row\": 0, " SUM "}}}", "entry 0"},
        {FILE_ "\"a\": {\"shape\": [1,0], \"row\": 0, " SUM "}}}", "entry 0"},
        {FILE_ "\"a\": {\"shape\": [1.5], \"row\": 0, " SUM "}}}", "entry 0"},
        {FILE_ "\"a\": {\"shape\": 5, \"row\": 0, " SUM "}}}", "entry 0"},
        {FILE_ "\"a\": {\"shape\": [5], " SUM "}}}", "entry 0"},
        {FILE_ "\"a\": {\"shape\": [5], \"row\": 0}}}", "entry 0"},
    };
    struct mt_sums s;
    mt_err e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (!CHECK(failed_so(parse(bad[i].text, &s, &e), &e, MT_CKPT, bad[i].says)))
            printf("    text: %s\n", bad[i].text);
}

TEST(names_as_long_as_they_may_be)
{
    char text[400], name[MT_TENSOR_NAME + 1];
    struct mt_sums s;
    mt_err e;
    for (int n = MT_TENSOR_NAME - 1; n <= MT_TENSOR_NAME; n++) {
        memset(name, 'x', sizeof name);
        name[n] = 0;
        snprintf(text, sizeof text, "{\"tensors\":{\"%s\":\"0123456789abcdef\"}}", name);
        CHECK_INT(parse(text, &s, &e), n < MT_TENSOR_NAME ? MT_OK : MT_CKPT);
        mt_sums_release(&s);
    }
}

int main(void)
{
    RUN(both_versions);
    RUN(refused);
    RUN(names_as_long_as_they_may_be);
    return DONE();
}
