/* choice.h: the sets of names that an option may be chosen from, each with its enum.
 *
 * The set `score` gives `typedef enum mt_choice_score`, whose constants are its list's, counted from zero. */
#ifndef MT_CONFIG_CHOICE_H
#define MT_CONFIG_CHOICE_H
#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define MT_CHOICES_score(C) C(MT_SCORE_SOFTMAX, "softmax") C(MT_SCORE_SIGMOID, "sigmoid")
#define MT_CHOICES_attention(C) C(MT_ATTENTION_GQA, "gqa") C(MT_ATTENTION_MLA, "mla")
#define MT_CHOICES_group_score(C) C(MT_GROUP_SCORE_TOP2, "top2") C(MT_GROUP_SCORE_MAX, "max")
#define MT_CHOICES_drop(C) C(MT_DROP_PROBS, "probs") C(MT_DROP_POSITION, "position")
#define MT_CHOICES_routing(C) C(MT_ROUTING_LEARNED, "learned") C(MT_ROUTING_BALANCED, "balanced")
#define MT_CHOICES_optimizer(C)    \
    C(MT_OPTIMIZER_ADAMW, "adamw") \
    C(MT_OPTIMIZER_MUON, "muon")   \
    C(MT_OPTIMIZER_SOAP, "soap") C(MT_OPTIMIZER_SHAMPOO, "shampoo") C(MT_OPTIMIZER_NONE, "none")
#define MT_CHOICES_decay(C) C(MT_DECAY_LINEAR, "linear") C(MT_DECAY_SQRT, "sqrt") C(MT_DECAY_COSINE, "cosine")
#define MT_CHOICES_coefficients(C)                    \
    C(MT_COEFFICIENTS_SIMPLE, "simple")               \
    C(MT_COEFFICIENTS_QUINTIC, "quintic")             \
    C(MT_COEFFICIENTS_POLAR_EXPRESS, "polar_express") \
    C(MT_COEFFICIENTS_CANS, "cans")
#define MT_CHOICES_muon_scale(C)                        \
    C(MT_MUON_SCALE_MATCH_RMS_ADAMW, "match_rms_adamw") \
    C(MT_MUON_SCALE_ORIGINAL, "original")               \
    C(MT_MUON_SCALE_SPECTRAL, "spectral")
#define MT_CHOICES_muon_dense(C) C(MT_MUON_DENSE_EXCHANGE, "exchange") C(MT_MUON_DENSE_GATHER, "gather")
#define MT_CHOICES_data_mode(C) C(MT_DATA_MODE_WINDOWS, "windows") C(MT_DATA_MODE_PACKED, "packed")
#define MT_CHOICES_balance(C) C(MT_BALANCE_NONE, "none") C(MT_BALANCE_ATTENTION, "attention")
#define MT_CHOICES_device_type(C) \
    C(MT_DEVICE_TYPE_AUTO, "auto") C(MT_DEVICE_TYPE_CPU, "cpu") C(MT_DEVICE_TYPE_CUDA, "cuda")
#define MT_CHOICES_graphs(C) \
    C(MT_CUDA_GRAPHS_BY_AUTO, "auto") C(MT_CUDA_GRAPHS_BY_ON, "on") C(MT_CUDA_GRAPHS_BY_OFF, "off")
#define MT_CHOICES_attention_by(C) C(MT_ATTENTION_BY_AUTO, "auto") C(MT_ATTENTION_BY_OWN, "own")
#define MT_CHOICES_device_isa(C)                \
    C(MT_DEVICE_ISA_AUTO, "auto")               \
    C(MT_DEVICE_ISA_AMX_BF16, "amx-bf16")       \
    C(MT_DEVICE_ISA_AVX512_BF16, "avx512-bf16") \
    C(MT_DEVICE_ISA_AVX512, "avx512")           \
    C(MT_DEVICE_ISA_AVX2, "avx2")               \
    C(MT_DEVICE_ISA_NEON, "neon")               \
    C(MT_DEVICE_ISA_SCALAR, "scalar")
#define MT_CHOICES_micro_order(C) C(MT_MICRO_ORDER_BATCH, "batch") C(MT_MICRO_ORDER_LAYER, "layer")
#define MT_CHOICES_hierarchy(C) C(MT_HIERARCHY_AUTO, "auto") C(MT_HIERARCHY_FLAT, "flat")
#define MT_CHOICES_reshard(C) \
    C(MT_RESHARD_WORLD, "world") C(MT_RESHARD_NODE, "node") C(MT_RESHARD_NONE, "none")
#define MT_CHOICES_host_weights(C)  \
    C(MT_HOST_WEIGHTS_NONE, "none") \
    C(MT_HOST_WEIGHTS_DENSE, "dense") C(MT_HOST_WEIGHTS_EXPERTS, "experts") C(MT_HOST_WEIGHTS_ALL, "all")
#define MT_CHOICES_resume(C) \
    C(MT_RESUME_AUTO, "auto") C(MT_RESUME_NEVER, "never") C(MT_RESUME_REQUIRED, "required")
#define MT_CHOICES_recompute(C) \
    C(MT_RECOMPUTE_FULL, "full") C(MT_RECOMPUTE_SELECTIVE, "selective") C(MT_RECOMPUTE_NONE, "none")
#define MT_CHOICES_on_nonfinite(C)    \
    C(MT_ON_NONFINITE_ABORT, "abort") \
    C(MT_ON_NONFINITE_SKIP, "skip")   \
    C(MT_ON_NONFINITE_ROLLBACK, "rollback")
#define MT_CHOICES_on_spike(C)    \
    C(MT_ON_SPIKE_OFF, "off")     \
    C(MT_ON_SPIKE_ABORT, "abort") \
    C(MT_ON_SPIKE_SKIP, "skip")   \
    C(MT_ON_SPIKE_ROLLBACK, "rollback")
/* Results of a layer that may be kept for backward: model/model.h says what each is. */
#define MT_CHOICES_keep(C)            \
    C(MT_KEEP_ATTN_NORM, "attn_norm") \
    C(MT_KEEP_QKV, "qkv")             \
    C(MT_KEEP_ATTENTION, "attention") \
    C(MT_KEEP_ATTN_OUT, "attn_out")   \
    C(MT_KEEP_FFN_NORM, "ffn_norm")   \
    C(MT_KEEP_FFN_UP, "ffn_up")       \
    C(MT_KEEP_FFN_ACT, "ffn_act")     \
    C(MT_KEEP_ROUTER, "router")       \
    C(MT_KEEP_DISPATCH, "dispatch")   \
    C(MT_KEEP_EXPERT_UP, "expert_up") \
    C(MT_KEEP_EXPERT_ACT, "expert_act")
#define MT_CHOICES_place(C) C(MT_PLACE_DEVICE, "device") C(MT_PLACE_HOST, "host")
#define MT_CHOICES_gather(C) \
    C(MT_GATHER_AUTO, "auto") C(MT_GATHER_F32, "f32") C(MT_GATHER_BF16, "bf16") C(MT_GATHER_FP8, "fp8")
#define MT_CHOICES_huge_pages(C) \
    C(MT_HUGE_PAGES_AUTO, "auto") C(MT_HUGE_PAGES_OFF, "off") C(MT_HUGE_PAGES_REQUIRE, "require")
#define MT_CHOICES_placement(C)    \
    C(MT_PLACEMENT_AUTO, "auto")   \
    C(MT_PLACEMENT_FLAT, "flat")   \
    C(MT_PLACEMENT_BLOCK, "block") \
    C(MT_PLACEMENT_OWNED, "owned")
/* Of a sweep: config/sweep.def. */
#define MT_CHOICES_metric(C)                  \
    C(MT_METRIC_TOKENS_PER_S, "tokens_per_s") \
    C(MT_METRIC_MFU, "mfu")                   \
    C(MT_METRIC_STEP_S, "step_s")             \
    C(MT_METRIC_LOSS, "loss")                 \
    C(MT_METRIC_VAL_LOSS, "val_loss")         \
    C(MT_METRIC_DEVICE_BYTES, "device_bytes") \
    C(MT_METRIC_HOST_BYTES, "host_bytes")
#define MT_CHOICES_seeds(C) C(MT_SEEDS_SAME, "same") C(MT_SEEDS_DIFFERENT, "different")
#define MT_CHOICES_dominated(C) C(MT_DOMINATED_SKIP, "skip") C(MT_DOMINATED_RUN, "run")
/* Of base/dtype.h's element types, those one may train in: mt_dtype is the option's type. */
#define MT_CHOICES_dtype(C) C(MT_F32, "f32") C(MT_BF16, "bf16")

/* The sets whose enum is defined here. */
#define MT_CHOICE_SETS(S) \
    S(score)              \
    S(attention)          \
    S(routing)            \
    S(drop)               \
    S(group_score)        \
    S(optimizer)          \
    S(decay)              \
    S(coefficients)       \
    S(muon_scale)         \
    S(muon_dense)         \
    S(data_mode)          \
    S(balance)            \
    S(attention_by)       \
    S(graphs)             \
    S(device_type)        \
    S(device_isa)         \
    S(micro_order)        \
    S(resume)             \
    S(gather)             \
    S(recompute)          \
    S(keep)               \
    S(place)              \
    S(on_nonfinite)       \
    S(on_spike)           \
    S(huge_pages) S(placement) S(hierarchy) S(reshard) S(host_weights) S(metric) S(seeds) S(dominated)

#define MT_CHOICE_ENUMERATOR(name, text) name,
#define MT_CHOICE_ENUM(set) \
    typedef enum mt_choice_##set{MT_CHOICES_##set(MT_CHOICE_ENUMERATOR)} mt_choice_##set;
MT_CHOICE_SETS(MT_CHOICE_ENUM)
typedef mt_dtype mt_choice_dtype;

/* The texts of a set, in the order of its enum, ended by NULL: mt_choices_score and so on. */
#define MT_CHOICE_EXTERN(set) extern const char *const mt_choices_##set[];
MT_CHOICE_SETS(MT_CHOICE_EXTERN)
MT_CHOICE_EXTERN(dtype)

/* The bits of the names in a list such as "qkv, attention", by the order of the set; false: one is not in it, and *bits is of those
 * in front of it. */
bool mt_choices_bits(const char *list, const char *const *set, uint32_t *bits);
#endif
