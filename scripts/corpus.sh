#!/bin/sh
# corpus.sh OUTDIR: English prose for the quickstart, from a Debian package.
#
# Writes OUTDIR/corpus.txt (training) and OUTDIR/valid.txt (every 20th chapter: a sample of the whole book,
# where its tail would be one author). Paragraphs between blank lines are documents. The package is fetched
# and unpacked here, not installed: that needs no root, and slim images drop /usr/share/doc on installation.
# Text: the King James Bible of bible-kjv-text, 4.1 MB, verse numbers left out; should its reader not run
# here, the manuals of git-doc. Asks nothing; does nothing when the files are there and unchanged.
set -eu
export LC_ALL=C

[ $# -eq 1 ] || { echo "usage: corpus.sh OUTDIR" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)

say() { echo "corpus: $*" >&2; }
fail() { say "$*"; exit 1; }

if (cd "$out" && sha256sum --status -c corpus.sha256) 2>/dev/null; then
    say "$out/corpus.txt is there"
    exit 0
fi

# Beside the result, as programs are run from it and /tmp may forbid that.
work=$(mktemp -d "$out/.corpus-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work"

# As root, apt would fetch as a user who cannot write here.
apt="-o APT::Sandbox::User=root -o Acquire::Retries=3"

# Package lists of our own where the machine has none (a fresh image), so that root isn't needed.
fetch_lists() {
    say "fetching package lists"
    mkdir -p lists/partial cache/archives/partial
    apt="$apt -o Dir::State::lists=$work/lists -o Dir::Cache=$work/cache"
    # shellcheck disable=SC2086
    apt-get -qq $apt update
}

# Unpacks the package $1 into $work/root.
unpack() {
    # shellcheck disable=SC2086
    apt-get -qq $apt download "$1" >log 2>&1 || { cat log >&2; return 1; }
    for deb in "$1"_*.deb; do dpkg-deb -x "$deb" root; done
}

fetch_king_james() {
    unpack bible-kjv-text && unpack bible-kjv || return 1
    if ldd root/usr/bin/bible | grep -q 'not found'; then
        readline=$(dpkg-deb -f bible-kjv_*.deb Depends | sed -n 's/.*\(libreadline[^ ,(]*\).*/\1/p')
        unpack "$readline" || return 1
    fi
    libraries=$(dirname "$(find "$work/root" -name 'libreadline.so*' -print -quit)")
    HOME=$work LD_LIBRARY_PATH=$libraries root/usr/bin/bible -f -p root/usr/lib gen1:1-rev22:21 \
        </dev/null >verses || return 1
    [ "$(grep -c '^[1-3]\{0,1\}[A-Za-z]\{2,\}[0-9]*:[0-9]* [^ ]' verses)" -ge 31000 ] || return 1
    # "Ge1:1 In the beginning": a line a verse without its number, a paragraph a chapter.
    awk '{ chapter = $1; sub(/:.*/, "", chapter)
           if (chapter != last) { number++; last = chapter; to = number % 20 ? "corpus.txt" : "valid.txt"
                                  if (used[to]++) print "" >to }
           sub(/^[^ ]* /, ""); print >to }' verses
}

fetch_git_manuals() {
    unpack git-doc || return 1
    number=0
    : >corpus.txt
    : >valid.txt
    find root/usr/share/doc -name '*.txt' -type f | sort >manuals
    while read -r manual; do
        number=$((number + 1))
        to=corpus.txt
        [ $((number % 20)) -ne 0 ] || to=valid.txt
        { cat "$manual"; echo; } >>$to
    done <manuals
}

apt-cache show bible-kjv-text >/dev/null 2>&1 || fetch_lists
fetch_king_james || { say "no text from bible-kjv, taking git-doc"; fetch_git_manuals; } ||
    fail "cannot fetch bible-kjv-text or git-doc: is a Debian package source configured and reachable?"
if [ "$(wc -c <corpus.txt)" -lt 1000000 ] || [ "$(wc -c <valid.txt)" -lt 20000 ]; then
    fail "the packages hold less text than expected"
fi
sha256sum corpus.txt valid.txt >corpus.sha256
mv corpus.txt valid.txt "$out/"
mv corpus.sha256 "$out/"
say "$(wc -c <"$out/corpus.txt") bytes in $out/corpus.txt, $(wc -c <"$out/valid.txt") in valid.txt"
