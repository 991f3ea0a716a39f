/* cmd.h: the subcommands, one function and one file each.
 *
 * A command gets its own name as argv[0] and its arguments from argv[1] on, writes its result to stdout, and
 * leaves the message of a failure in *e; main prints it and exits with the returned status. */
#ifndef MT_CMD_CMD_H
#define MT_CMD_CMD_H
#include "base/status.h"

MT_MUST_USE mt_status mt_cmd_train(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_plan(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_sweep(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_report(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_doctor(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_submit(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_job(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_sample(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_ckpt(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_data(int argc, char **argv, mt_err *e);
MT_MUST_USE mt_status mt_cmd_options(int argc, char **argv, mt_err *e);
#endif
