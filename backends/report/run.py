"""The data of a simulation for the report's page. In goes an analysis; out come spans and memory over time (at the
depth that a browser draws at once), live tensors at the peaks, the critical path, and each device's time. Times are
microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from distir.interpreters.simulate.breakdown import By, breakdown, memory_parts, places
from distir.interpreters.simulate.expansion import COMPUTE
from distir.interpreters.simulate.occupancy import by_axis
from distir.interpreters.simulate.spans import PER_MICROSECOND, Level, Span

if TYPE_CHECKING:
    from distir.interpreters.simulate.analysis import Analysis

SPANS = 60_000
"""What the page draws at once; a timeline of more is closed to layers, then stages."""
ROWS = 64
"""Devices whose timeline and memory are shown."""
POINTS = 1_500
"""Of memory over time, per device."""
PARTS = 200
"""Modules, layers or kinds that are listed."""
LISTED = 25
"""Groups of tensors at a peak."""
MEMORY_PARTS: tuple[By, ...] = ("kind", "layer", "module")


def run_tiles(analysis: Analysis, batch: int | None) -> list[list[Any]]:
    """The answers at a glance: (name, value, note, whether it is bad news)."""
    summary, times = analysis.summary, analysis.device_times
    capacity = analysis.machine.device.memory_capacity_bytes
    peaks = summary.peak_memory_bytes
    peak = max(peaks.values(), default=0)
    reserved = analysis.reserved_bytes(max(peaks, key=lambda d: peaks[d])) if peaks else 0
    total = max(summary.makespan_picoseconds * summary.devices, 1)
    compute, communication, idle, hidden = (sum(kind) / total for kind in list(zip(*times, strict=True))[:4])
    tiles: list[list[Any]] = [["makespan", time_text(summary.makespan_seconds), "one run of the program", False]]
    if batch is not None and summary.makespan_picoseconds:
        tiles.append(
            ["throughput", f"{batch / summary.makespan_seconds:,.1f}", f"samples per second, batch {batch}", False]
        )
    note = f"{bytes_text(reserved)} with allocator and workspace, {reserved / capacity:.1%} of {bytes_text(capacity)}"
    bad = reserved > capacity
    tiles.append(["peak memory", bytes_text(peak), f"{note}: does not fit" if bad else note, bad])
    path = analysis.critical_path
    shows = sum(time for link, time in path.links.items() if link.communicates) / max(path.picoseconds, 1)
    tiles.append(["compute", f"{compute:.1%}", "of the devices' time", False])
    note = (
        f"{hidden:.1%} more is hidden; {shows:.1%} of the critical path"
        if hidden
        else f"{shows:.1%} of the critical path"
    )
    tiles.append(["communication", f"{communication:.1%}", note, False])
    tiles.append(["bubble", f"{idle:.1%}", "devices wait", False])
    return tiles


def time_text(seconds: float) -> str:
    """`1.28 s`, `23 us`."""
    unit, size = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)) if seconds >= s), ("ns", 1e-9))
    return f"{seconds / size:.4g} {unit}"


def bytes_text(count: float) -> str:
    """`1.125 KiB`, `32 GiB`."""
    units = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
    unit, size = next(((u, s) for u, s in units if count >= s), ("bytes", 1))
    return f"{count / size:.4g} {unit}"


def run_data(analysis: Analysis) -> dict[str, Any]:
    """All that the page shows of a simulation."""
    summary, count = analysis.summary, analysis.summary.devices
    where = places(analysis.module, count)
    depth, devices, spans = _spans(analysis, where)
    table = Columns(sorted({s for s in summary.clocks if s[0] in devices}))
    shown = [table.row(span) for span in spans]
    critical = [table.row(span)[:3] for span in analysis.critical_path.spans if span.stream[0] in devices]
    links = [
        {
            "function": k.function,
            "name": k.name,
            "kind": k.kind,
            "communicates": k.communicates,
            "times": path_times,
            "time": t / PER_MICROSECOND,
        }
        for k, t in analysis.critical_path.links.items()
        for path_times in (analysis.critical_path.times[k],)
    ]
    peaks = summary.peak_memory_bytes
    fullest = max(peaks, key=lambda d: peaks[d], default=0)
    described = sorted({*sorted(devices)[:16], fullest})
    return {
        "makespan": summary.makespan_picoseconds / PER_MICROSECOND,
        "capacity": analysis.machine.device.memory_capacity_bytes,
        "streams": [f"device {d}{' ' + name if name else ''}" for d, name in table.streams],
        "places": [where[d] for d, _ in table.streams],
        "spans": shown,
        "names": list(table.names),
        "kinds": list(table.kinds),
        "paths": list(table.paths),
        "compute": sorted(COMPUTE),
        "critical": critical,
        "note": _note(depth, devices, count, len(spans)),
        "links": links,
        "memory": _memory(analysis, devices | {fullest}, depth),
        "peaks": [_peak(analysis, device) for device in described],
        "parts": {by: _parts(analysis, by) for by in ("module", "layer", "kind", "operation")},
        "devices": [
            {
                "device": d,
                "place": where[d],
                **{k: getattr(t, k) / PER_MICROSECOND for k in ("compute", "communication", "idle", "hidden")},
            }
            for d, t in enumerate(analysis.device_times)
        ],
        "axes": [
            {"axis": axis, **{k: v / PER_MICROSECOND / count for k, v in time._asdict().items()}}
            for axis, time in by_axis(analysis.device_times).items()
        ],
    }


def _spans(analysis: Analysis, where: Sequence[str]) -> tuple[int | None, frozenset[int], list[Span]]:
    """The deepest timeline that can be drawn at once, and its devices: those of all, else one of each pipeline stage, operation by
    operation, else layers, else stages; if even these are too many, the first of them."""
    everyone = frozenset(range(min(len(where), ROWS)))
    first = dict[str, int]()
    for device in sorted(everyone):
        first.setdefault(next((part for part in where[device].split(", ") if part.startswith("pp ")), ""), device)
    spans: list[Span] = []
    for depth, devices in ((None, everyone), (None, frozenset(first.values())), (2, everyone), (1, everyone)):
        if depth is None and devices is not everyone and not any(where):
            continue
        spans = list(islice(analysis.expansion.spans(None, devices, depth), SPANS + 1))
        if len(spans) <= SPANS:
            return depth, devices, spans
    return 1, everyone, spans[:SPANS]


def _note(depth: int | None, devices: frozenset[int], count: int, spans: int) -> str:
    notes = {
        None: "Every operation.",
        2: "Stages and layers; distir simulate --trace with --window shows operations.",
        1: "Stages; distir simulate --trace with --window shows what is inside.",
    }[depth]
    if spans >= SPANS:
        notes = f"The first {SPANS:,} stages; distir simulate --trace with --window shows others."
    if len(devices) < min(count, ROWS):
        return f"{notes} One device of each pipeline stage, of {count} devices in all."
    return notes + (f" Devices 0 to {ROWS - 1} of {count}." if count > ROWS else "")


@dataclass
class Columns:
    """Spans as numbers: texts that repeat are listed once."""

    streams: Sequence[tuple[int, str]]
    names: dict[str, int] = field(default_factory=dict[str, int])
    kinds: dict[str, int] = field(default_factory=dict[str, int])
    paths: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self.rows = {stream: row for row, stream in enumerate(self.streams)}

    def row(self, span: Span) -> list[float]:
        """[stream, start, duration, name, kind, depth, path]"""
        name = span.name if span.label == span.name else f"{span.name} {span.label}"
        texts = ((self.names, name), (self.kinds, span.kind), (self.paths, " / ".join(span.path)))
        name_number, kind, path = (known.setdefault(text, len(known)) for known, text in texts)
        depth = len(span.path)
        start, duration = span.start / PER_MICROSECOND, (span.end - span.start) / PER_MICROSECOND
        return [self.rows[span.stream], start, duration, name_number, kind, depth, path]


def _memory(analysis: Analysis, devices: frozenset[int], depth: int | None) -> list[dict[str, Any]]:
    """Live bytes over time; of the levels that fall on one point of the page, the highest and the last."""
    by_device: dict[int, list[Level]] = {device: [] for device in sorted(devices)}
    for level in analysis.expansion.levels(None, devices, depth):
        by_device[level.device].append(level)
    step = max(analysis.summary.makespan_picoseconds // POINTS, 1)
    peaks = analysis.summary.peak_memory_bytes
    return [
        {"device": device, "peak": peaks[device], "points": _thinned(levels, step)}
        for device, levels in by_device.items()
    ]


def _thinned(levels: list[Level], step: int) -> list[tuple[float, int]]:
    points: list[tuple[float, int]] = []
    start = 0
    while start < len(levels):
        end = start
        while end < len(levels) and levels[end].at // step == levels[start].at // step:
            end += 1
        group = levels[start:end]
        highest = max(group, key=lambda level: level.bytes)
        points += [(level.at / PER_MICROSECOND, level.bytes) for level in dict.fromkeys((highest, group[-1]))]
        start = end
    return points


def _parts(analysis: Analysis, by: By) -> list[list[Any]]:
    """[name, microseconds of an average device, of these communication, bytes of the fullest device at its peak]"""
    peaks, scale = analysis.summary.peak_memory_bytes, PER_MICROSECOND * max(analysis.summary.devices, 1)
    peak = analysis.peak(max(peaks, key=lambda device: peaks[device])) if peaks else None
    found = breakdown(analysis.expansion, peak, by)[:PARTS]
    return [[p.name, p.picoseconds / scale, p.communication_picoseconds / scale, p.bytes] for p in found]


def _peak(analysis: Analysis, device: int) -> dict[str, Any]:
    peak = analysis.peak(device)
    held = [
        {
            "name": h.name,
            "role": h.role,
            "operation": h.operation,
            "module": h.module,
            "path": " / ".join(h.path),
            "bytes": h.bytes,
            "copies": h.copies,
        }
        for h in peak.live_tensors[:LISTED]
    ]
    if rest := sum(h.total_bytes for h in peak.live_tensors[LISTED:]):
        held.append(
            {"name": "", "role": "others", "operation": "", "module": "", "path": "", "bytes": rest, "copies": 1}
        )
    entry = analysis.expansion.entry().function.name
    parts = {by: memory_parts(peak, entry, by).most_common(PARTS) for by in MEMORY_PARTS}
    return {"device": device, "bytes": peak.bytes, "during": " / ".join(peak.during), "held": held, "parts": parts}
