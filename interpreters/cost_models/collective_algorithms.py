"""Times of collectives and messages. In go a kind, bytes and devices; out come seconds on a machine's levels, by the
cheapest of the libraries' algorithms. Libraries choose so too (NCCL's `src/graph/tuning.cc` compares the same
formulas). Nothing else uses the links meanwhile.

All times are alpha-beta: steps, each with the latency of its link, and the bytes of the busiest link over its bandwidth
(Hockney, "The communication challenge for MPP", Parallel Computing 1994). `bytes` may be numpy arrays: the choice is then
made for each element. Sources:

* ring: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms" (JPDC 2009). n - 1 steps for each of reduce-scatter and
  all-gather, with (n - 1) / n of the bytes.
* tree: Sanders, Speck & Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (Parallel Computing
  2009), which NCCL has since 2.4: log2(n) steps for each of reduce and broadcast, with all of the bytes.
* binomial scatter and gather: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH"
  (IJHPCA 2005), section 4: log2(n) steps, (n - 1) / n of the bytes at the root.
* pairwise exchange for alltoall: the same, section 4.3: n - 1 steps, (n - 1) / n of the bytes of one device.
* hierarchical, for an allreduce: reduce-scatter inside each unit, allreduce between units on each device's part, all-gather inside
  (the same, section 4.4; NCCL's CollNet and multi-rail trees do so). An allgather or a reduce-scatter between nodes is a ring (tuning.cc), however many
  take part: of many devices and few bytes it is n - 1 steps.
* steps across two levels: NCCL's tuning.cc, a ring of n devices in u units crosses units in u of its n hops; a tree is a
  chain inside a unit and a tree between units.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import ceil, log2
from typing import Any, NamedTuple

from distir.interpreters.machines import FittedCollective, Level, Machine

REDUCING = frozenset(["allreduce", "reduce", "broadcast"])
"""Those that a tree carries out with all of the bytes on each edge."""


class Group(NamedTuple):
    """Devices that take part, as the level that connects them sees them."""

    level: Level
    below: Level | None
    """What connects the devices of one unit below; None if each unit has one of them."""
    size: int
    """How many take part."""
    units: tuple[int, ...]
    """How many of them are in each unit below."""
    bandwidth: float
    """Out of the unit with the least, through all its adapters that they can use."""


def collective_seconds(machine: Machine, kind: str, bytes: Any, devices: Sequence[int]) -> Any:
    """Seconds of a collective: `allreduce`, `allgather`, `reducescatter`, `alltoall`, `broadcast`, `scatter`, `gather` or
    `reduce`. `bytes` is the size of the whole tensor, the larger side. One device alone takes none."""
    if len(devices) < 2:
        return 0.0
    number = machine.spanned_level(devices)
    group = _group(machine, number, devices)
    if group.below is None:
        if (fit := fitted(group.level, kind, group.size)) is not None:
            return fit.latency_seconds + moved(kind, group.size) * bytes / fit.bus_bandwidth_bytes_per_second
        return _cheapest(_flat(group, kind, bytes))
    candidates = _flat(group, kind, bytes)
    if kind == "allreduce" and len(set(group.units)) == 1:
        candidates.append(_hierarchical(machine, group, bytes, devices))
    return _cheapest(candidates)


def send_seconds(machine: Machine, bytes: Any, source: int, target: int) -> Any:
    """alpha + bytes / bandwidth (Hockney) of the innermost level that the two devices share, over every adapter that one
    device can use."""
    group = _group(machine, machine.spanned_level((source, target)), (source, target))
    if (fit := fitted(group.level, "send", 2)) is not None and group.below is None:
        return fit.latency_seconds + bytes / fit.bus_bandwidth_bytes_per_second
    return group.level.latency_seconds + bytes / group.bandwidth


def fitted(level: Level, kind: str, count: int) -> FittedCollective | None:
    """The measured latency and bus bandwidth of the smallest measured group that is as large, else of the largest one.
    An allreduce is a reduce-scatter and an all-gather: where those were not measured, each moves half its bytes at the
    same bus bandwidth and has the same latency, whose larger part (launch and protocol, `baseLat` in NCCL's tuning.cc)
    does not depend on the collective: two halves never look cheaper than the whole."""
    if (sizes := level.fitted.get(kind)) is not None:
        return sizes[min((size for size in sizes if size >= count), default=max(sizes))]
    return fitted(level, "allreduce", count) if kind in ("allgather", "reducescatter") else None


def moved(kind: str, count: int) -> float:
    """Bytes through each device's link per byte of the tensor: 2 (n - 1) / n for an allreduce, (n - 1) / n for its two
    halves, and for alltoall, scatter and gather, where one part stays; 1 for a broadcast, reduce or send: nccl-tests'
    factors between algorithm and bus bandwidth (`doc/PERFORMANCE.md`)."""
    if kind == "allreduce":
        return 2 * (count - 1) / count
    return 1.0 if kind in ("broadcast", "reduce", "send") else (count - 1) / count


def _group(machine: Machine, number: int, devices: Sequence[int]) -> Group:
    level = machine.levels[number]
    units = tuple(machine.units(number - 1, devices))
    below = machine.levels[number - 1] if number and max(units) > 1 else None
    adapters = min(_usable_adapters(machine, number, unit) for unit in units)
    bandwidth = adapters * level.bandwidth_bytes_per_second
    if below is not None:
        bandwidth = min(bandwidth, below.bandwidth_bytes_per_second)
    return Group(level, below, len(devices), units, bandwidth)


def _usable_adapters(machine: Machine, number: int, participants: int) -> int:
    """Adapters of one unit below that so many devices in it can use: each device reaches its share of them, at least one."""
    owners = machine.levels[number - 1].devices if number else 1
    adapters = machine.levels[number].adapters
    if adapters is None or owners is None:
        return participants
    return min(adapters, participants * max(1, adapters // owners))


def _flat(group: Group, kind: str, bytes: Any) -> list[Any]:
    """Every algorithm that takes no notice of units but in its order of devices."""
    n, crossings = group.size, len(group.units)
    seconds = moved(kind, n) * bytes / group.bandwidth
    rounds = 2 if kind == "allreduce" else 1
    candidates = [_latency(group, rounds * (n - 1), rounds * (crossings if group.below else n) - rounds) + seconds]
    steps = ceil(log2(crossings))
    if kind in REDUCING:
        chain = max(group.units) - 1
        volume = rounds * bytes / group.bandwidth
        candidates.append(_latency(group, rounds * (steps + chain), rounds * steps) + volume)
    elif kind in ("scatter", "gather"):
        candidates.append(_latency(group, ceil(log2(n)), steps) + seconds)
    return candidates


def _latency(group: Group, steps: int, crossings: int) -> float:
    """Of so many steps, some of which cross units."""
    inside = group.below.hop_seconds if group.below else 0.0
    return group.level.latency_seconds + (crossings - 1) * group.level.hop_seconds + (steps - crossings) * inside


def _hierarchical(machine: Machine, group: Group, bytes: Any, devices: Sequence[int]) -> Any:
    """An allreduce level by level."""
    number = machine.spanned_level(devices)
    size = machine.levels[number - 1].devices
    assert size is not None, "only the outermost level is unlimited"
    inside = [device for device in devices if device // size == devices[0] // size]
    per_unit, units = len(inside), len(group.units)
    # All devices of a unit communicate at once: each has its share of the unit's adapters.
    adapters = _usable_adapters(machine, number, per_unit)
    share = adapters * group.level.bandwidth_bytes_per_second / per_unit
    between = Group(group.level, None, units, (1,) * units, share)
    seconds = _cheapest(_flat(between, "allreduce", bytes / per_unit))
    return seconds + sum(collective_seconds(machine, kind, bytes, inside) for kind in ("reducescatter", "allgather"))


def _cheapest(candidates: Sequence[Any]) -> Any:
    if all(isinstance(candidate, int | float) for candidate in candidates):
        return min(candidates)
    import numpy as np

    return reduce(np.minimum, candidates)
