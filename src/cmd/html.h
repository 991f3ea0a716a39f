/* html.h: text and SVG shapes of a page that is HTML and, so that any reader can check it, well-formed XML. Text is escaped
 * here. The caller looks for errors of the file. */
#ifndef MT_CMD_HTML_H
#define MT_CMD_HTML_H
#include <stdio.h>

#include "base/status.h"

/* In elements and between double quotes. What XML cannot have (control characters, bytes that are not UTF-8) becomes '?'. */
void mt_html_text(FILE *f, const char *text);
void mt_html_printf(FILE *f, const char *fmt, ...) MT_PRINTF(2, 3);

/* The page around what is written between the two: nothing from elsewhere, no script. */
void mt_page_begin(FILE *f, const char *title);
void mt_page_end(FILE *f);

/* ---- SVG, in pixels of a drawing `width` wide ---- */
void mt_svg_begin(FILE *f, double width, double height, const char *label);
/* The same as a file of its own, with a margin and the page's colours. */
void mt_svg_begin_alone(FILE *f, double width, double height, const char *label);
void mt_svg_end(FILE *f);
/* A drawing that begins alone, for programs that know no variables of CSS: its colours written out, the light ones. */
void mt_svg_resolved(FILE *f, const char *svg);
/* style: classes of the page. tip: what is shown where the pointer rests; NULL: nothing. */
void mt_svg_rect(FILE *f, const char *style, double x, double y, double width, double height,
                 const char *tip);
void mt_svg_line(FILE *f, const char *style, double x0, double y0, double x1, double y1);
void mt_svg_text(FILE *f, const char *style, double x, double y, const char *fmt, ...) MT_PRINTF(5, 6);

/* The distance of round ticks, 1, 2 or 5 times a power of ten, of which about n are between 0 and most. */
double mt_tick_step(double most, int n);
#endif
