"""How `distir simulate` says what time and memory go to, in the model's names. In goes a simulation; out come rows of a table, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distir.tools.commands.report import bytes_text, seconds_text

if TYPE_CHECKING:
    from distir.interpreters.simulate.analysis import Analysis
    from distir.interpreters.simulate.breakdown import By

KINDS: tuple[By, ...] = ("module", "layer", "kind", "operation")
SHOWN = 10
"""Parts that are printed; the others are one line."""


def parts_of(analysis: Analysis, by: By) -> list[dict[str, Any]]:
    """Seconds are those of an average device; bytes those of the fullest device at its peak."""
    from distir.interpreters.costs import PICOSECONDS
    from distir.interpreters.simulate.breakdown import breakdown

    peaks, scale = analysis.summary.peak_memory_bytes, PICOSECONDS * max(analysis.summary.devices, 1)
    peak = analysis.peak(max(peaks, key=lambda device: peaks[device])) if peaks else None
    return [
        {
            "name": part.name,
            "seconds": part.picoseconds / scale,
            "communication_seconds": part.communication_picoseconds / scale,
            "peak_bytes": part.bytes,
        }
        for part in breakdown(analysis.expansion, peak, by)
    ]


def rows_of(parts: Sequence[dict[str, Any]], makespan_seconds: float) -> list[tuple[str, ...]]:
    """The parts that take longest, and what the others come to."""
    rest = parts[SHOWN:]
    others: dict[str, Any] = {
        key: sum(part[key] for part in rest) for key in ("seconds", "communication_seconds", "peak_bytes")
    }
    shown: list[dict[str, Any]] = [*parts[:SHOWN], *([{"name": f"{len(rest)} others", **others}] if rest else [])]
    return [
        (
            part["name"],
            seconds_text(part["seconds"]),
            f"{part['seconds'] / makespan_seconds:.1%}" if makespan_seconds else "",
            f"{part['communication_seconds'] / part['seconds']:.0%}" if part["seconds"] else "",
            bytes_text(part["peak_bytes"]) if part["peak_bytes"] else "",
        )
        for part in shown
    ]


def header(by: str) -> tuple[str, ...]:
    return (by, "time", "of makespan", "communication", "memory at peak")
