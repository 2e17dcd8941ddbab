"""A cost model: peaks and bandwidths alone, what hardware could do at best. `--cost-model roofline`."""

from __future__ import annotations

from collections.abc import Sequence

from distir.interpreters.cost_models import CostModel
from distir.interpreters.work import Work


class RooflineCostModel(CostModel):
    """Seconds without latencies, floors or efficiencies."""

    def matmul_seconds(self, work: Work, dtype: str) -> float:
        return max(work.flops / self.machine.device.matmul_rate(dtype), self.data_movement_seconds(work))

    def elementwise_seconds(self, work: Work, dtype: str) -> float:
        return self.data_movement_seconds(work)

    def data_movement_seconds(self, work: Work) -> float:
        return work.bytes / self.machine.device.memory_bandwidth_bytes_per_second

    def collective_seconds(self, kind: str, bytes: int, devices: Sequence[int]) -> float:
        return bytes / self.machine.levels[0].bandwidth_bytes_per_second if len(devices) > 1 else 0.0

    def send_seconds(self, bytes: int, source: int, target: int) -> float:
        return bytes / self.machine.levels[0].bandwidth_bytes_per_second
