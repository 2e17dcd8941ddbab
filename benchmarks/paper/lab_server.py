"""The lab server of `v100x4_sept2021`, whose links nobody described, as the `analytic` cost model of its machine file and what two more
rows say of it.

* Devices 0 and 2, and 1 and 3, have a path of their own that is seven times as fast as the others. D = T = 2 shows it: its tensor groups are
  (0, 1) and (2, 3), for which the row of D = 2 stands, its replicas' groups (0, 2) and (1, 3).
* The original's backend sends by a broadcast in a process group of two. Where there are more groups than one (four processes), the host
  takes milliseconds to issue one, whatever its size. As for any operation (`docs/cost_models.md`, "The host"), the longer of the two
  counts: issuing, or the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.cost_models.collective_algorithms import moved

PAIRS = ((0, 2), (1, 3))
PAIR_BYTES_PER_SECOND = 6.52e9
"""Row D = T = 2, batch 1024: 8 x 32 MiB of gradients in 41 ms, beyond computing and the tensor groups' 8 x 8 MiB at the rate of D = 2."""
ISSUE_SECONDS = 1.219e-2
"""Of a message between four processes. Row P = 4, K = 16, batch 1024: 0.867 s."""


class FourProcesses(AnalyticCostModel):
    """The server with a process on each of its devices."""

    @property
    def is_by_levels(self) -> bool:
        return False

    def send_seconds(self, bytes: Any, source: int, target: int) -> Any:
        return max(super().send_seconds(bytes, source, target), ISSUE_SECONDS)

    def collective_seconds(self, kind: str, bytes: Any, devices: Sequence[int]) -> Any:
        if tuple(sorted(devices)) not in PAIRS:
            return super().collective_seconds(kind, bytes, devices)
        latency = self.machine.levels[0].latency_seconds
        return latency + moved(kind, 2) * bytes / PAIR_BYTES_PER_SECOND
