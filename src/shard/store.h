/* store.h: where a rank keeps its parameters and their state.
 *
 * A unit is what is gathered together: the embedding; per layer the dense part and the experts; final norm and head.
 * Each unit has buckets: one flat buffer, one dtype, one group, one collective. A bucket holds matrices (what an
 * operation reads), a matrix is a stack of one or more tensors (what is named, initialised, optimised and saved):
 * gate and up of a SwiGLU are two tensors and one matrix.
 *
 * Masters, gradients and moments of a bucket are f32 and canonical: tensors row-major, one after another. The working
 * copy is in the device's format, whose panels of 32 outputs are contiguous in both, so that a shard cut at panels is
 * one range of each. Experts of a layer lie one after another, each with all its matrices: whole experts are owned.
 *
 * A bucket is cut over its group. Experts: at whole experts over the ranks of their slot, and where those do not divide, the
 * larger pieces go round from layer to layer, in rows that they share. Dense matrices, over the ranks of a replica: flat, at panels, rows or elements;
 * or in blocks, which are attention heads or tiles of 128 rows; or owned, each whole on one rank, in the order of their
 * owners. Owners are balanced over the whole model, so a rank has something of few of these buckets: they share rows, and a
 * rank's pieces of all of them lie one behind the other. A group of one has no gathered copy: operations read the
 * shard itself.
 *
 * What travels may be narrower. Gradients of a bucket with a working copy may be cast to bf16 before they are scattered. A
 * bucket of packed matrices may be gathered as fp8 (device/fp8_form.h): this rank's piece is then kept in that form, made from
 * the working copy whenever the masters have changed, and every rank turns what it has gathered back into the working form.
 * A group of one does the same to its only piece, so that the weights are the same over any number of ranks.
 *
 * A group that moves in two levels (mesh/mesh.h) has its pieces in the bucket rail by rail. A rail's pieces are a region: one
 * range, which a gather between nodes puts into its place in the whole; a gather inside the node brings the other regions.
 * Gradients go the other way: whole ones are scattered inside the node, summed to this rank's region, scattered over its rail. */
#ifndef MT_SHARD_STORE_H
#define MT_SHARD_STORE_H
#include <stdint.h>

#include "base/status.h"
#include "device/device.h"
#include "device/ledger.h"
#include "device/target.h"
#include "mesh/mesh.h"

/* How an operation reads a matrix: in the device's packed format; row-major in the working dtype; the f32 master. */
enum mt_form { MT_FORM_PACKED, MT_FORM_ROWS, MT_FORM_F32 };
/* How a matrix is cut over its group (see above). Experts are owned. */
enum mt_placement { MT_PLACED_FLAT, MT_PLACED_BLOCK, MT_PLACED_OWNED };
/* How it is gathered: as mt_formats says; its working copy as it is; as fp8. */
enum mt_gathered { MT_GATHERED_AS_ALL, MT_GATHERED_WORK, MT_GATHERED_FP8 };
enum mt_state { MT_STATE_MASTER, MT_STATE_GRAD, MT_STATE_M, MT_STATE_V, MT_N_STATES };
/* Of a unit's gathered weights, what stays from forward to backward: this rank's piece; the region that its rail brought, in two
 * levels; everything. */
enum mt_kept { MT_KEPT_PIECE, MT_KEPT_REGION, MT_KEPT_ALL };
enum mt_pass { MT_FORWARD, MT_BACKWARD, MT_N_PASSES };

/* What travels between ranks. */
struct mt_formats {
    mt_dtype reduce;             /* of gradients with a working copy: MT_F32 or MT_BF16 */
    bool fp8_experts, fp8_dense; /* gathers of experts; of the packed matrices of blocks */
};
/* Where the state of buckets with a working copy lives and is worked on: shard/strip.h. Set before mt_store_layout; zero: all on the
 * device. */
enum { MT_MAX_SLOTS = 8, MT_LANE_FORM = MT_N_STATES, MT_N_LANES };
struct mt_offload {
    bool host[MT_N_STATES]; /* MT_STATE_V follows MT_STATE_M */
    bool host_compute;
    int slots;
    int64_t slot_bytes; /* of one state in a slot, unless one strip needs more */
};
/* How something is cut, in bytes, as indices in mt_store.cut; -1: there is no such collective. */
struct mt_cuts {
    int all;        /* in one level: the whole, over the group */
    int rail, node; /* in two: this rank's region, over its rail; the whole, by regions, over its node */
};
struct mt_bucket {
    int unit;
    int64_t n;          /* experts stacked in it, of this rank's slot; 1 for dense buckets */
    int64_t elements;   /* of one stacked part; the bucket holds n times as many */
    int64_t work_bytes; /* of one part; 0: the masters are the working copy */
    bool f32;           /* of matrices of that form; the others have a working copy */
    bool second;        /* some tensor of it has a second moment */
    enum mt_placement placement;
    bool dealt; /* dense and owned, by more than one: pieces of any size */
    bool
        shared; /* pieces are uneven, dealt ones or experts that the group does not divide: in rows that such buckets share */
    enum mt_group_id group;
    int members, me;                     /* me: this rank's piece */
    int near;                            /* members on each node where two levels move it, 0: one level */
    int64_t *edge;                       /* [members + 1] elements: where the bucket is cut; owned */
    int64_t *work_edge;                  /* [members + 1] bytes of the working copy, likewise; owned */
    struct mt_cuts master_cut, work_cut; /* the same cuts; none in a group of one */
    int64_t piece, work_piece; /* elements and bytes of the largest piece: what rows are sized for */
    bool host[MT_N_STATES];    /* in host memory */
    int64_t region;            /* elements of the largest region */
    int32_t row[MT_N_STATES], work_row;
    int32_t acc_row; /* gradients in host memory: this rank's accumulators, while pieces are added; -1 */
    int64_t at, work_at, wire_at; /* where this rank's piece begins in these rows: elements, bytes, bytes */
    int32_t full_row[MT_N_PASSES], grad_row,
        staging_row;         /* gathered weights, whole gradients, pieces to be summed; -1 */
    mt_dtype grad_wire;      /* of what is scattered; not f32: through grad_wire_row, cut by grad_cut */
    struct mt_cuts grad_cut; /* node: of f32, as whole gradients are */
    int32_t grad_wire_row;
    int32_t node_staging_row; /* two levels: the node's gradients of this rank's region */
    bool fp8;                 /* gathered as fp8; the working copy is then kept only by a group of one */
    int64_t wire_bytes;       /* fp8 form of one part; 0: gathered as it is */
    int64_t *wire_edge;       /* [members + 1] bytes of it, as work_edge; owned */
    struct mt_cuts wire_cut;
    int64_t wire_piece;              /* the largest */
    int32_t wire_row, wire_full_row; /* this rank's piece in that form; everybody's */
    int32_t region_row, host_row;    /* what is kept for further passes, see mt_unit; -1 */
    int64_t region_bytes;            /* of each */
};
struct mt_matrix {
    int unit, bucket, kind; /* kind, layer: the model's */
    int layer;
    enum mt_form form;
    int64_t rows, cols; /* cols 0: a vector */
    int64_t block;      /* rows that stay together in blocks */
    enum mt_placement placement;
    enum mt_gathered gather;
    int owner, piece; /* of a dealt bucket's: the member that has it, and that member's piece; -1 */
    int64_t off, work_off,
        wire_off; /* within one part: elements of the masters, bytes of the working copy, of its fp8 form */
    int32_t
        turned_row; /* a packed matrix in NN form, for backward; -1: none, or the target has one form for both */
};
enum mt_optimizer { MT_ADAMW, MT_MUON, MT_SOAP, MT_SHAMPOO, MT_FROZEN };
static inline bool mt_optimizer_has(enum mt_optimizer o, enum mt_state what)
{
    if (what == MT_STATE_V) return o == MT_ADAMW || o == MT_SOAP || o == MT_SHAMPOO;
    return what == MT_STATE_MASTER || o != MT_FROZEN;
}
/* Matrices that Muon takes a part of a tensor for: so many blocks of its rows, or of its columns; 0: it is one matrix. */
struct mt_heads {
    int64_t n;
    bool columns;
};
struct mt_tensor {
    int matrix, kind, layer;
    int64_t row0, rows; /* of the matrix */
    enum mt_optimizer optimizer;
    struct mt_heads heads;
    int64_t factor[2]; /* edges of square state for a part's rows and columns (shard/factors.h); 0: none */
    int64_t factor_at; /* of this rank's, elements in their row */
    double lr_scale, weight_decay, init_std; /* init_std < 0: filled with -init_std - 1 */
    int64_t parts, strips; /* of offloaded state (shard/strip.h): on the busiest rank; of a part */
};
struct mt_unit {
    int layer;
    bool experts;
    bool in_host; /* what a step gathered first is kept in host memory for its other passes */
    enum mt_kept kept;
    int64_t n_experts;     /* of this rank's slot; 0: dense */
    int bucket, n_buckets; /* the first of them, and how many; from mt_store_layout */
};
/* A unit's buckets, at most: of each placement those in f32, in the working form and in fp8. */
enum { MT_UNIT_BUCKETS = 9 };
struct mt_store {
    mt_dtype dtype; /* of working copies */
    struct mt_formats
        formats; /* set before mt_store_layout; zero: f32 gradients, gathers of the working copy */
    struct mt_offload offload;
    int64_t lane_bytes[MT_N_ARENAS][MT_N_LANES]; /* of the slots; 0: no such lane */
    int32_t lane_row[MT_N_ARENAS][MT_MAX_SLOTS][MT_N_LANES];
    int32_t factor_row; /* -1: there are none */
    int64_t factor_elements;
    const struct mt_target *target;
    struct mt_mesh mesh;
    int rank;
    struct mt_unit *unit; /* all arrays owned */
    struct mt_bucket *bucket;
    struct mt_matrix *matrix;
    struct mt_tensor *tensor;
    struct mt_cut *cut;   /* for mt_ctx.cut */
    int32_t *shard_piece; /* by member of the shard group, its piece; NULL: its index */
    int n_units, n_buckets, n_matrices, n_tensors, n_cuts, cap_units, cap_matrices, cap_tensors, cap_cuts;
};
void mt_store_init(struct mt_store *s, mt_dtype dtype, const struct mt_target *t, const struct mt_mesh *mesh,
                   int rank);
void mt_store_release(struct mt_store *s);
/* Makes the store that of another rank of the mesh. Everything else of a store is the same on all ranks. */
void mt_store_turn(struct mt_store *s, int rank);

/* Build-up, in order: a unit, its matrices, each matrix's tensors (rows add up). n_experts: of a slot; 0 for a dense unit.
 * block: rows that placement in blocks keeps together. A matrix is flat, gathered as mt_formats says, unless its fields are set
 * otherwise before mt_store_layout; experts are owned. */
int mt_store_add_unit(struct mt_store *s, int layer, int64_t n_experts);
int mt_store_add_matrix(struct mt_store *s, int kind, int layer, enum mt_form form, int64_t cols,
                        int64_t block);
int mt_store_add_tensor(struct mt_store *s, int kind, int layer, int64_t rows, double init_std);
/* A cut of n pieces for gather_cut and its like; at[n + 1], bytes, is copied; of: see mt_cut, kept by the caller. Returns its
 * index. */
int mt_store_add_cut(struct mt_store *s, int64_t n, const int64_t *at, const int32_t *of);
/* Where the same pieces begin if padding is not counted, in bytes [n + 1], copied: for the byte ledger. Without it all counts. */
void mt_store_cut_content(struct mt_store *s, int cut, const int64_t *content);
/* After the last tensor and the assignment of optimizers: buckets, owners, offsets, cuts, and the rows in the ledger. Rows are
 * sized for the largest piece, so the ledger is the same on all ranks. `inference`: only what a forward pass reads. */
void mt_store_layout(struct mt_store *s, struct mt_ledger *g, bool inference);

/* What operations read and write, whole: a matrix of an expert unit is [n, rows, cols]; a vector [rows]. */
mt_view mt_store_work(const struct mt_store *s, int matrix, enum mt_pass pass);
mt_view mt_store_turned(const struct mt_store *s, int matrix);
mt_view mt_store_grad(const struct mt_store *s, int matrix);

/* What this rank holds of rows [row0, row0 + rows) of a matrix: whole experts, or a range of rows; nothing if a count is 0. */
struct mt_local {
    int64_t part0, parts; /* experts, counted within the slot; one part for dense units */
    int64_t row0, rows;   /* rows of the tensor that is asked about, row0 counted from its first */
};
struct mt_local mt_store_local(const struct mt_store *s, int tensor);
struct mt_local mt_store_local_of(const struct mt_store *s, int tensor,
                                  int member); /* of its bucket's group */
/* The blocks that Muon takes a part of the tensor for: n of them, each rows x cols. */
struct mt_blocks {
    int64_t n, rows, cols;
};
struct mt_blocks mt_store_blocks(const struct mt_store *s, int tensor);
/* Rows at whose multiples a matrix may be cut, and its working copy be written. */
int64_t mt_store_step(const struct mt_store *s, const struct mt_matrix *m);
/* Its state, [parts, rows, cols] (cols 1 for a vector); MT_NONE if there is nothing, or no such state. */
mt_view mt_store_local_state(const struct mt_store *s, int tensor, enum mt_state what);
/* The same for a whole matrix, with its working copy: what packing reads and writes, [parts, rows, cols] or, in a dense unit,
 * [rows, cols]. False if nothing of it is here or the master is the working copy. */
bool mt_store_local_work(const struct mt_store *s, int matrix, mt_view *master, mt_view *work);

/* fp8 buckets: this rank's piece of a matrix, [parts, bytes] or [bytes] beside what mt_store_local_work gives, as u8, and the
 * whole of it, gathered. */
mt_view mt_store_local_wire(const struct mt_store *s, int matrix);
mt_view mt_store_wire(const struct mt_store *s, int matrix);
/* The buffer of an fp8 bucket that packing only passes through, whole: of a group of one the fp8 form, else the working copy.
 * MT_NONE: not fp8. */
mt_view mt_store_passing(const struct mt_store *s, int bucket);

/* Buckets: this rank's piece of a state, and the buffers of its collectives. */
mt_view mt_store_piece(const struct mt_store *s, int bucket,
                       enum mt_state what); /* [elements] f32; MT_NONE if empty */
mt_view mt_store_piece_bytes(const struct mt_store *s, int bucket,
                             enum mt_state what); /* the same as u8, perhaps empty */
mt_view mt_store_full(const struct mt_store *s, int bucket, enum mt_pass pass); /* [bytes] u8 */
/* What a gather moves, [bytes] u8: of the fp8 form where that travels, else of the working copy, else of the masters. */
struct mt_gathering {
    mt_view mine, whole; /* this rank's piece; where everything goes, in the buffer of a pass */
    mt_view
        fetched; /* where this rank's piece and those from other ranks, in two levels of its rail, go: a part of `whole`, */
    mt_view apart; /* or of this row, if it is given, which is kept for backward */
    mt_view host;  /* the same in host memory, MT_NONE: it is not kept there; and all of that row */
    mt_view host_row;
    struct mt_cuts cut;
};
struct mt_gathering mt_store_gathering(const struct mt_store *s, int bucket, enum mt_pass pass);

mt_view mt_store_full_grad(const struct mt_store *s, int bucket); /* [elements] f32 */
/* [elements] grad_wire: of what is scattered last: whole gradients, in two levels this rank's region of them. */
mt_view mt_store_grad_wire(const struct mt_store *s, int bucket);
mt_view mt_store_staging(const struct mt_store *s,
                         int bucket); /* [senders, elements of the piece] grad_wire, ld = largest piece */
mt_view mt_store_staging_bytes(const struct mt_store *s, int bucket); /* the whole row */
/* Two levels: this rank's region of whole gradients, [elements] f32, as u8 if empty; and of those of the node's members. */
mt_view mt_store_grad_region(const struct mt_store *s, int bucket);
mt_view mt_store_node_staging(const struct mt_store *s,
                              int bucket); /* [near, elements of the region] f32, ld = largest region */
mt_view mt_store_node_staging_bytes(const struct mt_store *s, int bucket);

/* Of everything above that all ranks must have alike: units, buckets, dtypes, orders, cuts. */
uint64_t mt_store_hash(const struct mt_store *s);

int64_t mt_store_expert(const struct mt_store *s, int64_t part); /* global id of a part of this rank's slot */
#endif
