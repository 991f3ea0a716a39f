#include "cmd/html.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "cmd/page_style.h"

enum { MOST_TEXT = 512 };

/* Bytes of the UTF-8 character at s, 0 if there is none that XML may have. */
static int character(const unsigned char *s)
{
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (s[0] >= 0xf8 || (s[0] >= 0x80 && s[0] < 0xc0)) return 0;
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    bool outside = c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || (c & ~1u) == 0xfffe;
    return outside || (c < ' ' && c != '\t' && c != '\n') ? 0 : n;
}

void mt_html_text(FILE *f, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        int n = character(s);
        switch (*s) {
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '&': fputs("&amp;", f); break;
        case '"': fputs("&quot;", f); break;
        default:
            if (n)
                fwrite(s, 1, (size_t)n, f);
            else
                fputc('?', f);
        }
        s += n ? n : 1;
    }
}

static void put_list(FILE *f, const char *fmt, va_list ap)
{
    char text[MOST_TEXT];
    vsnprintf(text, sizeof text, fmt, ap);
    mt_html_text(f, text);
}
void mt_html_printf(FILE *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_list(f, fmt, ap);
    va_end(ap);
}

void mt_page_begin(FILE *f, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>",
          f);
    mt_html_text(f, title);
    fprintf(f, "</title>\n<style>\n%s</style>\n</head>\n<body>\n", mt_page_style);
}
void mt_page_end(FILE *f)
{
    fputs("</body>\n</html>\n", f);
}

void mt_svg_begin(FILE *f, double width, double height, const char *label)
{
    fprintf(f, "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"", width, height);
    mt_html_text(f, label);
    fputs("\">\n", f);
}
void mt_svg_begin_alone(FILE *f, double width, double height, const char *label)
{
    enum { MARGIN = 12 };
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"%d %d %g %g\" width=\"%g\" height=\"%g\" "
            "role=\"img\" "
            "font-family=\"sans-serif\" aria-label=\"",
            -MARGIN, -MARGIN, width + 2 * MARGIN, height + 2 * MARGIN, width + 2 * MARGIN,
            height + 2 * MARGIN);
    mt_html_text(f, label);
    fprintf(f, "\">\n<style>\n%s</style>\n", mt_page_style);
    mt_svg_rect(f, "paper", -MARGIN, -MARGIN, width + 2 * MARGIN, height + 2 * MARGIN, NULL);
}
void mt_svg_end(FILE *f)
{
    fputs("</svg>\n", f);
}

/* The light palette's value of a name of n characters ("--ink"), up to the next semicolon; "" is none of the page's. */
static const char *light(const char *name, size_t n)
{
    for (const char *at = MT_PAGE_LIGHT; *at; at += strcspn(at, ";") + 1)
        if (!strncmp(at, name, n) && at[n] == ':') return at + n + 1;
    return "";
}
void mt_svg_resolved(FILE *f, const char *svg)
{
    static const char var[] = "var(";
    for (const char *at; (at = strstr(svg, var)); svg = at + 1) {
        fwrite(svg, 1, (size_t)(at - svg), f);
        const char *name = at + sizeof var - 1;
        at = name + strcspn(name, ")");
        const char *value = light(name, (size_t)(at - name));
        fwrite(value, 1, strcspn(value, ";"), f);
    }
    fputs(svg, f);
}

void mt_svg_rect(FILE *f, const char *style, double x, double y, double width, double height, const char *tip)
{
    fprintf(f, "<rect class=\"%s\" x=\"%.4g\" y=\"%.4g\" width=\"%.4g\" height=\"%.4g\"", style, x, y, width,
            height);
    if (tip) {
        fputs("><title>", f);
        mt_html_text(f, tip);
        fputs("</title></rect>\n", f);
    } else {
        fputs("/>\n", f);
    }
}
void mt_svg_line(FILE *f, const char *style, double x0, double y0, double x1, double y1)
{
    fprintf(f, "<path class=\"%s\" d=\"M%.5g %.5gL%.5g %.5g\"/>\n", style, x0, y0, x1, y1);
}
void mt_svg_text(FILE *f, const char *style, double x, double y, const char *fmt, ...)
{
    va_list ap;
    fprintf(f, "<text class=\"%s\" x=\"%.5g\" y=\"%.5g\">", style, x, y);
    va_start(ap, fmt);
    put_list(f, fmt, ap);
    va_end(ap);
    fputs("</text>\n", f);
}

double mt_tick_step(double most, int n)
{
    if (!(most > 0)) return 1;
    double step = pow(10, floor(log10(most / n))), more = most / n / step;
    return step * (more > 5 ? 10 : more > 2 ? 5 : more > 1 ? 2 : 1);
}
