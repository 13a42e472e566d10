# SPDX-License-Identifier: Apache-2.0
"""Synthetic pages of `ncu --csv`, as the releases of 2022 and 2025 printed them.

    copy = Profiled("copy(float *)", [Metric("gpu__time_duration.sum", 21_058, "ns")])
    NcuCsv([copy]).write(Path("run.csv"), Form(page="details", base_units=True))

A file says of itself that it is synthetic: readers set `InputInfo.synthetic`. The same calls give
the same file. Columns, quoting, units and instances of 2022 are held to what the installed ncu
prints; the texts in the columns of NVTX are not.

From the shell: `python -m graphtrace.testing.ncu_csv uncoalesced run.csv`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from graphtrace.model.errors import GraphtraceError, OutputError
from graphtrace.testing.command import Failed
from graphtrace.testing.ncu_csv_form import NVTX_COLUMNS, Form, Page, Release, line

__all__ = [
    "MARK",
    "Form",
    "Metric",
    "NcuCsv",
    "Planted",
    "Profiled",
    "Rule",
    "planted_uncoalesced",
]

MARK: Final = "==PROF== graphtrace.testing synthetic 1"
"""Line that tells readers what the file is; it ends with a version."""
SECTION: Final = "Command line profiler metrics"
"""Section of metrics that were asked for by name."""

_PROGRAM: Final = "synthetic"
_WHEN: Final = "2026-Jan-01 00:00:00"
_RULES: Final = ("Rule Name", "Rule Type", "Rule Description")
_SPEEDUP: Final = ("Estimated Speedup Type", "Estimated Speedup")
_METRIC: Final = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
_SUMMARY: Final = (
    *("Process ID", "Process Name", "Host Name", "Kernel Name", "Block Size", "Grid Size"),
    *("Device Id", "Invocations", "Metric Name", "Metric Unit", "Minimum", "Maximum", "Average"),
)
Value = float | int | str | None
Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of one result.

    Attributes:
        name: NVIDIA's name.
        value: in base units; an integer is one that was counted, None is one without a value.
        unit: base unit in ncu-report's spelling: ns, byte, byte/s, hz, %, inst and others.
        instances: values per instance, printed only where the form says so.
        section, label: where and under which name a details page shows it.
    """

    name: str
    value: Value
    unit: str = ""
    instances: tuple[float | int, ...] = ()
    section: str = SECTION
    label: str | None = None

    def printed(self, form: Form, unit: tuple[str, int] | None = None) -> tuple[str, str]:
        """Unit and value as printed.

        Args:
            form: how.
            unit: printed unit and its power of ten, where a page has one for many results.
        """
        spelled, power = unit or form.unit(self.unit, self.largest)
        if isinstance(self.value, str):
            whole = self.value
        elif self.value is None:
            whole = "no data" if form.page == "raw" else "n/a"
            whole = "" if self.instances else whole
        else:
            whole = form.number(self.value, spelled, power)
        if not (form.instances and self.instances):
            return spelled, whole
        listed = "; ".join(form.number(value, spelled, power) for value in self.instances)
        return spelled, f"{whole} ({listed})".lstrip()

    @property
    def largest(self) -> float:
        """Magnitude that the printed unit has to fit."""
        return 0.0 if self.value is None or isinstance(self.value, str) else abs(self.value)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a rule of ncu says of a result, on a details page."""

    section: str
    name: str
    text: str
    kind: str = "WRN"


@dataclass(frozen=True, slots=True)
class Profiled:
    """A profiled kernel.

    Attributes:
        name: demangled kernel name.
        metrics: in the order of a details page; a raw page orders by name.
        grid, block: launch shape.
        device, cc: ordinal and compute capability of its GPU.
        nvtx: messages of the push and pop ranges open at the launch, the outermost first.
        rules: what rules say.
    """

    name: str
    metrics: Sequence[Metric] = ()
    grid: Dim3 = (1, 1, 1)
    block: Dim3 = (1, 1, 1)
    context: int = 1
    stream: int = 7
    device: int = 0
    cc: tuple[int, int] = (9, 0)
    pid: int = 4242
    nvtx: Sequence[str] = ()
    rules: Sequence[Rule] = ()


class NcuCsv:
    """Pages of the same results.

    Args:
        kernels: profiled kernels, in order.
    """

    def __init__(self, kernels: Sequence[Profiled]) -> None:
        self.kernels = tuple(kernels)

    def text(self, form: Form | None = None) -> str:
        """A whole page, with the mark and, where the form has them, other lines of ncu."""
        form = form or Form()
        pages = {"raw": self._raw, "details": self._details, "summary": self._summary}
        pids = sorted({kernel.pid for kernel in self.kernels})
        lines = [f"==PROF== Connected to process {pid} ({_PROGRAM})" for pid in pids]
        lines += [
            f'==PROF== Profiling "{kernel.name}" - {number}: 0%....50%....100% - 1 pass'
            for number, kernel in enumerate(self.kernels)
        ]
        ends = [f"==PROF== Disconnected from process {pid}" for pid in pids]
        around = (lines, ends) if form.preamble else ([], [])
        page = pages[form.page](form) if self.kernels else ["==WARNING== No kernels were profiled."]
        return "\n".join([MARK, *around[0], *around[1], *page]) + "\n"

    def write(self, path: Path, form: Form | None = None, *, force: bool = False) -> None:
        """Write a page; it appears whole or not at all.

        Raises:
            OutputError: the file exists and `force` is not given, or it cannot be written.
        """
        if path.exists() and not force:
            raise OutputError(
                f"{path} exists already.",
                "It would be replaced.",
                "Choose another name, or say --force.",
            )
        part = path.with_name(path.name + ".part")
        try:
            part.write_bytes(self.text(form).encode())
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise OutputError(
                f"{path} cannot be written.",
                f"The system says: {error}.",
                "Check that the folder exists, may be written to, and has space.",
            ) from error

    def _raw(self, form: Form) -> list[str]:
        names = sorted({metric.name for kernel in self.kernels for metric in kernel.metrics})
        of = [{metric.name: metric for metric in kernel.metrics} for kernel in self.kernels]
        units = {
            name: form.unit(
                next(known[name].unit for known in of if name in known),
                max(known[name].largest for known in of if name in known),
            )
            for name in names
        }
        about = _about(form)
        spelled = [*("" for _ in about), *(units[name][0] for name in names)]
        lines = [line([*about, *names]), line(spelled)]
        for number, (kernel, known) in enumerate(zip(self.kernels, of, strict=True)):
            cells = [
                known[name].printed(form, units[name])[1] if name in known else "" for name in names
            ]
            lines.append(line([*_launch(number, kernel, form), *cells]))
        return lines

    def _details(self, form: Form) -> list[str]:
        behind = (*_RULES, *(() if form.release == "2022" else _SPEEDUP))
        lines = [line([*_about(form), *_METRIC, *behind])]
        for number, kernel in enumerate(self.kernels):
            launch = _launch(number, kernel, form)
            for metric in kernel.metrics:
                shown = (metric.section, metric.label or metric.name, *metric.printed(form))
                row = line([*launch, *shown, *("" for _ in behind if not form.ragged)])
                # A comma stands behind the value, and nothing behind the comma.
                lines.append(row + "," if form.ragged else row)
            for rule in kernel.rules:
                said = (rule.section, "", "", "", rule.name, rule.kind, rule.text)
                lines.append(line([*launch, *said, *("" for _ in behind[3:])]))
        return lines

    def _summary(self, form: Form) -> list[str]:
        lines = [line(_SUMMARY)]
        groups: dict[tuple[object, ...], list[Profiled]] = {}
        for kernel in self.kernels:
            key = (kernel.pid, kernel.name, kernel.block, kernel.grid, kernel.device)
            groups.setdefault(key, []).append(kernel)
        for group in groups.values():
            first = group[0]
            shape = (math.prod(first.block), math.prod(first.grid), first.device, len(group))
            launch = [str(first.pid), _PROGRAM, _PROGRAM, first.name, *map(str, shape)]
            for name in sorted({metric.name for kernel in group for metric in kernel.metrics}):
                same = [m for kernel in group for m in kernel.metrics if m.name == name]
                lines.append(line([*launch, name, *_over_launches(same, form)]))
        return lines


def _about(form: Form) -> tuple[str, ...]:
    nvtx = NVTX_COLUMNS if form.nvtx else ()
    head = ("ID", "Process ID", "Process Name", "Host Name", *nvtx, "Kernel Name")
    if form.release == "2022":
        return (*head, "Kernel Time", "Context", "Stream")
    return (*head, "Context", "Stream", "Block Size", "Grid Size", "Device", "CC")


def _launch(number: int, kernel: Profiled, form: Form) -> list[str]:
    pushed = ":".join(("<default domain>", *kernel.nvtx)) if kernel.nvtx else ""
    nvtx = (f"{kernel.pid} {pushed}" if pushed else "", "") if form.nvtx else ()
    head = [str(number), str(kernel.pid), _PROGRAM, _PROGRAM, *nvtx, kernel.name]
    place = [str(kernel.context), str(kernel.stream)]
    if form.release == "2022":
        return [*head, _WHEN, *place]
    block, grid = (f"({x}, {y}, {z})" for x, y, z in (kernel.block, kernel.grid))
    return [*head, *place, block, grid, str(kernel.device), f"{kernel.cc[0]}.{kernel.cc[1]}"]


def _over_launches(metrics: Sequence[Metric], form: Form) -> tuple[str, ...]:
    """Unit, least, largest and mean value; a text stands in place of the mean."""
    numbers = [m.value for m in metrics if isinstance(m.value, int | float)]
    if not numbers:
        return metrics[0].unit, "", "", str(metrics[0].value or "")
    unit, power = form.unit(metrics[0].unit, max(map(abs, numbers)))
    three = (min(numbers), max(numbers), sum(numbers) / len(numbers))
    return unit, *(form.number(float(value), unit, power) for value in three)


@dataclass(frozen=True, slots=True)
class Planted:
    """What was planted.

    Attributes:
        path: the file.
        stalled: kernel whose threads touch three times the sectors that they need.
        excess: share of its sectors that ideal accesses would not touch.
        decoy: kernel that touches as many sectors a request, all of which it needs.
    """

    path: Path
    stalled: str
    excess: float
    decoy: str


def _copying(name: str, sectors: int, ideal: int, requests: int, duration: int) -> Profiled:
    metrics = [
        Metric("gpu__time_duration.sum", duration, "ns"),
        Metric("memory_l2_theoretical_sectors_global", sectors, "sector"),
        Metric("memory_l2_theoretical_sectors_global_ideal", ideal, "sector"),
        Metric("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", sectors, "sector"),
        Metric("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", requests, "request"),
        Metric("l1tex__throughput.avg.pct_of_peak_sustained_active", 95.5, "%"),
        Metric("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 21.25, "%"),
        Metric("launch__waves_per_multiprocessor", 8.25),
    ]
    return Profiled(name, metrics, grid=(1089, 1, 1), block=(256, 1, 1))


def planted_uncoalesced(path: Path, form: Form | None = None, *, force: bool = False) -> Planted:
    """Write a page with one kernel whose accesses are not coalesced, and one that only looks so.

    Both touch 24 sectors a request. The first reads one field of records of three; the second
    reads 24-byte values whole.

    Raises:
        OutputError: the file exists, or cannot be written.
    """
    stalled = "read_field(double *, Record const *)"
    decoy = "read_triples(double3 *, double3 const *)"
    kernels = [
        _copying(stalled, 2_359_296, 786_432, 98_304, 410_500),
        _copying(decoy, 2_359_296, 2_359_296, 98_304, 398_250),
    ]
    NcuCsv(kernels).write(path, form, force=force)
    return Planted(path, stalled, 2 / 3, decoy)


@click.group()
def main() -> None:
    """Write synthetic pages of ncu."""


@main.command("uncoalesced")
@click.argument("output", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--page", type=click.Choice(["raw", "details"]), default="raw", show_default=True)
@click.option("--release", type=click.Choice(["2022", "2025"]), default="2025", show_default=True)
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def _uncoalesced(output: Path, page: Page, release: Release, force: bool) -> None:
    """A kernel whose accesses are not coalesced, and a decoy."""
    try:
        planted_uncoalesced(output, Form(page=page, release=release), force=force)
    except GraphtraceError as error:
        raise Failed(error) from error
    click.echo(f"{output}: two synthetic results", err=True)


if __name__ == "__main__":
    main()
