/* page_style.h: how pages of this program look: one palette for light, one for dark and the light one on paper. Classes cN colour
 * shapes, lN lines; w is what only waits. No character that HTML and XML read differently. */
#ifndef MT_CMD_PAGE_STYLE_H
#define MT_CMD_PAGE_STYLE_H

#define MT_PAGE_LIGHT                                                                          \
    "--page:#ffffff;--ink:#1c2430;--soft:#5b6675;--line:#dde2e8;--card:#f5f7f9;--bad:#b3261e;" \
    "--in:#ffffff;--0:#2f5d9b;--1:#5b93d3;--2:#86bbe8;--3:#7367b8;--4:#93a1b3;--5:#bcc6d2;"    \
    "--6:#d9822b;--7:#c2483d;--8:#d3ae2f;--9:#8c6d46;--10:#7b7f86;--11:#a9709b;--12:#4a9a76;"  \
    "--13:#4e5a67;"
#define MT_PAGE_DARK                                                                           \
    "--page:#14181d;--ink:#e4e8ed;--soft:#9aa5b3;--line:#2c343d;--card:#1c2229;--bad:#ff8a80;" \
    "--in:#10141a;--0:#5f8fd0;--1:#82b3ec;--2:#aed4f5;--3:#9d92e0;--4:#8191a5;--5:#5f6d7d;"    \
    "--6:#eb9d4f;--7:#e0695f;--8:#e2c45a;--9:#b3926a;--10:#8f949c;--11:#c594ba;--12:#68b893;"  \
    "--13:#a3aebb;"

static const char mt_page_style[] =
    ":root{color-scheme:light dark;" MT_PAGE_LIGHT "}\n"
    "@media screen and (prefers-color-scheme:dark){:root{" MT_PAGE_DARK "}}\n"
    "body{margin:0 auto;max-width:1160px;padding:28px 20px 60px;background:var(--page);color:var(--ink);"
    "font:14px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;"
    "font-variant-numeric:tabular-nums}\n"
    "h1{font-size:22px;margin:0 0 2px;font-weight:600}h2{font-size:16px;margin:38px 0 4px;font-weight:600}"
    "h3{font-size:13px;margin:16px 0 2px;font-weight:600}\n"
    "p{margin:2px 0 8px;color:var(--soft);max-width:80ch}.bad{color:var(--bad);font-weight:600}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:18px 0}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:10px 12px}"
    ".card b{display:block;font-size:21px;font-weight:600}.card span{color:var(--soft);font-size:12px}\n"
    "svg{display:block;width:100%;height:auto;overflow:visible}svg text{fill:var(--ink);font-size:11.5px}"
    ".end{text-anchor:end}.mid{text-anchor:middle}svg .tick{fill:var(--soft)}svg .head{fill:var(--soft)}"
    "svg .over{paint-order:stroke;stroke:var(--page);stroke-width:3px;stroke-linejoin:round}"
    "svg .in{fill:var(--in)}svg .dark{fill:#14181d}"
    ".grid{stroke:var(--line);stroke-width:1;fill:none}"
    ".limit{stroke:var(--bad);stroke-width:1.5;fill:none}"
    ".peak{stroke:var(--ink);stroke-width:1;stroke-dasharray:4 3;fill:none}"
    ".mark{stroke:var(--ink);stroke-width:1.5;fill:none}\n"
    ".c0{fill:var(--0)}.c1{fill:var(--1)}.c2{fill:var(--2)}.c3{fill:var(--3)}.c4{fill:var(--4)}"
    ".c5{fill:var(--5)}.c6{fill:var(--6)}.c7{fill:var(--7)}.c8{fill:var(--8)}.c9{fill:var(--9)}"
    ".c10{fill:var(--10)}.c11{fill:var(--11)}.c12{fill:var(--12)}.c13{fill:var(--13)}.w{fill-opacity:.3}\n"
    ".l0{stroke:var(--0)}.l1{stroke:var(--6)}.l2{stroke:var(--12)}.l3{stroke:var(--3)}.l4{stroke:var(--7)}"
    ".l5{stroke:var(--8)}.l6{stroke:var(--11)}.l7{stroke:var(--9)}"
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round}.event{stroke:var(--soft);stroke-width:1;"
    "stroke-dasharray:2 3;fill:none}"
    ".dot0{fill:var(--0)}.dot1{fill:var(--6)}.dot2{fill:var(--12)}.dot3{fill:var(--3)}.dot4{fill:var(--7)}"
    ".dot5{fill:var(--8)}.dot6{fill:var(--11)}.dot7{fill:var(--9)}.paper{fill:var(--page)}.faint{opacity:.35}"
    ".frame{stroke:var(--soft);fill:none}\n"
    ".key{display:flex;flex-wrap:wrap;gap:4px 16px;margin:6px 0 4px;font-size:12px;color:var(--soft)}"
    ".key svg{width:11px;height:11px;display:inline-block;margin-right:5px;vertical-align:-1px}\n"
    "table{border-collapse:collapse;margin:8px 0;font-size:13px}"
    "th,td{text-align:left;padding:3px 14px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}"
    "th{color:var(--soft);font-weight:500}.n{text-align:right;white-space:nowrap}"
    ".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:0 40px}"
    ".wide{overflow-x:auto}\n"
    "@page{size:A4 landscape;margin:12mm}\n"
    "@media print{body{max-width:none;padding:0;font-size:11px;-webkit-print-color-adjust:exact;"
    "print-color-adjust:exact}h2,h3{break-after:avoid}svg,tr,.card{break-inside:avoid}section "
    "p,.key{break-after:avoid}}\n";
#endif
