/* moetitan: pretrains mixture-of-experts language models. */
#include "base/features.h"
#include "base/status.h"
#include "cmd/cmd.h"
#include "cmd/help.h"
#include "config/word.h"

#include <stdio.h>
#include <string.h>

static mt_status help(int argc, char **argv, mt_err *e);
static mt_status version(int argc, char **argv, mt_err *e);

typedef struct command {
    const char *name;
    mt_status (*run)(int argc, char **argv, mt_err *e);
    const char *arguments;
    const char *purpose;
    bool helps; /* it answers --help itself, at length */
} command;

static const command commands[] = {
    {"train", mt_cmd_train, "CONFIG [key=value ...]", "run the training loop", false},
    {"plan", mt_cmd_plan, "CONFIG [--ranks N] ...", "what a run would take on a cluster, without one", false},
    {"sweep", mt_cmd_sweep, "SWEEP.yaml [--plan | --slurm] ...",
     "many runs, planned, run here or by Slurm, compared", false},
    {"report", mt_cmd_report, "RUN_DIR ... [-o FILE]", "runs as a page: curves, memory, experts, events",
     false},
    {"doctor", mt_cmd_doctor, "[--cluster NAME] | --calibrate FILE",
     "is this machine, or allocation, fit? Or measured, as a cluster file", false},
    {"submit", mt_cmd_submit, "CONFIG [--nodes N] ...", "a run as a chain of jobs of a Slurm cluster", true},
    {"job", mt_cmd_job, "begin|end|list ...", "what a batch script does around its run", false},
    {"sample", mt_cmd_sample, "CKPT [--prompt TEXT] ...", "generate text from a saved checkpoint", false},
    {"ckpt", mt_cmd_ckpt, "VERB ...", "ls, show, verify, diff, reshard, prune, export, import", false},
    {"data", mt_cmd_data, "pack|info|check ...", "make and examine data files", true},
    {"options", mt_cmd_options, "[--markdown]", "list every option, from the one table", false},
    {"help", help, "[COMMAND]", "this list, or one command at length", false},
    {"version", version, "", "print the version", false},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const command *find(const char *name)
{
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    if (!strcmp(name, "--version")) name = "version";
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(commands[i].name, name)) return &commands[i];
    return NULL;
}

static mt_status unknown(const char *name, mt_err *e)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
    char shown[64];
    mt_word_clean(shown, sizeof shown, name);
    const char *nearest = mt_word_nearest(name, names, COMMANDS);
    if (nearest)
        MT_FAIL(e, MT_CONFIG, "no command \"%s\"; did you mean \"%s\"? Try: moetitan help", shown, nearest);
    MT_FAIL(e, MT_CONFIG, "no command \"%s\". Try: moetitan help", shown);
}

static void print_command(const command *c)
{
    char call[64];
    snprintf(call, sizeof call, "%s %s", c->name, c->arguments);
    printf("  moetitan %-34s %s\n", call, c->purpose);
}

static mt_status describe(const command *c, mt_err *e)
{
    char name[16], flag[] = "--help", *words[] = {name, flag, NULL};
    snprintf(name, sizeof name, "%s", c->name);
    if (c->helps) return c->run(2, words, e);
    printf("%s\n", c->purpose);
    mt_help_print(c->name, stdout);
    return MT_OK;
}

static mt_status help(int argc, char **argv, mt_err *e)
{
    if (argc > 1) {
        const command *c = find(argv[1]);
        if (!c) return unknown(argv[1], e);
        return describe(c, e);
    }
    printf("moetitan %s: pretrains mixture-of-experts language models\n\n", MT_VERSION);
    for (int i = 0; i < COMMANDS; i++) print_command(&commands[i]);
    printf("\nExit codes:");
#define X(name, value, text) printf(" %d %s%s", value, #name, MT_##name == MT_PREEMPTED ? "\n" : ",");
    MT_STATUS_LIST(X)
#undef X
    return MT_OK;
}

static mt_status version(int argc, char **argv, mt_err *e)
{
    MT_REQUIRE(argc == 1, e, MT_CONFIG, "version takes no argument, got \"%s\"", argv[1]);
    printf("moetitan %s\n", MT_VERSION);
    return MT_OK;
}

/* Wherever the flag stands; behind -- are the words of another program. */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--help")) return true;
    return argc == 3 && !strcmp(argv[2], "-h");
}

static mt_status run(int argc, char **argv, mt_err *e)
{
    MT_REQUIRE(argc > 1, e, MT_CONFIG, "which command? Try: moetitan help");
    const command *c = find(argv[1]);
    if (!c) return unknown(argv[1], e);
    return asks_for_help(argc, argv) ? describe(c, e) : c->run(argc - 1, argv + 1, e);
}

int main(int argc, char **argv)
{
    mt_err e = {0};
    mt_status s = run(argc, argv, &e);
    /* A result that a full disk or a closed pipe swallowed is a failure too. */
    if (fflush(stdout) && s == MT_OK)
        s = mt_err_set(&e, MT_IO, "writing to standard output failed: disk full?");
    if (s != MT_OK && e.msg[0]) fprintf(stderr, "moetitan: %s\n", e.msg);
    return (int)s;
}
