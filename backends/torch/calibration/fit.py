"""Fits a machine to measurements. In go measured times of probes; out come a `Machine` and its error for each kind.
Least squares are of relative errors: times of one kind span four decades, and each counts the same. Every fit has
two parameters, found by a search over a logarithmic grid that is refined; it needs no start and misses no local
minimum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distir.backends.torch.calibration.measure import Sample
from distir.backends.torch.calibration.probes import COLLECTIVES
from distir.interpreters.cost_models.analytic import AnalyticCostModel
from distir.interpreters.cost_models.collective_algorithms import moved
from distir.interpreters.machines import (
    Device,
    DeviceGroup,
    Figure,
    FittedCollective,
    Level,
    Machine,
)
from distir.interpreters.work import Kind, Work

GRID, ROUNDS = 41, 5
Numbers = np.ndarray


@dataclass(frozen=True)
class KindError:
    """How far the machine is from what it was fitted to."""

    kind: str
    samples: int
    median: float
    worst: float


@dataclass(frozen=True)
class Host:
    """What the fit cannot know."""

    device: str
    memory_bytes: int
    devices: int
    source: str
    """Of every number: when and where it was measured."""
    dispatch_apart: bool
    """Whether operations run while the host issues the next ones."""


def fit_machine(name: str, host: Host, samples: Sequence[Sample], provenance: Mapping[str, str]) -> Machine:
    """The machine on which the `analytic` model is closest to the samples."""
    local = [s for s in samples if s.probe.kind in ("elementwise", "data_movement")]
    floor, bandwidth = _line([s.probe.bytes for s in local], [s.seconds for s in local])
    matmuls = [s for s in samples if s.probe.kind == "matmul"]
    dtypes = list(dict.fromkeys(s.probe.dtype for s in matmuls))
    half: float | None = None
    rates: dict[str, float] = {}
    for dtype in ["f32", *(d for d in dtypes if d != "f32")]:
        of_type = [s for s in matmuls if s.probe.dtype == dtype]
        rates[dtype], found = _saturating(of_type, floor, bandwidth, half)
        half = half or found
    dispatch = min((s.issue_seconds for s in local), default=0.0) if host.dispatch_apart else 0.0
    device = Device(host.device, rates, 1.0, half or 1.0, bandwidth, 1.0, host.memory_bytes, floor, {}, dispatch)
    level = _level(host.devices, samples)
    machine = Machine(name, (DeviceGroup(device, None),), (level,), host.devices, provenance=provenance)
    return _with_figures(machine, host.source)


def errors(machine: Machine, samples: Sequence[Sample]) -> list[KindError]:
    """Of the machine's predictions, by kind."""
    model = AnalyticCostModel(machine)
    by_kind: dict[str, list[float]] = {}
    for sample in samples:
        by_kind.setdefault(sample.probe.kind, []).append(abs(_predicted(model, sample) / sample.seconds - 1))
    return [KindError(kind, len(e), float(np.median(e)), max(e)) for kind, e in by_kind.items()]


def _predicted(model: AnalyticCostModel, sample: Sample) -> float:
    probe = sample.probe
    if probe.kind == "matmul":
        return model.matmul_seconds(Work(Kind.MATMUL, probe.flops, probe.bytes), probe.dtype)
    if probe.kind == "send":
        return model.send_seconds(probe.bytes, 0, 1)
    if probe.kind in COLLECTIVES:
        return model.collective_seconds(probe.kind, probe.bytes, range(probe.devices))
    return model.data_movement_seconds(Work(Kind.DATA_MOVEMENT, 0, probe.bytes))


def _level(devices: int, samples: Sequence[Sample]) -> Level:
    """A level that connects all: sends give its latency and bandwidth, collectives are as measured. A step of a ring or tree
    that was not measured takes the latency of a message."""
    fitted: dict[str, dict[int, FittedCollective]] = {}
    for kind in ("send", *COLLECTIVES):
        for count in sorted({s.probe.devices for s in samples if s.probe.kind == kind}):
            of = [s for s in samples if s.probe.kind == kind and s.probe.devices == count]
            through = [moved(kind, count) * s.probe.bytes for s in of]
            fitted.setdefault(kind, {})[count] = FittedCollective(*_line(through, [s.seconds for s in of]))
    send = fitted.get("send", {2: FittedCollective(1e-5, 1e10)})[2]
    latency, bandwidth = send.latency_seconds, send.bus_bandwidth_bytes_per_second
    return Level("host", latency, latency, bandwidth, devices, None, fitted)


def _line(amounts: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """The latency a and the rate b of a + amount / b."""
    x, t = np.array(amounts), np.array(seconds)
    fastest = float((x / t).max())
    return _search(lambda a, b: a + x / b, t, (float(t.min()) / 30, float(t.min()) * 3), (fastest / 30, fastest * 10))


def _saturating(samples: Sequence[Sample], floor: float, bandwidth: float, half: float | None) -> tuple[float, float]:
    """The rate R and the half-efficiency flops H of floor + max((F + H) / R, bytes / bandwidth)."""
    flops = np.array([s.probe.flops for s in samples])
    memory = np.array([s.probe.bytes for s in samples]) / bandwidth
    t = np.array([s.seconds for s in samples])
    fastest = float((flops / t).max())
    halves = (1e2, float(flops.max())) if half is None else (half, half)
    return _search(
        lambda rate, h: floor + np.maximum((flops + h) / rate, memory), t, (fastest / 10, fastest * 10), halves
    )


def _search(
    predict: Callable[[Numbers, Numbers], Numbers],
    seconds: Numbers,
    first: tuple[float, float],
    second: tuple[float, float],
) -> tuple[float, float]:
    """The two positive parameters in these ranges, to four digits, that make the sum of squared logarithms of predicted / measured least."""
    ranges = [first, second]
    best = (first[0], second[0])
    for _ in range(ROUNDS):
        axes = [np.geomspace(*r, GRID) for r in ranges]
        a, b = np.meshgrid(*axes, indexing="ij")
        loss = (np.log(predict(a[..., None], b[..., None]) / seconds) ** 2).sum(-1)
        i, j = np.unravel_index(int(loss.argmin()), loss.shape)
        best = (float(axes[0][i]), float(axes[1][j]))
        ranges = [
            (float(axis[max(k - 2, 0)]), float(axis[min(k + 2, GRID - 1)]))
            for axis, k in zip(axes, (int(i), int(j)), strict=True)
        ]
    return float(f"{best[0]:.4g}"), float(f"{best[1]:.4g}")


def _with_figures(machine: Machine, source: str) -> Machine:
    """The machine with the source of each of its numbers, as it is read again from its file."""
    from dataclasses import replace

    device, level = machine.device, machine.levels[0]
    numbers: dict[str, float] = {
        f"device.peak_flops_per_second.{d}": r for d, r in device.peak_flops_per_second.items()
    }
    for key in ("matmul_half_efficiency_flops", "memory_bandwidth_bytes_per_second", "kernel_floor_seconds"):
        numbers[f"device.{key}"] = getattr(device, key)
    if device.dispatch_seconds:
        numbers["device.dispatch_seconds"] = device.dispatch_seconds
    for key in ("latency_seconds", "hop_seconds", "bandwidth_bytes_per_second"):
        numbers[f"levels.{level.name}.{key}"] = getattr(level, key)
    figures = {key: Figure(value, source) for key, value in numbers.items()}
    figures["device.memory_capacity_bytes"] = Figure(
        device.memory_capacity_bytes, "the host's memory, shared by its cores"
    )
    reached = "the peak above is what large matmuls reached"
    figures["device.matmul_efficiency"] = Figure(1, reached)
    figures["device.memory_efficiency"] = Figure(1, "the bandwidth above is what operations reached")
    figures[f"levels.{level.name}.devices"] = Figure(machine.max_devices or 1, "processes that were measured, or cores")
    for kind, sizes in level.fitted.items():
        for size, fit in sizes.items():
            prefix = f"levels.{level.name}.fitted.{kind}.{size}."
            figures[f"{prefix}latency_seconds"] = Figure(fit.latency_seconds, source)
            figures[f"{prefix}bus_bandwidth_bytes_per_second"] = Figure(fit.bus_bandwidth_bytes_per_second, source)
    return replace(machine, figures=figures)
