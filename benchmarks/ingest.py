# SPDX-License-Identifier: Apache-2.0
"""Time and memory of a whole analysis of a large export, side by side with what others need.

Builds a synthetic export of Nsight Systems (a graph of 196 nodes, replayed), then runs each command
in a process of its own, in turns, so that a machine that gets busier meets all of them. Prints a
table in Markdown: medians of wall time and peak memory, and the ratio to `nsys stats`, which prints
one summary of kernels. Peers that are not installed, or fail, are listed with the reason.

    python benchmarks/ingest.py [--replays 10000] [--runs 5] [--work DIR]
                                [--install-peers | --peer-venv DIR]
                                [--limit-ratio R] [--limit-mb M] [--limit-gtrace-ratio R]

nsys is taken from the PATH; `--install-peers` installs nsys-ai from the package index into an
environment of its own, beside the files.

Exits with 1 above a limit; a limit on a ratio holds only where nsys is installed.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graphtrace import __version__
from graphtrace.testing.nsys import Kernel, NsysExport, Stage

BLOCKS = 14
KERNELS = 7
LIMIT_S = 600.0
# As where it was installed, modules are not compiled anew each time.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


@dataclass(slots=True)
class Contender:
    """A command to measure, and what was measured."""

    name: str
    command: Sequence[str]
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    failed: str | None = None


def build(path: Path, replays: int) -> int:
    """Write the export; returns the number of its kernels."""
    names = [f"void kernel_{i}<float>(float*, float const*, int)" for i in range(2 * KERNELS)]
    stages = [
        Stage(
            f"encoder.layers.{block}/{('attn', 'mlp')[half]}",
            [
                Kernel(names[half * KERNELS + i], 3_000 + 37 * i + 11 * block, (256 + 8 * i, 1, 1))
                for i in range(KERNELS)
            ],
        )
        for block in range(BLOCKS)
        for half in (0, 1)
    ]
    export = NsysExport("2025")
    process = export.process(pid=4242)
    with process.range("warm-up"):
        for stage in stages:
            with process.range(stage.path, domain="graphtrace"):
                process.eager(stage.kernels)
    process.now = max(process.now, process.free) + 100_000
    process.graph(stages).replays(replays, 1_000_000, jitter=0.02)
    export.write(path, force=True)
    return BLOCKS * 2 * KERNELS * (replays + 1)


def measure(contender: Contender) -> None:
    """Run a command once; what fails is not run again."""
    if contender.failed is not None:
        return
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(
            contender.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            wall = time.perf_counter() - begin
            if pid:
                break
            if wall > LIMIT_S:
                os.killpg(process.pid, 9)
                process.wait()
                contender.failed = f"ran longer than {LIMIT_S:.0f} s"
                return
            time.sleep(0.002)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").strip().splitlines()
            last = said[-1].strip()[:100] if said else "nothing said"
            contender.failed = f"exit code {process.returncode}: {last}"
            return
    contender.wall_s.append(wall)
    contender.cpu_s.append(usage.ru_utime + usage.ru_stime)
    scale = 1 << 20 if sys.platform == "darwin" else 1 << 10
    contender.peak_mb.append(usage.ru_maxrss / scale)


def install_peers(work: Path) -> Path | None:
    """An environment with the peers that the package index has; None where it has none."""
    venv = work / "peers"
    for command in (
        [sys.executable, "-m", "venv", str(venv)],
        [str(venv / "bin" / "pip"), "install", "--quiet", "nsys-ai"],
    ):
        if subprocess.run(command, check=False).returncode:
            print("nsys-ai cannot be installed; it is left out.", file=sys.stderr)
            return None
    return venv


def contenders(work: Path, export: Path, venv: Path | None) -> list[Contender]:
    """What is compared: ours, and the peers that are here."""
    graphtrace = [sys.executable, "-m", "graphtrace"]
    recording = work / "run.gtrace"
    subprocess.run(
        [*graphtrace, "export", str(export), "-o", str(recording), "--force"], check=True
    )
    found = [
        Contender("nsys stats, one summary of kernels", stats(export)),
        Contender("graphtrace analyze (.sqlite)", [*graphtrace, *asked(export)]),
        Contender("graphtrace analyze (.gtrace)", [*graphtrace, *asked(recording)]),
        Contender("graphtrace info", [*graphtrace, "info", str(export), "--format", "json"]),
    ]
    if shutil.which("nsys") is None:
        found[0].failed = "nsys is not installed"
    if venv is not None:
        twin = work / "peer.sqlite"  # nsys-ai writes beside what it reads
        shutil.copyfile(export, twin)
        ai = str(venv / "bin" / "nsys-ai")
        found.append(Contender("nsys-ai warm", [ai, "warm", str(twin)]))
        top = [ai, "skill", "run", "top_kernels", str(twin)]
        found.append(Contender("nsys-ai skill run top_kernels", top))
    return found


def asked(path: Path) -> list[str]:
    return ["analyze", str(path), "--format", "json"]


def stats(export: Path) -> list[str]:
    """The command of the installed nsys; the report was renamed in 2023."""
    shown = subprocess.run(
        ["nsys", "stats", "--help-reports", "ALL"], capture_output=True, text=True, check=False
    )
    name = "cuda_gpu_kern_sum" if "cuda_gpu_kern_sum" in shown.stdout else "gpukernsum"
    return ["nsys", "stats", "--report", name, str(export)]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def table(found: Sequence[Contender]) -> str:
    """The measurements as a table in Markdown, ratio first."""
    base = median(found[0].wall_s) if found[0].wall_s else None
    lines = [
        "| command | ratio to nsys stats | wall, s | CPU, s | peak memory, MB |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for one in found:
        if one.failed is not None:
            lines.append(f"| {one.name} | not measured: {one.failed} | | | |")
            continue
        wall = median(one.wall_s)
        ratio = "" if base is None else f"{wall / base:.2f}"
        spread = f"{wall:.2f} ({min(one.wall_s):.2f} to {max(one.wall_s):.2f})"
        lines.append(
            f"| {one.name} | {ratio} | {spread} | {median(one.cpu_s):.2f} "
            f"| {median(one.peak_mb):.0f} |"
        )
    return "\n".join(lines)


def above(found: Sequence[Contender], options: argparse.Namespace) -> list[str]:
    """Limits that do not hold."""
    nsys, sqlite, gtrace = found[:3]
    broken = [f"{one.name} failed: {one.failed}" for one in (sqlite, gtrace) if one.failed]
    if broken:
        return broken
    if options.limit_mb and median(sqlite.peak_mb) > options.limit_mb:
        broken.append(f"{median(sqlite.peak_mb):.0f} MB are above {options.limit_mb:.0f}")
    for one, limit in ((sqlite, options.limit_ratio), (gtrace, options.limit_gtrace_ratio)):
        if limit and nsys.wall_s and median(one.wall_s) > limit * median(nsys.wall_s):
            ratio = median(one.wall_s) / median(nsys.wall_s)
            broken.append(f"{one.name}: a ratio of {ratio:.2f} is above {limit:.2f}")
    return broken


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Analysis of a large export beside its peers.")
    parser.add_argument("--replays", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--work", type=Path, help="keep the files here; a temporary folder else")
    parser.add_argument("--peer-venv", type=Path, help="environment with nsys-ai installed")
    parser.add_argument("--install-peers", action="store_true", help="install nsys-ai for it")
    parser.add_argument("--limit-ratio", type=float)
    parser.add_argument("--limit-gtrace-ratio", type=float)
    parser.add_argument("--limit-mb", type=float)
    return parser.parse_args()


def run(work: Path, options: argparse.Namespace) -> int:
    export = work / "run.sqlite"
    kernels = build(export, options.replays)
    size = export.stat().st_size / (1 << 20)
    venv = install_peers(work) if options.install_peers else options.peer_venv
    found = contenders(work, export, venv)
    # The first runs are not measured: they leave compiled modules behind.
    graphtrace = [sys.executable, "-m", "graphtrace"]
    for command in (["info", str(export)], asked(export)):
        subprocess.run(
            [*graphtrace, *command], env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True
        )
    for _ in range(options.runs):
        for one in found:
            measure(one)
    version = (
        subprocess.run(
            ["nsys", "--version"], capture_output=True, text=True, check=False
        ).stdout.strip()
        if shutil.which("nsys")
        else "no nsys"
    )
    print(
        f"{kernels:,} kernels in {options.replays:,} replays, {size:.0f} MB, {options.runs} runs."
    )
    print(
        f"graphtrace {__version__}, Python {platform.python_version()}, {version}, "
        f"{os.cpu_count()} cores."
    )
    print()
    print(table(found))
    broken = above(found, options)
    for sentence in broken:
        print(f"above its limit: {sentence}", file=sys.stderr)
    return 1 if broken else 0


def main() -> int:
    options = arguments()
    if options.work is not None:
        options.work.mkdir(parents=True, exist_ok=True)
        return run(options.work, options)
    with tempfile.TemporaryDirectory(prefix="graphtrace-bench-") as folder:
        return run(Path(folder), options)


if __name__ == "__main__":
    sys.exit(main())
