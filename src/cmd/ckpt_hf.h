/* ckpt_hf.h: moetitan ckpt export and import; argv[0] is the verb. */
#ifndef MT_CMD_CKPT_HF_H
#define MT_CMD_CKPT_HF_H
#include "base/status.h"

MT_MUST_USE mt_status mt_cmd_ckpt_export(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_ckpt_import(int argc, char **argv, mt_err *e);
#endif
