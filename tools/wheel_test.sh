#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel (through the sdist), installs it in a fresh environment outside of this checkout and
# runs the tests from a copy, so that nothing of the checkout can be imported.
#
#   tools/wheel_test.sh [PYTEST ARGUMENTS]      default: -q -n auto
set -eu
cd "$(dirname "$0")/.."
checkout=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
[ $# -gt 0 ] || set -- -q -n auto

echo "wheel-test: building" >&2
.venv/bin/python -m build --outdir "$work/dist" . >"$work/build.log" 2>&1 || {
    tail -40 "$work/build.log" >&2
    exit 1
}
echo "wheel-test: installing in a fresh environment" >&2
.venv/bin/python -m venv "$work/venv"
pip() {
    "$work/venv/bin/python" -m pip install -qq --disable-pip-version-check "$@"
}
if ! command -v nvidia-smi >/dev/null 2>&1; then
    # Unquoted on purpose: it may carry options, such as an index of CPU builds.
    # shellcheck disable=SC2086
    pip ${TORCH:-torch==2.13.0}
fi
wheel=$(ls "$work"/dist/*.whl)
pip "graphtrace[torch,dev] @ file://$wheel"

mkdir "$work/copy"
cp -R tests examples benchmarks pyproject.toml "$work/copy/"
find "$work/copy" -name __pycache__ -type d -prune -exec rm -rf {} +
data=${GRAPHTRACE_DATA:-$checkout/../shared/data}
cd "$work/copy"
echo "wheel-test: running the tests against $(basename "$wheel")" >&2
unset PYTHONPATH
PATH="$work/venv/bin:$PATH" GRAPHTRACE_DATA=$data GRAPHTRACE_WHEEL="$wheel" \
    "$work/venv/bin/python" -m pytest "$@"
