/* exec_queue.c: a rank's ring and streams, and the meetings of collectives. Everything here runs under the
 * lock. */
#include "device/cpu/exec_times.h"
#include "device/cpu/exec_watch.h"
#include "device/poison.h"

static struct mt_node *node_at(struct mt_exec_rank *r, int32_t i)
{
    return &r->ring[(uint32_t)i & r->mask];
}

/* The last member to arrive makes the work of all ready; if they disagree, none, and the run ends for want of work. */
MT_UNWATCHED static void arrive(struct mt_exec_rank *r, struct mt_node *n)
{
    struct mt_meeting *m = n->meet;
    m->at[n->member] = (struct mt_member){r, n};
    m->src[n->member] = n->src;
    mt_watch_arrive(r, n);
    mt_stand_entered(r, n);
    if (++m->arrived < n->members || !mt_members_agree(r->exec, n)) return;
    for (int i = 0; i < n->members; i++) mt_time_met(m->at[i].rank, m->at[i].node);
    for (int i = 0; i < n->members; i++) mt_ready_push(r->exec, m->at[i].rank, m->at[i].node);
}

/* The compute stream stands still in a wait that is not met, and in a collective of its own. */
static void stand(struct mt_exec_rank *r, const struct mt_node *n)
{
    if (n->stream == MT_COMPUTE && !r->stands) r->stands = mt_now_ns();
}
static void go_on(struct mt_exec_rank *r, const struct mt_node *n)
{
    if (n->stream != MT_COMPUTE || !r->stands) return;
    r->stood += mt_now_ns() - r->stands;
    r->stands = 0;
}

static void node_over(struct mt_exec_rank *r, struct mt_queue *q, struct mt_node *n)
{
    go_on(r, n);
    mt_time_over(r, n);
    n->done = true;
    q->done++;
    q->first = n->next;
    r->exec->live--;
}

/* Starts what can start: a stream's first operation, and waits whose event is reached, which may free other
 * streams. */
static void advance(struct mt_exec_rank *r)
{
    for (bool again = true; again;) {
        again = false;
        for (int s = 0; s < MT_N_STREAMS; s++) {
            struct mt_queue *q = &r->queue[s];
            while (q->first >= 0 && !q->busy) {
                struct mt_node *n = node_at(r, q->first);
                mt_time_reached(r, n);
                if (n->wait) {
                    if (r->queue[n->ev.stream].done < n->ev.seq) {
                        stand(r, n);
                        break;
                    }
                    mt_watch_waited(r, n);
                    node_over(r, q, n);
                    again = true;
                    continue;
                }
                if (n->meet && mt_trial_holds(r, n)) break;
                q->busy = true;
                if (mt_time_collective(n)) stand(r, n);
                if (n->meet)
                    arrive(r, n);
                else
                    mt_ready_push(r->exec, r, n);
            }
        }
    }
    while (r->head != r->published && r->ring[r->head & r->mask].done) r->head++;
}

static void node_done(struct mt_exec_rank *r, struct mt_node *n)
{
    struct mt_queue *q = &r->queue[n->stream];
    if (r->ctx->poison) mt_poison_apply(r->ctx->poison, r->ctx, n->stream, n->seq - r->base[n->stream]);
    q->busy = false;
    node_over(r, q, n);
    r->exec->ops++;
    advance(r);
    mt_host_wake(r);
}

/* All members are done together: nobody's buffer is free while another still pulls from it. */
MT_UNWATCHED static void meeting_over(struct mt_meeting *m, int members)
{
    m->arrived = m->pulled = 0; /* a member's next collective may arrive inside this loop */
    for (int i = 0; i < members; i++) {
        struct mt_exec_rank *r = m->at[i].rank;
        struct mt_node *n = m->at[i].node;
        mt_watch_leave(r, n);
        m->at[i] = (struct mt_member){0};
        node_done(r, n);
    }
}

void mt_queue_part_done(struct mt_exec_rank *r, struct mt_node *n)
{
    if (--n->left > 0) return;
    if (!n->meet)
        node_done(r, n);
    else if (++n->meet->pulled == n->members)
        meeting_over(n->meet, n->members);
}

void mt_queue_publish(struct mt_exec_rank *r)
{
    for (; r->published != r->tail; r->published++) {
        struct mt_node *n = &r->ring[r->published & r->mask];
        struct mt_queue *q = &r->queue[n->stream];
        int32_t i = (int32_t)(r->published & r->mask);
        if (q->first < 0)
            q->first = i;
        else
            node_at(r, q->last)->next = i;
        q->last = i;
        r->exec->live++;
    }
    advance(r);
    r->limit = r->head + r->mask + 1;
}
