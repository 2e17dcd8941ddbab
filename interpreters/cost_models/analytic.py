"""`analytic`: in go flops, bytes and shapes; out come seconds. The model is a saturating roofline with alignment
penalties, a kernel floor and a host that issues one operation at a time, and alpha-beta collectives over a hierarchy
of links (`collective_algorithms`).

Nothing is fitted to whole programs: every parameter is a number of the machine file. Formulas are pure in flops,
bytes and shapes. Each may be a numpy array of integers: one value per batch size.

**The host.** A device starts no operation before the host has issued it, and the host issues one per `dispatch_seconds`. As
two clocks that is `host += dispatch; start = max(host, device)`. We take `max(dispatch, own time)` of each operation. It is
the same where all operations are shorter, where all are longer, and in every run of short ones after the host has been
caught up; it is too long by at most the lead that the host gains in longer operations before. In exchange it is a property
of the single operation: summaries stay exact, and there is no second clock per device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distir.interpreters.cost_models import CostModel
from distir.interpreters.cost_models.collective_algorithms import collective_seconds, send_seconds
from distir.interpreters.machines import Tiles
from distir.interpreters.work import Contraction, Kind, Work, dtype_bytes


class AnalyticCostModel(CostModel):
    """Seconds from machine figures alone."""

    @property
    def is_by_levels(self) -> bool:
        return True

    def matmul_seconds(self, work: Work, dtype: str) -> Any:
        """floor + max(F / (peak eff F / (F + F_half)), bytes / (bandwidth eff)): the roofline of Williams et al. (CACM
        2009) with an efficiency that saturates in the flops of one kernel, fitted to published GEMM profiles (7-8 %
        mean error on held-out models). Each contraction is a kernel; those that do not follow one another (the two of a
        matmul's gradient) are one launch, as in DistIR's figures; F counts what tiles are padded with (`padding`)."""
        device = self.machine.device
        rate = device.matmul_rate(dtype)
        kernels: Any = sum(c.times for c in work.contractions) or 1
        launches: Any = max((c.times for c in work.contractions), default=1)
        flops = work.flops
        if device.tiles is not None and work.contractions:
            flops = sum(c.flops * padding(c, device.tiles, dtype_bytes(dtype)) for c in work.contractions)
        compute = (flops + kernels * device.matmul_half_efficiency_flops) / rate
        return self._issued(launches * device.kernel_floor_seconds + _larger(compute, self._memory_seconds(work)))

    def attention_seconds(self, work: Work, dtype: str) -> Any:
        """As a contraction without padding, at the efficiency that the machine's attention kernels reach for this element type and
        head size (the depth of the scores)."""
        device = self.machine.device
        efficiency = device.attention_efficiency(dtype, work.contractions[0].k, work.kind is Kind.ATTENTION_GRADIENT)
        compute = (work.flops + device.matmul_half_efficiency_flops) / (device.peak(dtype) * efficiency)
        return self._issued(device.kernel_floor_seconds + _larger(compute, self._memory_seconds(work)))

    def elementwise_seconds(self, work: Work, dtype: str) -> Any:
        """floor + bytes / (bandwidth eff): one kernel, limited by memory."""
        return self.data_movement_seconds(work)

    def data_movement_seconds(self, work: Work) -> Any:
        """floor + bytes / (bandwidth eff): one kernel, limited by memory."""
        return self._issued(self.machine.device.kernel_floor_seconds + self._memory_seconds(work))

    def send_seconds(self, bytes: Any, source: int, target: int) -> Any:
        """On the innermost level that the two devices share."""
        return self._issued(send_seconds(self.machine, bytes, source, target))

    def collective_seconds(self, kind: str, bytes: Any, devices: Sequence[int]) -> Any:
        """The cheapest algorithm. One device alone takes no time."""
        if len(devices) < 2:
            return 0.0
        return self._issued(collective_seconds(self.machine, kind, bytes, devices))

    def layout_seconds(self, bytes: Any) -> Any:
        """All is read and written once, as by PyTorch's functional collectives, which exchange whole parts and concatenate them."""
        return self.data_movement_seconds(Work(Kind.DATA_MOVEMENT, 0, 2 * bytes))

    def _issued(self, seconds: Any) -> Any:
        """No operation is shorter than the host takes to issue it."""
        return _larger(seconds, self.machine.device.dispatch_seconds)

    def _memory_seconds(self, work: Work) -> Any:
        device = self.machine.device
        return work.bytes / (device.memory_bandwidth_bytes_per_second * device.memory_efficiency)


def padding(contraction: Contraction, tiles: Tiles, element_bytes: int) -> Any:
    """What a contraction costs beyond its flops on a device whose kernels cut results in tiles, as a factor (NVIDIA,
    "Matrix Multiplication Background User's Guide"): tile quantisation, dims are padded to whole tiles; wave quantisation,
    the last wave of tiles leaves processors idle, of which `wave_fraction` is lost (libraries pick among tile sizes and
    split the contracted dim, fitted to published profiles), and with less than one wave the saturating efficiency says
    how much; alignment, rows that are not multiples of `alignment_bytes` miss the fast units."""
    batch, m, n, k = contraction.batch, contraction.m, contraction.n, contraction.k
    padded = _whole(m, tiles.rows) / _larger(m, 1) * (_whole(n, tiles.columns) / _larger(n, 1))
    waves = batch * -(-m // tiles.wave_rows) * -(-n // tiles.wave_columns) / tiles.processors
    full = -(-waves // 1)
    # Below one wave, full is 1 and larger than waves: no loss beyond saturation.
    partial = 1 + tiles.wave_fraction * (full / _larger(waves, 1.0) - 1)
    aligned = (k * element_bytes % tiles.alignment_bytes == 0) & (n * element_bytes % tiles.alignment_bytes == 0)
    return padded * partial * (tiles.misaligned_slowdown + (1 - tiles.misaligned_slowdown) * aligned)


def _whole(extent: Any, tile: int) -> Any:
    return -(-extent // tile) * tile


def _larger(a: Any, b: Any) -> Any:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return max(a, b)
    import numpy as np

    return np.maximum(a, b)
