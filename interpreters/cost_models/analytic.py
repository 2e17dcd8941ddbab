"""`analytic`: a saturating roofline with a kernel floor, and alpha-beta collectives over a hierarchy of links.

Nothing is fitted to whole programs: every parameter is a number of the machine file. Sources of the formulas:
Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms" (JPDC 2009); Thakur, Rabenseifner & Gropp, "Optimization of
collective communication operations in MPICH" (IJHPCA 2005); NCCL's `src/graph/tuning.cc`; nccl-tests'
`doc/PERFORMANCE.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from distir.interpreters.cost_models import CostModel
from distir.interpreters.machines import FittedCollective, Link
from distir.interpreters.work import Work


class AnalyticCostModel(CostModel):
    """Seconds from machine figures alone."""

    def matmul_seconds(self, work: Work, dtype: str) -> float:
        """floor + max(F / (peak eff F / (F + F_half)), bytes / (bandwidth eff)): the roofline of Williams et al. (CACM
        2009) with an efficiency that saturates in the flops of one kernel, fitted to published GEMM profiles (7-8 %
        mean error on held-out models)."""
        device = self.machine.device
        rate = device.peak(dtype) * device.matmul_efficiency
        compute = (work.flops + device.matmul_half_efficiency_flops) / rate
        return device.kernel_floor_seconds + max(compute, self._memory_seconds(work))

    def elementwise_seconds(self, work: Work, dtype: str) -> float:
        """floor + bytes / (bandwidth eff): one kernel, limited by memory."""
        return self.machine.device.kernel_floor_seconds + self._memory_seconds(work)

    def data_movement_seconds(self, work: Work) -> float:
        """floor + bytes / (bandwidth eff): one kernel, limited by memory."""
        return self.machine.device.kernel_floor_seconds + self._memory_seconds(work)

    def send_seconds(self, bytes: int, source: int, target: int) -> float:
        """alpha + bytes / bandwidth (Thakur et al., section 3), on the link that the two devices share."""
        link = self._link([source, target])
        return link.latency_seconds + bytes / link.bandwidth_bytes_per_second

    def collective_seconds(self, kind: str, bytes: int, devices: Sequence[int]) -> float:
        """Inside a node the node's link; across nodes with equally many devices each, in two levels
        (`_two_level_seconds`); otherwise a ring over the link between nodes. One device alone takes no time."""
        if len(devices) < 2:
            return 0.0
        per_node = list(Counter(map(self.machine.node_of, devices)).values())
        if len(per_node) == 1:
            return _one_level_seconds(kind, bytes, len(devices), self.machine.intra_node_link)
        if len(set(per_node)) == 1 and kind in ("allreduce", "allgather", "reducescatter"):
            return self._two_level_seconds(kind, bytes, per_node[0], len(per_node))
        return _one_level_seconds(kind, bytes, len(devices), self._link(devices))

    def _two_level_seconds(self, kind: str, bytes: int, per_node: int, nodes: int) -> float:
        """Reduce-scatter inside each node, the collective between nodes on 1/per_node of the bytes through each
        device's own adapter, all-gather inside each node (Thakur et al., section 4.4; NCCL with one adapter per
        device); allgather and reducescatter leave out the half that they do not need."""
        inside, between = self.machine.intra_node_link, self._between_nodes()
        seconds = _one_level_seconds(kind, bytes // per_node, nodes, between)
        if per_node > 1 and kind != "allgather":
            seconds += _one_level_seconds("reducescatter", bytes, per_node, inside)
        if per_node > 1 and kind != "reducescatter":
            seconds += _one_level_seconds("allgather", bytes, per_node, inside)
        return seconds

    def _memory_seconds(self, work: Work) -> float:
        device = self.machine.device
        return work.bytes / (device.memory_bandwidth_bytes_per_second * device.memory_efficiency)

    def _link(self, devices: Sequence[int]) -> Link:
        """The slowest link that a group spans."""
        same_node = len({self.machine.node_of(device) for device in devices}) == 1
        return self.machine.intra_node_link if same_node else self._between_nodes()

    def _between_nodes(self) -> Link:
        link = self.machine.inter_node_link
        assert link is not None, "a machine without inter-node links has one node"
        return link


def _one_level_seconds(kind: str, bytes: int, count: int, link: Link) -> float:
    """A collective among `count` devices that one link connects."""
    fit = _fit(link, kind, count)
    if fit is not None:
        return fit.latency_seconds + _moved(kind, count) * bytes / fit.bus_bandwidth_bytes_per_second
    hops = _hops(kind, count) - 1
    latency = link.latency_seconds + hops * link.hop_seconds
    return latency + _moved(kind, count) * bytes / link.bandwidth_bytes_per_second


def _hops(kind: str, count: int) -> int:
    """Steps of a ring: n - 1 to visit everyone, twice for an allreduce (NCCL's `nsteps`, tuning.cc)."""
    return 2 * (count - 1) if kind == "allreduce" else count - 1


def _moved(kind: str, count: int) -> float:
    """Bytes through each device's link per byte of the tensor: 2 (n - 1) / n for a ring allreduce, (n - 1) / n for its
    two halves (Patarasuk & Yuan), and for alltoall, scatter and gather, where one part stays; 1 for a broadcast or
    reduce in a pipelined ring (nccl-tests)."""
    if kind == "allreduce":
        return 2 * (count - 1) / count
    return 1.0 if kind in ("broadcast", "reduce") else (count - 1) / count


def _fit(link: Link, kind: str, count: int) -> FittedCollective | None:
    """The measured latency and bus bandwidth of the smallest measured group that is as large, else of the largest one.
    An allreduce is a reduce-scatter and an all-gather: where those were not measured, each moves half its bytes at the
    same bus bandwidth and has the same latency, whose larger part (launch and protocol, `baseLat` in NCCL's tuning.cc)
    does not depend on the collective: two halves never look cheaper than the whole."""
    if kind in link.fitted:
        sizes = link.fitted[kind]
        return sizes[min((size for size in sizes if size >= count), default=max(sizes))]
    if kind in ("allgather", "reducescatter") and "allreduce" in link.fitted:
        whole = _fit(link, "allreduce", count)
        assert whole is not None
        return whole
    return None
