#include "command.h"

static char printed[4096];

/* Runs `data WORDS` with what it prints in `printed`. */
static mt_status run(const char *words)
{
    char text[1024];
    snprintf(text, sizeof text, "data %s", words);
    mt_status s = command_run(mt_cmd_data, text, in_folder("printed"));
    command_text(in_folder("printed"), printed, sizeof printed);
    return s;
}

static void prints(const char *words, const char *part)
{
    if (!CHECK_INT(run(words), MT_OK)) printf("  %s\n", e.msg);
    if (!CHECK(strstr(printed, part))) printf("  wanted \"%s\" in: %s\n", part, printed);
}

static void refuses(const char *words, mt_status code, const char *part)
{
    CHECK_INT(run(words), code);
    if (!CHECK(strstr(e.msg, part))) printf("  wanted \"%s\" in: %s\n", part, e.msg);
}

TEST(pack_info_check)
{
    put_file("a.txt", "first paragraph\n\nsecond one\n\nthird\n", 35);
    prints("pack a.txt -o a --document blank --eod 256 --bytes",
           "a: 36 tokens in 3 documents, vocabulary 257");
    prints("info a", "tokens     36 of type u16, 72 bytes");
    prints("info a.idx", "documents  3 in 3 sequences");
    prints("info a", "lengths    least 7, 10% 7, median 12, 90% 17, most 17, mean 12.0 tokens");
    prints("check a", "36 tokens in 3 documents, ids 10 to 256");
    prints("check a --vocab 257", "all in the vocabulary");
    refuses("check a --vocab 256", MT_DATA, "token id 256 at position 16 (document 0, its token 16)");
    CHECK(!strstr(printed, "packed"));
    prints("pack a.idx --pack-length 20", "2 samples of 20 tokens, 90.00% filled, 3 pieces");
    prints("info a.bin", "2 samples of 20 tokens");
    put_file("a.pack", "MTPACK", 6);
    refuses("check a", MT_DATA, "a.pack: does not begin with MTPACK");
    put_file("b.jsonl", "{\"body\": \"abc\"}\n", 16);
    prints("pack b.jsonl -o b --jsonl body --pack-length 2", "b: 3 tokens in 1 documents");
}

TEST(pack_stops_at_text_that_is_no_json)
{
    put_file("c.jsonl", "{\"text\": \"abc\"}\nabc\n", 20);
    refuses("pack c.jsonl -o c", MT_DATA, "c.jsonl:2:1: not valid JSON");
    CHECK(access("c.idx", F_OK) && access("c.bin", F_OK) && access("c.bin.tmp", F_OK));
}

TEST(wrong_words)
{
    prints("--help", "usage:");
    refuses("", MT_CONFIG, "unknown command ;");
    refuses("unpack", MT_CONFIG, "unknown command unpack; see");
    refuses("pack", MT_CONFIG, "expected INPUT");
    refuses("pack a.txt", MT_CONFIG, "-o PREFIX");
    refuses("pack a.txt -o", MT_CONFIG, "-o needs a value");
    refuses("pack a.txt --what x", MT_CONFIG, "unknown option --what");
    refuses("pack a.txt -o a --eod 1x", MT_CONFIG, "--eod 1x: expected a whole number from 0 to");
    refuses("pack a.txt -o a --eod -1", MT_CONFIG, "--eod -1");
    refuses("pack a.txt -o a --pack-length 99999999999", MT_CONFIG, "--pack-length");
    refuses("pack a.txt -o a --pack-length 99999999", MT_CONFIG, "16777216");
    refuses("pack a.txt -o a --document word", MT_CONFIG, "expected file, line or blank");
    refuses("pack a.txt -o a --vocab 5", MT_CONFIG, "expected INPUT");
    refuses("info", MT_CONFIG, "expected one PREFIX");
    refuses("info a b", MT_CONFIG, "expected one PREFIX");
    refuses("info a --vocab 5", MT_CONFIG, "expected one PREFIX");
    refuses("check a -o b", MT_CONFIG, "at most --vocab V");
    refuses("check nothing", MT_DATA, "nothing.idx: cannot open");
}

int main(void)
{
    if (chdir(temporary_folder())) return 1;
    RUN(pack_info_check);
    RUN(pack_stops_at_text_that_is_no_json);
    RUN(wrong_words);
    remove_temporary_folder();
    return DONE();
}
