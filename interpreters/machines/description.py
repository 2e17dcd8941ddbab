"""The classes of a machine: groups of devices, and the levels that connect them. In go devices of a machine; out
come their figures and the level between them. Sizes are bytes, times seconds, rates per second; `reading` makes
machines from files, `writing` files from machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from distir.dialects.errors import DistirError


class Figure(NamedTuple):
    """A number of the file and where it comes from."""

    value: float
    source: str


@dataclass(frozen=True)
class FittedCollective:
    """Measured time of a collective: latency + bytes moved per device / bus bandwidth."""

    latency_seconds: float
    """Of the whole collective."""
    bus_bandwidth_bytes_per_second: float
    """As NCCL defines busbw."""


@dataclass(frozen=True)
class Level:
    """One level of the topology: what connects the units of the level below (devices, at the innermost) inside one unit
    of this one (a node, a pod, the cluster). Figures are of one direction."""

    name: str
    """Of the units: `node`, `cluster`."""
    latency_seconds: float
    """One message, start to finish, without its bytes."""
    hop_seconds: float
    """Each further step of a ring or tree after the first."""
    bandwidth_bytes_per_second: float
    """Of one adapter."""
    devices: int | None = None
    """In one unit of this level; None, at the outermost: as many as are asked for."""
    adapters: int | None = None
    """Of each unit of the level below; None: one per device."""
    fitted: Mapping[str, Mapping[int, FittedCollective]] = field(
        default_factory=dict[str, Mapping[int, FittedCollective]]
    )
    """Below: measured collectives among devices that only this level separates, by kind and group size."""


@dataclass(frozen=True)
class Tiles:
    """How a device's matmul kernels cut their result: what a shape that does not fit costs."""

    rows: int
    """Of the smallest tile; a result is padded to whole tiles."""
    columns: int
    """Of the same."""
    processors: int
    """Tiles of `wave_rows` x `wave_columns` that run at once: one per multiprocessor."""
    wave_rows: int
    """Of a tile that a processor takes."""
    wave_columns: int
    """Of the same."""
    wave_fraction: float
    """How much of a partial last wave is lost, from 0 to 1."""
    alignment_bytes: int
    """Rows of the operands must be multiples of this for the fast units."""
    misaligned_slowdown: float
    """Factor on a matmul whose rows are not."""


@dataclass(frozen=True)
class AttentionEfficiency:
    """Fractions of the peak that fused attention reaches on long sequences."""

    forward: float
    """Without gradients."""
    backward: float
    """Of the gradients."""


@dataclass(frozen=True)
class Device:
    """One device: peaks, and the fractions of them that are reached."""

    name: str
    """Of the device."""
    peak_flops_per_second: Mapping[str, float]
    """By element type as the IR prints it (`f16`); `f32` is required, and stands for those that are not listed."""
    matmul_efficiency: float
    """Fraction of the peak that large matmuls reach."""
    matmul_half_efficiency_flops: float
    """A matmul of this many flops reaches half of that."""
    memory_bandwidth_bytes_per_second: float
    """Its peak."""
    memory_efficiency: float
    """Fraction of that which copies reach."""
    memory_capacity_bytes: int
    """What a device's tensors may take, but for what `[memory]` says."""
    kernel_floor_seconds: float
    """What any kernel takes, however small."""
    matmul_efficiency_by_type: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of element types for which it is not `matmul_efficiency`."""
    dispatch_seconds: float = 0.0
    """What the host takes to issue one operation: none starts sooner after the one before it."""
    tiles: Tiles | None = None
    """Below; without it, matmuls of all shapes are as efficient."""
    attention: Mapping[str, Mapping[int, AttentionEfficiency]] = field(
        default_factory=dict[str, Mapping[int, AttentionEfficiency]]
    )
    """Below, by element type and head size; without it, attention is as efficient as matmuls."""

    def peak(self, dtype: str) -> float:
        """FLOP/s for an element type."""
        return self.peak_flops_per_second.get(dtype, self.peak_flops_per_second["f32"])

    def matmul_rate(self, dtype: str) -> float:
        """FLOP/s that large matmuls reach."""
        return self.peak(dtype) * self.matmul_efficiency_by_type.get(dtype, self.matmul_efficiency)

    def attention_efficiency(self, dtype: str, head_size: int, is_backward: bool) -> float:
        """Of the smallest listed head size that has room for this one (kernels pad to it), else of the largest; that of matmuls for
        types without one."""
        sizes = self.attention.get(dtype)
        if not sizes:
            return self.matmul_efficiency_by_type.get(dtype, self.matmul_efficiency)
        found = sizes[min((size for size in sizes if size >= head_size), default=max(sizes))]
        return found.backward if is_backward else found.forward


@dataclass(frozen=True)
class DeviceGroup:
    """Consecutive devices that are alike."""

    device: Device
    count: int | None
    """None, for the only group: as many as are asked for."""


@dataclass(frozen=True)
class Memory:
    """What a device's memory holds beside the program's tensors."""

    workspace_bytes: int = 0
    """Libraries' scratch memory and the context, from the first operation on."""
    allocator_granularity_bytes: int = 1
    """Each tensor takes a multiple of this."""
    allocator_segment_bytes: int = 0
    """Memory is asked of the driver in multiples of this, and kept once it is free (`simulate/allocator`); 0: it is asked for tensor by tensor."""


@dataclass(frozen=True)
class Overlap:
    """What computing and communicating at once costs."""

    compute_slowdown: float = 0.0
    """Extra time of an operation while a message is under way on the same device, as a fraction of its own."""
    communication_slowdown: float = 0.0
    """The same of a message while the device computes."""


@dataclass(frozen=True)
class Machine:
    """A cluster: groups of devices, and the levels that connect them, innermost first."""

    name: str
    """As it is shown."""
    groups: tuple[DeviceGroup, ...]
    levels: tuple[Level, ...]
    max_devices: int | None = None
    """None: as many as the groups or the outermost level have; where these do not say, as are asked for."""
    memory: Memory = Memory()
    overlap: Overlap = Overlap()
    figures: Mapping[str, Figure] = field(default_factory=dict[str, Figure])
    """Every number of the file, by its dotted key."""
    provenance: Mapping[str, str] = field(default_factory=dict[str, str])
    """How a measured machine was measured."""

    @property
    def device(self) -> Device:
        """The device, where all are alike; else that of the first group."""
        return self.groups[0].device

    @property
    def is_uniform(self) -> bool:
        """Whether all devices are alike."""
        return len(self.groups) == 1

    def group_of(self, device: int) -> int:
        """The number of the group that a device is in."""
        for number, group in enumerate(self.groups):
            if group.count is None or device < group.count:
                return number
            device -= group.count
        raise DistirError(f"machine {self.name} has no device {device}")

    def seen_from(self, group: int) -> Machine:
        """The machine as it would be if all devices were those of one group."""
        return replace(self, groups=(replace(self.groups[group], count=None),))

    def units(self, level: int, devices: Sequence[int]) -> list[int]:
        """How many of the devices are in each unit of the level that any is in; of level -1, each device is its own."""
        if level < 0:
            return [1] * len(devices)
        size = self.levels[level].devices
        counts: dict[int, int] = {}
        for device in devices:
            unit = 0 if size is None else device // size
            counts[unit] = counts.get(unit, 0) + 1
        return list(counts.values())

    def pattern(self, devices: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Which of the devices share a unit, at every level: groups of equal patterns on a uniform machine are alike."""
        found: list[tuple[int, ...]] = []
        for size in (level.devices for level in self.levels):
            seen: dict[int, int] = {}
            found.append(tuple(seen.setdefault(d // size, len(seen)) if size is not None else 0 for d in devices))
        return tuple(found)

    def spanned_level(self, devices: Sequence[int]) -> int:
        """The number of the innermost level of which one unit has all these devices."""
        return next((i for i in range(len(self.levels)) if len(self.units(i, devices)) == 1), len(self.levels) - 1)

    def check_devices(self, count: int) -> None:
        """Raises DistirError if the machine does not have that many devices."""
        if self.max_devices is not None and count > self.max_devices:
            raise DistirError(f"machine {self.name} has {self.max_devices} devices, the program needs {count}")
