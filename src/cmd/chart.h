/* chart.h: pictures of numbers: series over a common axis, and maps of cells, as SVG for pages and files. */
#ifndef MT_CMD_CHART_H
#define MT_CMD_CHART_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { MT_CHART_INKS = 8 }; /* colours; series beyond begin again */
struct mt_series {
    const char *name; /* in the key; NULL: not there */
    int ink;
    const double *x, *y; /* borrowed: [n]; x does not fall along a line; NaN in y is a gap */
    int64_t n;
    const double *low, *high; /* NULL, or ends of a bar through each dot */
    const char *const *tip;   /* NULL, or what is shown where the pointer rests on a dot */
    bool dots;                /* no line */
    bool faint;
};
struct mt_chart_mark {
    double x;
    const char *tip;
};
struct mt_chart {
    const char *label;           /* for those who cannot see it */
    const char *x_text, *y_text; /* at the axes */
    const char *const *names;    /* NULL, or the places 0, 1, ... of the axis: n_names of them */
    int n_names;
    bool zero; /* y begins at 0 */
    const struct mt_series *series;
    int n;
    const struct mt_chart_mark *mark; /* upright lines: events */
    int n_marks;
    bool alone; /* a file of its own */
};
/* A line of more points than it has pixels keeps the least and the most of every pixel, so that the picture's size is bounded. */
void mt_chart_draw(FILE *f, const struct mt_chart *c);

/* Cells of rows and columns, from the share of a mean that each has: 1 is blank, more is warm, less is cold; NaN: not known. */
struct mt_map {
    const char *label, *x_text, *y_text;
    const double *cell; /* borrowed: [rows][columns] */
    int rows, columns;
    const double *x; /* NULL, or what stands below a column: the first, the last, and some between */
    const int *row;  /* NULL, or what stands beside a row */
    double full;     /* what is warmest, above 1 */
    bool alone;
};
enum { MT_MAP_COLUMNS = 160, MT_MAP_ROWS = 256 }; /* more are drawn together, by the one furthest from 1 */
void mt_map_draw(FILE *f, const struct mt_map *m);
#endif
