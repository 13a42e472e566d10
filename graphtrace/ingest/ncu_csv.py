# SPDX-License-Identifier: Apache-2.0
"""Reader of what `ncu --csv` printed: the raw and the details page, of one run or of several.

A page carries less than a report: values are rounded, and how they were measured (cache and clock
control) is not said. The columns with the names of host and process are never copied.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from graphtrace.ingest.ncu_csv_cells import Cells
from graphtrace.ingest.ncu_csv_labels import metric_of
from graphtrace.ingest.ncu_csv_lines import Printed, Said, records
from graphtrace.ingest.ncu_csv_values import Style, style_of
from graphtrace.ingest.ncu_devices import WANTED, devices_of, launch_columns, whole
from graphtrace.ingest.ncu_metrics import Facts
from graphtrace.ingest.source import Source
from graphtrace.model.arrays import encode, make_table, numbers, strings
from graphtrace.model.errors import InputCorrupt, InputError, InputUnsupported, NoGpuWork
from graphtrace.model.trace import InputInfo, TableSet

__all__ = ["read"]

_ABOUT: Final = frozenset(
    (
        *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time"),
        *("Context", "Stream", "Block Size", "Grid Size", "Device", "CC"),
    )
)
"""Columns that describe the launch; on a raw page all others are metrics, but for NVTX."""
_NVTX: Final = (":Push/Pop_Range:", ":Start/Stop_Range:")
"""In the names of the columns that `--nvtx` adds: the ranges open at the launch."""
_SHAPE: Final = re.compile(r"\(\s*(\d+),\s*(\d+),\s*(\d+)\s*\)")
_VALUE: Final = "Metric Value"
_ATTRIBUTE: Final = "device__attribute_"
_RATHER: Final = "Print single results: ncu --import REPORT --page raw --csv, or give the .ncu-rep."


class _Launches:
    """The profiled kernels of a file, in order."""

    def __init__(self) -> None:
        self.keys: dict[tuple[int, str], int] = {}
        self.names: list[str] = []
        self.process_ids: list[int | None] = []
        self.facts: list[Facts] = []

    def key(self, page: int, about: dict[str, str]) -> int:
        """Key of the result that a record speaks of."""
        identity = page, about.get("ID", "")
        key = self.keys.get(identity)
        if key is None:
            key = self.keys[identity] = len(self.keys)
            self.names.append(about.get("Kernel Name") or "unnamed kernel")
            self.process_ids.append(_count(about.get("Process ID")))
            self.facts.append(_facts(about))
        return key


def _count(cell: str | None) -> int | None:
    return int(cell) if cell is not None and cell.isascii() and cell.isdigit() else None


def _facts(about: dict[str, str]) -> Facts:
    """What the columns beside the metrics say, under the names that metrics of it have."""
    facts: Facts = {}
    for column, metric in (("Context", "launch__context_id"), ("Stream", "launch__stream_id")):
        value = _count(about.get(column))
        if value is not None:
            facts[metric] = value
    for column, metric in (("Grid Size", "launch__grid_dim"), ("Block Size", "launch__block_dim")):
        shape = _SHAPE.fullmatch(about.get(column, ""))
        if shape is not None:
            facts.update(
                {f"{metric}_{axis}": int(n) for axis, n in zip("xyz", shape.groups(), strict=True)}
            )
    device = _count(about.get("Device"))
    if device is not None:
        facts["launch__device_id"] = device
    major, _, minor = about.get("CC", "").partition(".")
    if major.isdigit() and minor.isdigit():
        facts[f"{_ATTRIBUTE}compute_capability_major"] = int(major)
        facts[f"{_ATTRIBUTE}compute_capability_minor"] = int(minor)
    return facts


def read(path: Path) -> Source:
    """Read every result of the pages of a file.

    Args:
        path: a file that `sniff` found to be `ncu_csv`.

    Returns:
        Tables `processes`, `devices`, `ncu_results`, `metrics` and `quarantine`. Cells that may be
        read in two ways, and rows that break off, are refused there. `nothing` is set where no
        kernel was profiled.

    Raises:
        InputUnsupported: a page of averages, or only an error of ncu.
        InputCorrupt: numbers in the manner of two locales, or text that breaks off.
        InputError: the file cannot be read.
    """
    said = Said()
    try:
        style, kinds = _survey(path, said)
        launches, cells, broken = _gather(path, style)
    except OSError as error:
        raise InputError(
            f"{path} cannot be read.",
            f"The system says: {error.strerror or error}.",
            "Check the permissions and the disk.",
        ) from None
    except UnicodeError:
        raise InputCorrupt(
            f"{path} is damaged.",
            "It starts as UTF-16 text and breaks off inside a character.",
            "Copy the file again, whole.",
        ) from None
    info = InputInfo(str(path), "ncu_csv", "Nsight Compute", synthetic=said.synthetic)
    if "summary" in kinds and not launches.keys:
        raise InputUnsupported(
            f"{path} holds averages over launches.",
            "It was printed with --print-summary, which leaves out single results.",
            _RATHER,
        )
    tables = TableSet(_tables(launches, cells))
    if not launches.keys:
        return Source(info, tables, nothing=_nothing(path, kinds, said.complaints))
    return Source(info, tables, warnings=_warnings(path, launches, broken, cells))


def _survey(path: Path, said: Said) -> tuple[Style, set[str]]:
    """The decimal separator that the cells prove, a point where none does, and kinds of pages."""
    styles: set[Style] = set()
    kinds: set[str] = set()
    for record in records(path, said):
        kinds.add(record.page[1].kind)
        if len(styles) < 2:
            styles |= style_of(value for _, _, value in _metrics(record, None))
    if len(styles) > 1:
        raise InputCorrupt(
            f"{path} writes numbers in two ways.",
            "Some have a decimal comma and some a decimal point, so that none can be trusted.",
            "Print it again in one go: LC_ALL=C ncu --import REPORT --page raw --csv",
        )
    return (styles.pop() if styles else ""), kinds


def _metrics(record: Printed, units: tuple[str, ...] | None) -> Iterator[tuple[str, str, str]]:
    """Name, unit and value of each metric of a record."""
    page = record.page[1]
    if page.kind == "raw":
        for position, (column, cell) in enumerate(zip(page.columns, record.cells, strict=False)):
            if column in _ABOUT or (":" in column and any(word in column for word in _NVTX)):
                continue
            unit = "" if units is None or position >= len(units) else units[position]
            yield column, unit, cell
    elif page.kind == "details":
        fields = dict(zip(page.columns, record.cells, strict=False))
        label = fields.get("Metric Name", "")
        if label and not fields.get("Rule Name"):
            name = metric_of(fields.get("Section Name", ""), label)
            yield name, fields.get("Metric Unit", ""), fields.get(_VALUE, "")


def _gather(path: Path, style: Style) -> tuple[_Launches, Cells, int]:
    """All results, their cells, and how many records broke off."""
    launches, cells, broken = _Launches(), Cells(style, WANTED), 0
    units: dict[int, tuple[str, ...]] = {}
    for record in records(path, Said()):
        ordinal, page = record.page
        if page.kind == "summary":
            continue
        # Rows of a details page end with their value: what follows is for rules.
        least = len(page.columns) if page.kind == "raw" else page.columns.index(_VALUE) + 1
        short = len(record.cells) < least
        if page.kind == "raw" and record.cells[0] == "":
            units[ordinal] = tuple(record.cells)
            continue
        if not record.whole or short:
            broken += 1
            cells.refuse("row breaks off", f"line {record.line}")
            if not record.whole or page.kind == "details":
                continue
        about = {
            column: cell
            for column, cell in zip(page.columns, record.cells, strict=False)
            if column in _ABOUT
        }
        key = launches.key(ordinal, about)
        for name, unit, value in _metrics(record, units.get(ordinal)):
            cells.add(key, name, unit, value, launches.facts[key])
    for facts in launches.facts:
        sms = facts.get("launch__sm_count")
        if isinstance(sms, int):
            facts.setdefault(f"{_ATTRIBUTE}multiprocessor_count", sms)
    return launches, cells, broken


def _tables(launches: _Launches, cells: Cells) -> dict[str, pa.Table]:
    rows = len(launches.keys)
    keys, devices = devices_of(launches.facts)
    known = sorted({pid for pid in launches.process_ids if pid is not None})
    unknown = encode("unknown" for _ in range(rows))
    return {
        "processes": make_table(
            "processes",
            len(known),
            {
                "process": np.arange(len(known)),
                "source": np.zeros(len(known)),
                "pid": whole(known, pa.int64()),
            },
        ),
        "devices": devices,
        "ncu_results": make_table(
            "ncu_results",
            rows,
            {
                "result": np.arange(rows),
                "source": np.zeros(rows),
                "device": whole(keys, pa.int32()),
                "ncu_id": np.arange(rows),
                "name": strings(launches.names),
                "workload": encode("kernel" for _ in range(rows)),
                "process_id": whole(launches.process_ids, pa.int64()),
                **launch_columns(launches.facts),
                "cache": unknown,
                "clock": unknown,
                "replay_mode": unknown,
            },
        ),
        "metrics": cells.table(),
        "quarantine": _quarantine(cells),
    }


def _quarantine(cells: Cells) -> pa.Table:
    reasons = sorted(cells.refused)
    return make_table(
        "quarantine",
        len(reasons),
        {
            "table": encode("metrics" for _ in reasons),
            "reason": encode(reasons),
            "count": numbers([cells.refused[reason][0] for reason in reasons], pa.int64()),
            "sample": strings(cells.refused[reason][1] for reason in reasons),
        },
    )


def _nothing(path: Path, kinds: set[str], complaints: list[str]) -> NoGpuWork:
    if complaints and not kinds:
        raise InputUnsupported(
            f"{path} holds an error of Nsight Compute and no result.",
            f"ncu says: {complaints[0]}",
            "Mend that and profile again.",
        )
    return NoGpuWork(
        f"{path} holds no profiled kernel.",
        "It is what ncu printed, but no kernel was profiled: its filters let none through, or the "
        "program launched none.",
        "Profile again without --kernel-name, --launch-skip and NVTX filters, and check that the "
        "program reaches the GPU.",
    )


def _warnings(path: Path, launches: _Launches, broken: int, cells: Cells) -> tuple[str, ...]:
    said = []
    if broken:
        said.append(f"{path.name} breaks off in {broken} of its rows: values are missing.")
    if cells.two_ways:
        said.append(
            f"{cells.two_ways} numbers of {path.name} may be read in two ways (1,234) and nothing "
            "in it says which: they were left out. Print it with LC_ALL=C."
        )
    return tuple(said)
