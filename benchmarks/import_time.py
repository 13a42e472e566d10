# SPDX-License-Identifier: Apache-2.0
"""How long `import graphtrace` takes over a bare interpreter; fails above 50 ms.

Prints the median of the differences between `python -c 'import graphtrace'` and `python -c pass`.
The two are timed in turn, so that a machine that gets busier meets both.

    python benchmarks/import_time.py [--runs 20] [--limit-ms 50]
"""

import argparse
import statistics
import subprocess
import sys
import time


def seconds(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin


def differences_ms(runs: int) -> list[float]:
    """Milliseconds that the import adds, a pair of runs each; the first pair only warms up."""
    pairs = []
    for number in range(runs + 1):
        codes = ("pass", "import graphtrace") if number % 2 else ("import graphtrace", "pass")
        taken = {code: seconds(code) for code in codes}
        pairs.append(1000 * (taken["import graphtrace"] - taken["pass"]))
    return pairs[1:]


def main() -> int:
    parser = argparse.ArgumentParser(description="Time of import graphtrace over python -c pass.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--limit-ms", type=float, default=50.0)
    options = parser.parse_args()
    found = differences_ms(options.runs)
    median = statistics.median(found)
    spread = f"{min(found):.1f} to {max(found):.1f}"
    print(f"import graphtrace: {median:.1f} ms over python -c pass", end=" ")
    print(f"(median of {options.runs}, {spread}; limit {options.limit_ms:.0f} ms)")
    return int(median > options.limit_ms)


if __name__ == "__main__":
    sys.exit(main())
