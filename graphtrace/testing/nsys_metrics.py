# SPDX-License-Identifier: Apache-2.0
"""Sampled GPU metrics of synthetic nsys exports.

Their tables have the columns that users of nsys 2023 to 2026 report; no real one was at hand.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from graphtrace.testing.nsys_file import Cells

if TYPE_CHECKING:
    from graphtrace.testing.nsys import NsysExport

__all__ = ["GpuMetrics"]

_MACHINE: Final = 1 << 48
_TYPE: Final = 0x2A << 8
"""What stands above the number of the GPU in a type id; readers are to ignore it."""


@dataclass(slots=True)
class GpuMetrics:
    """Samples of one GPU.

    Attributes:
        export: where they go; its dialect has the tables from 2025 on.
        gpu: number of the GPU, below 256.
        names: numbers of the metrics so far.
    """

    export: "NsysExport"
    gpu: int = 0
    names: dict[str, int] = field(default_factory=dict)

    @property
    def type_id(self) -> int:
        """Type of the samples; its lowest byte is the GPU."""
        return _MACHINE | _TYPE | self.gpu

    def sample(self, name: str, time: npt.NDArray[np.int64], value: npt.ArrayLike) -> None:
        """Add samples of one metric.

        Args:
            name: as nsys spells it, with its unit: `SMs Active [Throughput %]`.
            time: ns, one a sample.
            value: one a sample, or one for all; nsys stores whole numbers.
        """
        if name not in self.names:
            self.names[name] = number = len(self.names)
            described: dict[str, Cells] = {
                "typeId": self.type_id,
                "sourceId": _MACHINE,
                "typeName": f"GPU Metrics [{self.gpu}]",
                "metricId": number,
                "metricName": name,
            }
            self.export.rows.add("TARGET_INFO_GPU_METRICS", 1, described)
        columns: dict[str, Cells] = {
            "timestamp": time,
            "typeId": self.type_id,
            "metricId": self.names[name],
            "value": np.broadcast_to(np.asarray(value), len(time)),
        }
        self.export.rows.add("GPU_METRICS", len(time), columns)
