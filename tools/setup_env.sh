#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the local environment .venv and installs this checkout into it, editable.
#
#   tools/setup_env.sh EXTRAS STAMP     e.g. tools/setup_env.sh torch,dev .venv/.ready-dev
#
# PYTHON  the interpreter to build it with; by default the first of python3, python3.13, python3.12
#         and python3.11 that is 3.11 or newer
# TORCH   what pip installs as torch where there is no nvidia-smi. A plain `torch` is a CUDA build of
#         gigabytes on Linux, so that machines without a GPU get this one first.
set -eu
cd "$(dirname "$0")/.."
extras=$1
stamp=$2
TORCH=${TORCH:-torch==2.13.0}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" && echo "$PYTHON"
        return 0
    fi
    for candidate in python3 python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then
            echo "$candidate"
            return 0
        fi
    done
}

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

python=$(find_python)
[ -n "$python" ] || fail \
    "${PYTHON:-python3} is missing or older than Python 3.11." \
    "Install Python 3.11 or newer, or name it: make PYTHON=/path/to/python3.12 ..."

if ! .venv/bin/python -c 'import pip' >/dev/null 2>&1; then
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 || fail \
        "$python has no venv module with pip, which Debian and Ubuntu package apart." \
        "Install it (apt-get install python3-venv), or name another: make PYTHON=/path/to/python ..."
    echo "setup: making .venv with $("$python" --version)" >&2
    "$python" -m venv --clear .venv
fi

pip() {
    .venv/bin/python -m pip install -qq --disable-pip-version-check "$@"
}

if ! command -v nvidia-smi >/dev/null 2>&1 && ! .venv/bin/python -c 'import torch' 2>/dev/null; then
    echo "setup: installing $TORCH (once)" >&2
    # Unquoted on purpose: it may carry options, such as an index of CPU builds.
    # shellcheck disable=SC2086
    pip $TORCH
fi
echo "setup: installing graphtrace [$extras] into .venv" >&2
pip --editable ".[$extras]"
touch "$stamp"
