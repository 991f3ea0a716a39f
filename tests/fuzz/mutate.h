/* mutate.h: runs a fuzz target over files and over changed copies of them, where no fuzzing engine is at
 * hand.
 *
 * The changes are drawn from a fixed seed, so a failure comes again. */
#ifndef MT_TESTS_FUZZ_MUTATE_H
#define MT_TESTS_FUZZ_MUTATE_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FUZZ_MOST = 1 << 14 }; /* bytes of one input */

typedef int fuzz_target(const uint8_t *data, size_t size);

static inline uint32_t fuzz_draw(uint64_t *state, uint32_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % below);
}

/* Replaces data[at..at+out) by text[0..in). */
static inline void fuzz_splice(uint8_t *data, size_t *size, size_t at, size_t out, const void *text,
                               size_t in)
{
    if (out > *size - at) out = *size - at;
    if (*size - out + in > FUZZ_MOST) return;
    memmove(data + at + in, data + at + out, *size - at - out);
    memcpy(data + at, text, in);
    *size += in - out;
}

static inline void fuzz_change(uint8_t *data, size_t *size, uint64_t *state, const char *const *words,
                               int n_words)
{
    uint8_t copy[64];
    size_t at = fuzz_draw(state, (uint32_t)*size + 1), n = 1 + fuzz_draw(state, sizeof copy - 1);
    const char *word = words[fuzz_draw(state, (uint32_t)n_words)];
    switch (fuzz_draw(state, 5)) {
    case 0: fuzz_splice(data, size, at, 0, word, strlen(word)); break;
    case 1: fuzz_splice(data, size, at, strlen(word), word, strlen(word)); break;
    case 2: fuzz_splice(data, size, at, n, "", 0); break;
    case 3:
        if (at + n > *size) break;
        memcpy(copy, data + at, n);
        fuzz_splice(data, size, fuzz_draw(state, (uint32_t)*size + 1), 0, copy, n);
        break;
    default:
        if (at < *size) data[at] = (uint8_t)(data[at] ^ 1u << fuzz_draw(state, 8));
    }
}

/* Runs the target on each file, then on `times` copies of each with one to eight changes. Returns how many
 * inputs it ran; a target ends the program where something is wrong. A file that can't be read counts as
 * empty. */
static inline long fuzz_run(fuzz_target *target, int n_files, const char *const *files, int times,
                            const char *const *words, int n_words)
{
    static uint8_t seed[FUZZ_MOST], data[FUZZ_MOST];
    uint64_t state = 1;
    long runs = 0;
    for (int i = 0; i < n_files; i++) {
        FILE *f = fopen(files[i], "rb");
        size_t seed_size = f ? fread(seed, 1, sizeof seed, f) : 0;
        if (f) fclose(f);
        for (int t = 0; t <= times; t++) {
            size_t size = seed_size;
            memcpy(data, seed, size);
            int changes = t == 0 ? 0 : 1 + (int)fuzz_draw(&state, 8);
            for (int k = 0; k < changes; k++) fuzz_change(data, &size, &state, words, n_words);
            target(data, size);
            runs++;
        }
    }
    return runs;
}
#endif
