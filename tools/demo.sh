#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Records the example, analyzes it, and analyzes a synthetic graph export; prints where the pages are.
# Run it by `make demo`, which makes the environment first. It may be run again.
set -eu
cd "$(dirname "$0")/.."
PATH="$PWD/.venv/bin:$PATH"
out=demo-output
mkdir -p "$out"

run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

run graphtrace capture -o $out/infer.gtrace --force -- python examples/infer.py
run graphtrace analyze $out/infer.gtrace -o $out/infer.html --force
run python -m graphtrace.testing.nsys planted_vit $out/synthetic-graph.sqlite --force
run graphtrace analyze $out/synthetic-graph.sqlite -o $out/synthetic-graph.html --force

for page in infer synthetic-graph; do
    [ -s "$out/$page.html" ] || { echo "demo: $out/$page.html was not written" >&2; exit 1; }
done
cat <<PAGES

Open in a browser:
  $PWD/$out/infer.html             the example, recorded on this machine
  $PWD/$out/synthetic-graph.html   a synthetic graph export with a planted stall
PAGES
