# test: timeout=180
# `moetitan report`: the page of a run that was stopped, resumed and traced, and of two runs laid over one another: complete in
# itself, well-formed, with the run's own numbers, and as a headless browser lays it out.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
cd "$work" || exit

options=(train.steps=40 ckpt.interval=10 run.expert_interval=5 device.workers=1)
run "$MT_BIN" train tiny.yaml "${options[@]}" run.dir=one run.stop_after=25 'train.trace.steps=[20]'
check "a run, stopped" ended 75
run "$MT_BIN" train tiny.yaml "${options[@]}" run.dir=one 'train.trace.steps=[30]'
check "and resumed" ended 0
run "$MT_BIN" train tiny.yaml "${options[@]}" run.dir='t<w>&o' optim.lr=1e-3 model.experts=8
check "another" ended 0

# what the run keeps for it
events() { grep -o '"event": "[a-z]*"' "$1/events.jsonl" | cut -d'"' -f4 | xargs; }
check "its events" test "$(events one)" = "start checkpoint checkpoint checkpoint stop resume checkpoint checkpoint end"
check "each with time and step" test "$(grep -cE '^\{"time": "[0-9T:-]+Z", "step": [0-9]+, "event": "[a-z]+", "text": "[^"]*"\}$' one/events.jsonl)" = 9
check "rows of experts after the first, every fifth and the last step" \
    test "$(grep -o '"step": [0-9]*' one/experts.jsonl | grep -o '[0-9]*' | xargs)" = "1 5 10 15 20 25 30 35 40"
check "all rows are there: sequences, tokens, top-2" awk -F'[][]' '{ n = split($2, x, ","); s = 0; for (i = 1; i <= n; i++) s += x[i]
    if (n != 4 || s != 4 * 32 * 2) exit 1 }' one/experts.jsonl
check "what a process holds is more than its arenas" awk -F'"resident_bytes": ' '{ split($2, x, /[,}]/) } /"loss"/ && !(x[1] > 1000000) { exit 1 }' one/metrics.jsonl
shares() { # of each step, what its compute stream stood still
    awk -F'"' '/"loss"/ { for (i = 2; i < NF; i += 2) { v = $(i + 1); gsub(/[:, }]/, "", v); x[$i] = v }
        print x["exposed_s"] / (x["tokens"] / x["step"] / x["tokens_per_s"]) }' "$1/metrics.jsonl"
}
check "it stands still no longer than its step takes" awk '!($1 >= 0 && $1 <= 1) { exit 1 } END { exit NR != 40 }' <(shares one)
run "$MT_BIN" train tiny.yaml "${options[@]}" run.dir=four train.micro_batch=1 --fake-ranks 4
check "four ranks wait for each other in every step" awk '!($1 > 0 && $1 <= 1) { exit 1 } END { exit NR != 40 }' <(shares four)
run "$MT_BIN" train tiny.yaml "${options[@]}" run.dir=none run.expert_interval=0 train.steps=6
check "no experts.jsonl where it is not wanted" test ! -e none/experts.jsonl

# the page
run "$MT_BIN" report one -o one.html --svg svg
check "a page" ended 0
run "$MT_BIN" report one -o again.html
check "always the same" cmp one.html again.html
run "$MT_BIN" report one 't<w>&o' -o two.html
check "a page of two" ended 0
whole() { # FILE   XML but for its first line, and nothing from elsewhere
    xmllint --noout <(tail -n +2 "$1") && ! grep -qE 'https?:|<script|<link|src=|href|@import|url\(|nan|inf"' "$1"
}
check "well-formed, complete in itself" whole one.html
check "that of two, too" whole two.html
check "names are escaped" grep -q 't&lt;w&gt;&amp;o' two.html
check "pictures" xmllint --noout svg/{loss,validation,throughput,mfu,gradient-norm,learning-rate,memory,data-wait,expert-balance,exposed,experts,experts-over-steps}.svg
last=$(grep '"loss"' one/metrics.jsonl | tail -n 1 | sed 's/.*"loss": \([0-9.]*\).*/\1/')
check "the last loss is in the table" grep -q "<td class=\"n\">$(printf %.4f "$last")</td>" one.html
check "starts, stops and resumes are told" test "$(grep -cE '<td>(start|stop|resume|end)</td>' one.html)" = 4
check "and marked in the curves" grep -q 'class="event".*step 25: resume 1 rank' one.html
check "traced steps: where the time went" grep -qE 'one, step 30: [0-9.]+ ms' one.html
check "options that are not the defaults" grep -q '<tr><td>run.expert_interval</td><td>5</td></tr>' one.html
check "options that differ" grep -q '<tr><td>model.experts</td><td>4</td><td>8</td></tr>' two.html
check "no others" test -z "$(grep '<td>train.seq_len</td>' two.html)"

# skipped steps, a bad end, a torn line, an old run's folder
mkdir torn && sed '$d' one/metrics.jsonl >torn/metrics.jsonl
echo '{"step": 41, "rollback": 30, "skipped": "nonfinite", "loss": null, "grad_norm": null}' >>torn/metrics.jsonl
printf '{"step": 42, "lo' >>torn/metrics.jsonl
echo '{"code": 9, "name": "HANG", "message": "rank 3 <is> missing", "step": 41, "rank": 0, "time": "2099-01-01T00:00:00Z"}' >torn/exit.json
run "$MT_BIN" report torn -o torn.html
check "less than everything" ended 0
check "is well-formed, too" whole torn.html
check "a skipped step" grep -q '<td>skipped</td><td>back to the weights of step 30</td>' torn.html
check "why it ended" grep -q 'HANG (exit code 9): rank 3 &lt;is&gt; missing' torn.html
mkdir empty && : >empty/metrics.jsonl
run "$MT_BIN" report empty -o empty.html
check "a run without a step" whole empty.html
run "$MT_BIN" report svg
check "no run's folder" ended 2
check "and why" says "'svg' is no run's folder: it has no metrics.jsonl"
run "$MT_BIN" report
check "no folder" says 'usage: moetitan report'
run "$MT_BIN" report one -o /no/such/folder/page.html
check "a page that cannot be written" ended 6

# as PNG, by librsvg's program: twice the size that the SVG states
if command -v rsvg-convert >/dev/null; then
    run "$MT_BIN" report one -o one.html --png png
    check "PNG" ended 0
    check "a PNG for each SVG" test "$(cd svg && ls | sed 's/svg$/png/')" = "$(cd png && ls)"
    for f in svg/*.svg; do # the header: signature, IHDR, width, height
        read -r width height < <(sed -nE '1,5s/.* width="([0-9.]+)" height="([0-9.]+)".*/\1 \2/p' "$f")
        name=${f##*/}
        [[ $(od -An -tx1 -N24 "png/${name%.svg}.png" | tr -d ' \n') == 89504e470d0a1a0a0000000d49484452$(printf '%08x%08x' $((2 * width)) $((2 * height))) ]] ||
            echo "$name"
    done >"$work/out"
    check "of twice its size" test ! -s "$work/out"
    run "$MT_BIN" report one -o one.html --png one.html/x
    check "a folder that cannot be" ended 6
fi
run env PATH="$work" "$MT_BIN" report one -o unwritten.html --png none
check "without that program: 2" ended 2
check "and why" says 'report: --png needs .*rsvg-convert, and cannot run rsvg-convert: .*librsvg2-bin.*--svg'
check "before anything is written" test ! -e unwritten.html -a ! -e none

# in a browser: a copy of the page asks the browser what it has laid out
browser=$(command -v chromium || command -v chromium-browser || true)
if [[ -z $browser ]]; then
    echo "skipped: no chromium here; on Debian: apt-get install chromium"
    echo "$passed passed, $failed failed, 1 skipped"
    [[ $failed == 0 ]]
    exit
fi
looked() { # PAGE   pictures of some size; drawn shapes outside of their picture; text over text; errors
    sed 's|</body>|<script>\
addEventListener("load", () => {\
  let svg = [...document.querySelectorAll("svg[role=img]")], out = 0, over = 0, lines = 0;\
  for (const s of svg) {\
    const b = s.getBoundingClientRect();\
    for (const x of s.querySelectorAll("path.line, rect, circle")) {\
      const r = x.getBoundingClientRect();\
      if (r.left < b.left - 2 \|\| r.right > b.right + 2 \|\| r.top < b.top - 2 \|\| r.bottom > b.bottom + 2) out++;\
      if (x.matches("path.line") \&\& r.width > 20) lines++;\
    }\
    const t = [...s.querySelectorAll("text")].map(x => x.getBoundingClientRect());\
    for (let i = 0; i < t.length; i++) for (let k = 0; k < i; k++)\
      if (t[i].left < t[k].right - 2 \&\& t[k].left < t[i].right - 2 \&\& t[i].top < t[k].bottom - 4 \&\& t[k].top < t[i].bottom - 4) over++;\
  }\
  const large = svg.filter(s => s.getBoundingClientRect().width > 500 \&\& s.getBoundingClientRect().height > 40).length;\
  document.title = `pictures ${large} of ${svg.length}, lines ${lines}, outside ${out}, over ${over}, rows ${document.querySelectorAll("tr").length}`;\
});</script></body>|' "$1" >"$work/asked.html"
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
        --window-size=1200,900 --virtual-time-budget=3000 --dump-dom "file://$work/asked.html" >"$work/dom" 2>"$work/err" </dev/null
    grep -o '<title>[^<]*' "$work/dom" >"$work/out"
}
looked "$work/one.html"
check "a browser lays it out: twelve pictures, their twelve lines inside, no text over text" \
    says '^<title>pictures 12 of 12, lines 12, outside 0, over 0, rows [0-9]{2,}'
looked "$work/two.html"
check "two runs: two lines a curve, two maps a run" says '^<title>pictures 14 of 14, lines 24, outside 0, over 0, rows [0-9]{2,}'
looked "$work/empty.html"
check "an empty run: no picture" says '^<title>pictures 0 of 0, lines 0, outside 0, over 0'
cp svg/loss.svg "$work/loss.svg"
timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
    --window-size=1150,360 --screenshot="$work/loss.png" "file://$work/loss.svg" >"$work/err" 2>&1 </dev/null
check "a picture by itself is one that a browser shows" test "$(stat -c %s "$work/loss.png" 2>/dev/null || echo 0)" -gt 6000
colours() { # PNG   how many colours it has, and the share of its commonest in percent, as the browser decodes it
    {
        printf '<!DOCTYPE html><title>none</title><script>const i = new Image(); i.onload = () => { const c = document.createElement("canvas");'
        printf 'c.width = i.width; c.height = i.height; const x = c.getContext("2d"); x.drawImage(i, 0, 0); const n = new Map();'
        printf 'for (const v of new Uint32Array(x.getImageData(0, 0, c.width, c.height).data.buffer)) n.set(v, (n.get(v) || 0) + 1);'
        printf 'document.title = "colours " + n.size + " " + Math.round(100 * Math.max(...n.values()) / c.width / c.height); };'
        printf 'i.src = "data:image/png;base64,%s";</script>' "$(base64 -w0 "$1")"
    } >"$work/asked.html"
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
        --virtual-time-budget=3000 --dump-dom "file://$work/asked.html" 2>"$work/err" </dev/null | sed -n 's/.*<title>colours \([0-9]*\) \([0-9]*\).*/\1 \2/p'
}
if [[ -d png ]]; then
    read -r n most < <(colours png/loss.png)
    check "a PNG opens, and has paper with something on it" test "${n:-0}" -gt 20 -a "${most:-0}" -gt 50 -a "${most:-100}" -lt 100
    read -r n most < <(colours png/experts.png)
    check "so has that of experts" test "${n:-0}" -gt 20 -a "${most:-0}" -gt 10 -a "${most:-100}" -lt 100
fi
finish
