#include "data/loader.h"
#include "base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum job_state { JOB_FREE, JOB_QUEUED, JOB_RUNNING, JOB_DONE } job_state;

typedef struct job {
    job_state state;
    uint64_t ticket; /* order of arrival */
    int64_t rank, step;
    mt_sample out;
    int64_t n_labels;
    mt_imbalance imbalance;
    mt_err err;
} job;

/* Places of one step's sequences, worked out once for all ranks here. */
typedef struct places {
    pthread_mutex_t lock; /* guards the rest */
    mt_balance balance;
    int64_t step; /* -1: none yet */
    mt_imbalance imbalance;
} places;

struct mt_loader {
    mt_data_options o; /* its strings are not kept */
    mt_sample_rules rules;
    mt_corpus train, valid; /* valid: of data.valid */
    bool separate;          /* validation has files of its own */
    int64_t n_micro;
    bool uneven; /* sequences may differ in cost, and ranks wait for each other */
    places places;
    int64_t *numbers; /* [M B] global sample numbers of the batch being filled; the thread's */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t queued, done;
    pthread_t thread;
    bool started, stop;
    uint64_t tickets;
    int64_t n_jobs;
    job *jobs;
};

static mt_sample offset_sample(const mt_sample *s, int64_t by)
{
    return (mt_sample){s->tokens + by, s->labels + by, s->begin + by, s->pos + by};
}

int64_t mt_loader_n_micro(const mt_loader *l)
{
    return l->n_micro;
}
int64_t mt_loader_n_train(const mt_loader *l)
{
    return l->train.n_train;
}
int64_t mt_loader_n_valid(const mt_loader *l)
{
    return l->separate ? l->valid.n_train : l->train.n_valid;
}

/* The places of a step's sequences in l->places, whose lock is held. */
static void place_step(mt_loader *l, int64_t step)
{
    places *p = &l->places;
    if (p->step == step || !l->uneven) return;
    mt_balance_read(&p->balance, &l->train, l->o.price, step);
    p->imbalance = l->o.balance ? mt_balance_place(&p->balance) : mt_balance_keep(&p->balance);
    p->step = step;
}

/* Place in a step of the first row of a micro-batch. */
static int64_t place_of(const mt_loader *l, int64_t rank, int64_t micro)
{
    return (micro * l->o.n_ranks + rank) * l->o.micro_batch;
}

int64_t mt_loader_sample_number(mt_loader *l, int64_t step, int64_t rank, int64_t micro, int64_t row)
{
    pthread_mutex_lock(&l->places.lock);
    place_step(l, step);
    int64_t i = l->places.balance.place[place_of(l, rank, micro) + row];
    pthread_mutex_unlock(&l->places.lock);
    return step * l->o.global_batch + i;
}

/* Global sample numbers of a rank's batch. */
static void number_batch(mt_loader *l, job *j)
{
    int64_t B = l->o.micro_batch, G = l->o.global_batch;
    pthread_mutex_lock(&l->places.lock);
    place_step(l, j->step);
    for (int64_t i = 0; i < l->n_micro * B; i++)
        l->numbers[i] = j->step * G + l->places.balance.place[place_of(l, j->rank, i / B) + i % B];
    j->imbalance = l->places.imbalance;
    pthread_mutex_unlock(&l->places.lock);
}

mt_status mt_loader_imbalance(mt_loader *l, int64_t step, int64_t n, mt_imbalance *mean, mt_err *e)
{
    *mean = (mt_imbalance){0};
    MT_TRY(mt_corpus_check(&l->train, e));
    pthread_mutex_lock(&l->places.lock);
    for (int64_t s = step; s < step + n; s++) {
        place_step(l, s);
        mean->data += l->places.imbalance.data / (double)n;
        mean->placed += l->places.imbalance.placed / (double)n;
    }
    pthread_mutex_unlock(&l->places.lock);
    return MT_OK;
}

static mt_status fill(mt_loader *l, job *j, mt_err *e)
{
    int64_t B = l->o.micro_batch, T = l->o.seq_len;
    MT_TRY(mt_corpus_check(&l->train, e));
    number_batch(l, j);
    for (int64_t i = 0; i < l->n_micro * B; i++) {
        mt_sample out = offset_sample(&j->out, i * T);
        int64_t unit;
        const mt_split *split = mt_corpus_train(&l->train, l->numbers[i], &unit);
        MT_TRY(mt_sample_fill(split, &l->rules, &out, &j->n_labels, unit, (int32_t)(i % B * T), e));
    }
    return MT_OK;
}

static job *oldest_queued(mt_loader *l)
{
    job *oldest = NULL;
    for (int64_t i = 0; i < l->n_jobs; i++)
        if (l->jobs[i].state == JOB_QUEUED && (!oldest || l->jobs[i].ticket < oldest->ticket))
            oldest = &l->jobs[i];
    return oldest;
}

static void *work(void *arg)
{
    mt_loader *l = arg;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        job *j = oldest_queued(l);
        if (!j) {
            pthread_cond_wait(&l->queued, &l->lock);
            continue;
        }
        j->state = JOB_RUNNING;
        pthread_mutex_unlock(&l->lock);
        mt_status s = fill(l, j, &j->err);
        if (s != MT_OK) mt_err_while(&j->err, "reading the batch of step %" PRId64, j->step + 1);
        pthread_mutex_lock(&l->lock);
        j->state = JOB_DONE;
        pthread_cond_broadcast(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static mt_status check_options(const mt_data_options *o, mt_err *e)
{
    MT_REQUIRE(o->n_train > 0 && *o->train[0].path, e, MT_CONFIG,
               "data.train is not set: give the prefix of a token file");
    MT_REQUIRE(o->seq_len >= 1 && o->micro_batch >= 1 && o->micro_batch <= INT32_MAX / o->seq_len, e,
               MT_CONFIG,
               "train.micro_batch %" PRId64 " x train.seq_len %" PRId64 " must be 1 to 2^31 - 1 tokens",
               o->micro_batch, o->seq_len);
    MT_REQUIRE(o->vocab >= 1 && o->vocab <= INT32_MAX, e, MT_CONFIG,
               "model.vocab: %" PRId64 ", expected 1 to 2^31 - 1", o->vocab);
    MT_REQUIRE(o->n_ranks >= 1 && o->local_ranks >= 1 && o->prefetch >= 1, e, MT_CONFIG,
               "data: %" PRId64 " ranks, %" PRId64 " of them here, data.prefetch %" PRId64
               ": each must be at least 1",
               o->n_ranks, o->local_ranks, o->prefetch);
    int64_t rows; /* of one micro-batch over all ranks */
    MT_REQUIRE(!__builtin_mul_overflow(o->micro_batch, o->n_ranks, &rows) && o->global_batch >= rows &&
                   o->global_batch % rows == 0,
               e, MT_CONFIG,
               "train.global_batch: %" PRId64 ", expected a multiple of train.micro_batch %" PRId64
               " x %" PRId64 " ranks",
               o->global_batch, o->micro_batch, o->n_ranks);
    return MT_OK;
}

static mt_status open_corpora(mt_loader *l, const mt_data_options *o, mt_err *e)
{
    mt_corpus_part valid = {.path = o->valid};
    l->separate = o->valid && *o->valid;
    mt_corpus_options c = {.part = o->train,
                           .n = o->n_train,
                           .valid_fraction = l->separate ? 0 : o->valid_fraction,
                           .packed = o->mode == MT_DATA_PACKED,
                           .seed = o->seed,
                           .most = o->steps * o->global_batch,
                           .rules = l->rules};
    MT_TRY(mt_corpus_open(&l->train, &c, e));
    if (!l->separate) return MT_OK;
    c.part = &valid;
    c.n = 1;
    return mt_corpus_open(&l->valid, &c, e);
}

static mt_status open_places(mt_loader *l, const mt_data_options *o, mt_err *e)
{
    mt_balance_layout at = {
        .n_ranks = o->n_ranks, .n_micro = l->n_micro, .micro_batch = o->micro_batch, .together = o->together};
    l->uneven = o->n_ranks > 1 && o->document_mask;
    l->places.step = -1;
    l->numbers = calloc((size_t)(l->n_micro * o->micro_batch), sizeof *l->numbers);
    MT_REQUIRE(l->numbers, e, MT_IO, "data: no memory for the sequences of a batch");
    return mt_balance_open(&l->places.balance, &at, e);
}

static mt_status start(mt_loader *l, const mt_data_options *o, mt_err *e)
{
    l->n_jobs = o->local_ranks * o->prefetch;
    l->jobs = calloc((size_t)l->n_jobs, sizeof *l->jobs);
    MT_REQUIRE(l->jobs, e, MT_IO, "data: no memory for a queue of %" PRId64 " batches", l->n_jobs);
    int why = pthread_create(&l->thread, NULL, work, l);
    MT_REQUIRE(!why, e, MT_IO, "data: cannot start the loader's thread: %s", strerror(why));
    l->started = true;
    return MT_OK;
}

mt_status mt_loader_open(mt_loader **out, const mt_data_options *o, mt_err *e)
{
    *out = NULL;
    MT_TRY(check_options(o, e));
    mt_loader *l = calloc(1, sizeof *l);
    MT_REQUIRE(l, e, MT_IO, "data: out of memory");
    pthread_mutex_init(&l->lock, NULL);
    pthread_mutex_init(&l->places.lock, NULL);
    pthread_cond_init(&l->queued, NULL);
    pthread_cond_init(&l->done, NULL);
    l->o = *o;
    l->o.train = NULL;
    l->o.valid = NULL;
    l->n_micro = o->global_batch / (o->micro_batch * o->n_ranks);
    l->rules = (mt_sample_rules){.seq_len = o->seq_len,
                                 .vocab = o->vocab,
                                 .eod = o->eod,
                                 .document_mask = o->document_mask,
                                 .reset_positions = o->reset_positions};
    mt_status s = open_corpora(l, o, e);
    if (s == MT_OK) s = open_places(l, o, e);
    if (s == MT_OK) s = start(l, o, e);
    if (s != MT_OK) {
        mt_loader_close(l);
        return s;
    }
    *out = l;
    return MT_OK;
}

void mt_loader_close(mt_loader *l)
{
    if (!l) return;
    if (l->started) {
        pthread_mutex_lock(&l->lock);
        l->stop = true;
        pthread_cond_signal(&l->queued);
        pthread_mutex_unlock(&l->lock);
        pthread_join(l->thread, NULL);
    }
    mt_corpus_close(&l->train);
    mt_corpus_close(&l->valid);
    pthread_cond_destroy(&l->queued);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
    pthread_mutex_destroy(&l->places.lock);
    mt_balance_close(&l->places.balance);
    free(l->numbers);
    free(l->jobs);
    free(l);
}

static job *find_job(mt_loader *l, int64_t rank, int64_t step)
{
    for (int64_t i = 0; i < l->n_jobs; i++) {
        job *j = &l->jobs[i];
        if (j->state != JOB_FREE && j->rank == rank && j->step == step) return j;
    }
    return NULL;
}

mt_status mt_loader_prefetch(mt_loader *l, int64_t rank, int64_t step, const mt_sample *out, mt_err *e)
{
    MT_REQUIRE(rank >= 0 && rank < l->o.n_ranks && step >= 0, e, MT_INTERNAL,
               "data: batch asked for rank %" PRId64 " of %" PRId64 ", step %" PRId64, rank, l->o.n_ranks,
               step);
    pthread_mutex_lock(&l->lock);
    job *j = NULL;
    for (int64_t i = 0; i < l->n_jobs && !j; i++)
        if (l->jobs[i].state == JOB_FREE) j = &l->jobs[i];
    if (j) {
        *j = (job){.state = JOB_QUEUED, .ticket = l->tickets++, .rank = rank, .step = step, .out = *out};
        pthread_cond_signal(&l->queued);
    }
    pthread_mutex_unlock(&l->lock);
    MT_REQUIRE(j, e, MT_INTERNAL,
               "data: %" PRId64 " batches are under way, no place for step %" PRId64 " of rank %" PRId64,
               l->n_jobs, step, rank);
    return MT_OK;
}

bool mt_loader_ready(mt_loader *l, int64_t rank, int64_t step)
{
    pthread_mutex_lock(&l->lock);
    const job *j = find_job(l, rank, step);
    bool ready = !j || j->state == JOB_DONE;
    pthread_mutex_unlock(&l->lock);
    return ready;
}

mt_status mt_loader_wait(mt_loader *l, int64_t rank, int64_t step, mt_batch_info *info, mt_err *e)
{
    double since = mt_now();
    *info = (mt_batch_info){0};
    pthread_mutex_lock(&l->lock);
    job *j = find_job(l, rank, step);
    if (!j) {
        pthread_mutex_unlock(&l->lock);
        MT_FAIL(e, MT_INTERNAL,
                "data: waiting for step %" PRId64 " of rank %" PRId64 ", which was not prefetched", step,
                rank);
    }
    while (j->state != JOB_DONE) pthread_cond_wait(&l->done, &l->lock);
    info->n_labels = j->n_labels;
    info->imbalance = j->imbalance;
    mt_status s = j->err.code;
    if (s != MT_OK) mt_err_set(e, s, "%s", j->err.msg);
    j->state = JOB_FREE;
    pthread_mutex_unlock(&l->lock);
    info->waited_s = mt_now() - since;
    return s;
}

/* Of validation sample `sample`: files of its own are read in their order. */
static const mt_split *valid_unit(mt_loader *l, int64_t sample, int64_t *unit)
{
    if (!l->separate) return mt_corpus_valid(&l->train, sample, unit);
    *unit = sample;
    return &l->valid.source[0].train;
}

mt_status mt_loader_valid_batch(mt_loader *l, int64_t first, const mt_sample *out, int64_t *n_labels,
                                mt_err *e)
{
    int64_t T = l->o.seq_len, n = mt_loader_n_valid(l), unit;
    *n_labels = 0;
    if (n) MT_TRY(mt_corpus_check(l->separate ? &l->valid : &l->train, e));
    for (int64_t row = 0; row < l->o.micro_batch; row++) {
        mt_sample sample = offset_sample(out, row * T);
        int32_t base = (int32_t)(row * T);
        if (first + row >= n) {
            mt_sample_pad(&l->rules, &sample, base);
            continue;
        }
        const mt_split *split = valid_unit(l, first + row, &unit);
        MT_TRY(mt_sample_fill(split, &l->rules, &sample, n_labels, unit, base, e));
    }
    return MT_OK;
}
