#include "train/telemetry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "train/prometheus.h"

mt_status mt_telemetry_open(struct mt_telemetry *t, const mt_config *c, int64_t step, mt_err *e)
{
    char folder[MT_CONFIG_PATH + 16];
    *t = (struct mt_telemetry){.cfg = c, .tensorboard.fd = -1};
    if (!c->run_tensorboard) return MT_OK;
    snprintf(folder, sizeof folder, "%s/tensorboard", c->run_dir);
    return mt_tensorboard_open(&t->tensorboard, folder, step, e);
}

void mt_telemetry_tell(struct mt_telemetry *t, const struct mt_scalars *s, bool show)
{
    if (!t->cfg) return;
    mt_tensorboard_write(&t->tensorboard, s);
    const char *path = t->cfg->run_prometheus;
    if (!show || !path[0] || mt_prometheus_write(path, t->cfg->run_dir, s) || t->told) return;
    fprintf(stderr, "moetitan: cannot write run.prometheus '%s': %s; training goes on\n", path,
            strerror(errno));
    t->told = true;
}

void mt_telemetry_close(struct mt_telemetry *t)
{
    if (t->cfg) mt_tensorboard_close(&t->tensorboard);
    t->cfg = NULL;
}
