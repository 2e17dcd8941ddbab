"""Writes timelines. In goes a simulated program; out comes a file for Perfetto (ui.perfetto.dev), chrome://tracing
and Holistic Trace Analysis, with a process per device, or a folder with a file per rank for Holistic Trace Analysis.

Events are written as they are found, so that a window of a large program costs what the window holds. A timeline of more
slices than a viewer opens is refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from distir.dialects.errors import DistirError
from distir.interpreters.simulate.breakdown import places
from distir.interpreters.simulate.expansion import Expansion
from distir.interpreters.simulate.spans import Level, Span, Window, trace_events

LIMIT = 1_000_000
"""Slices and counter values of one trace, about 250 MB: what ui.perfetto.dev opens in a browser."""

DEPTHS: dict[str, int | None] = {"stage": 1, "layer": 2, "op": None}
"""Levels of calls that are opened: the entry's own steps, inside its calls, everything."""


@dataclass(frozen=True)
class TraceView:
    """The part of a timeline to write."""

    window: Window | None = None
    """In picoseconds."""
    devices: frozenset[int] | None = None
    depth: str = "op"
    """One of `DEPTHS`."""


def write_trace(expansion: Expansion, path: str | Path, view: TraceView = TraceView(), limit: int = LIMIT) -> int:
    """Writes a view of the timeline and returns how many slices it has. A path that ends in `/`, or is a folder, becomes a
    folder of `rank-N.json`. Each file is written whole or not at all. Raises DistirError if it cannot be written, or if the
    view has more than `limit` slices."""
    records = list(islice(_records(expansion, view), limit + 1))
    if len(records) > limit:
        raise DistirError(
            f"trace {path}: more than {limit:,} slices: narrow it with --window A..B, --devices 0,3..5 or --depth "
            f"{'layer' if view.depth == 'op' else 'stage'}"
        )
    world = len(expansion.program.devices)
    shown = sorted(range(world) if view.devices is None else view.devices)
    if not str(path).endswith("/") and not Path(path).is_dir():
        _write(
            Path(path), _document(expansion, records, shown, {"backend": "nccl", "rank": shown[0], "world_size": world})
        )
        return len(records)
    by_rank: dict[int, list[Span | Level]] = {device: [] for device in shown}
    for record in records:
        by_rank[record.device if isinstance(record, Level) else record.stream[0]].append(record)
    try:
        Path(path).mkdir(exist_ok=True)
        if other := [file.name for file in Path(path).iterdir() if not re.fullmatch(r"rank-\d+\.json", file.name)]:
            raise DistirError(f"trace {path}: the folder holds other files ({sorted(other)[0]}, ...): name a new one")
    except OSError as error:
        raise DistirError(f"trace {path}: {error.strerror}") from error
    for device, own in by_rank.items():
        ranks = {"backend": "nccl", "rank": device, "world_size": world}
        _write(Path(path) / f"rank-{device}.json", _document(expansion, own, [device], ranks))
    return len(records)


def _records(expansion: Expansion, view: TraceView) -> Iterator[Span | Level]:
    arguments = (view.window, view.devices, DEPTHS[view.depth])
    return chain(expansion.spans(*arguments), expansion.levels(*arguments))


def _document(
    expansion: Expansion, records: list[Span | Level], devices: list[int], ranks: dict[str, Any]
) -> Iterator[str]:
    """The JSON in pieces; Holistic Trace Analysis takes the rank from `distributedInfo`."""
    machine = expansion.program.known.machine
    properties = [{"id": device, "name": machine.device.name} for device in devices]
    head = {"schemaVersion": 1, "distributedInfo": ranks, "deviceProperties": properties, "displayTimeUnit": "ms"}
    streams = [stream for stream in expansion.entry().streams if stream[0] in set(devices)]
    yield json.dumps(head)[:-1] + ', "traceEvents": ['
    separator = "\n"
    where = places(expansion.program.reader.module, len(expansion.program.devices))
    for event in trace_events(records, devices, streams, where):
        yield separator + json.dumps(event, separators=(",", ":"))
        separator = ",\n"
    yield "\n]}\n"


def _write(path: Path, pieces: Iterator[str]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.writelines(pieces)
        temporary.replace(path)
    except OSError as error:
        raise DistirError(f"trace {path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
