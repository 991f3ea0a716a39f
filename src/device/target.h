/* target.h: what a device needs from a layout, stated without the device: alignment and working weight formats.
 *
 * `sim` is opened for a target, so the bytes that a plan shows are the bytes of the run. */
#ifndef MT_DEVICE_TARGET_H
#define MT_DEVICE_TARGET_H
#include <stdint.h>

#include "base/status.h"
#include "device/cpu/isa.h"
#include "device/fp8_form.h"
#include "device/view.h"

struct mt_target {
    const char *name; /* "cpu/amx-bf16", "cuda/sm90" */
    int64_t align;    /* of every ledger row, bytes */
    int panel;        /* a packed weight is made of panels of this many outputs, each contiguous */
    int k_align_f32, k_align_bf16; /* inputs of a packed weight are padded to a multiple of this */
    bool
        one_form; /* products of both directions read a weight in the same form: none is turned for backward */
    int row_pad_bytes; /* activation rows whose length is a multiple of 512 bytes get this many more */
    bool
        scratch; /* the device's kernels and libraries use memory of their own: a row of device.scratch bytes */
};
/* Targets of the cpu by instruction set; isa must be one of enum mt_isa. */
const struct mt_target *mt_target_cpu(enum mt_isa isa);
/* The target of the cuda device: both working forms of a weight are row-major [o, i] in the working type. */
const struct mt_target *mt_target_cuda(void);

/* Bytes of a [o, i] weight in either packed form; both are o padded to whole panels times i padded to k_align in the NT
 * form, i padded to whole panels times o padded to k_align in the NN form. */
int64_t mt_packed_bytes(const struct mt_target *t, mt_dtype d, enum mt_format f, int64_t o, int64_t i);
/* The same weight, packed NT, as fp8 on the wire. */
struct mt_fp8_form mt_fp8_form(const struct mt_target *t, mt_dtype d, int64_t o, int64_t i);
/* A packed view at byte off of a row. */
mt_view mt_packed_view(const struct mt_target *t, int32_t row, mt_dtype d, enum mt_format f, int64_t off,
                       int64_t o, int64_t i);
#endif
