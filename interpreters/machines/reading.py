"""Reads machine files. In goes TOML; out comes a `Machine`, every number with its source. A bad file ends in one
line that names the file, the key, the expected value and the value found."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from distir.dialects.errors import DistirError
from distir.interpreters.machines.description import (
    AttentionEfficiency,
    Device,
    DeviceGroup,
    Figure,
    FittedCollective,
    Level,
    Machine,
    Memory,
    Overlap,
    Tiles,
)
from distir.interpreters.machines.settings import apply_settings

COLLECTIVES = (
    "allgather",
    "allreduce",
    "alltoall",
    "broadcast",
    "gather",
    "reduce",
    "reducescatter",
    "scatter",
    "send",
)
"""What a level may have measurements of. A send has those of groups of 2."""
KEYS = ("name", "max_devices", "device", "devices", "levels", "memory", "overlap", "provenance")


def read_machine(path: Path, settings: Sequence[str] = ()) -> Machine:
    """The machine that a file describes, with numbers that are set otherwise (`device.memory_capacity_bytes=80GB`). Raises DistirError."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DistirError(f"machine file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DistirError(f"machine file {path}: it is not text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise DistirError(f"machine file {path}: {error}") from error
    apply_settings(table, settings)
    return _MachineFile(path).machine(table)


def _names(of: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(of))


@dataclass
class _MachineFile:
    """Reads the tables of one file."""

    path: Path
    figures: dict[str, Figure] = field(default_factory=dict[str, Figure])

    def machine(self, table: dict[str, Any]) -> Machine:
        self.expect_keys(table, "", KEYS)
        name = self.text(table, "name")
        groups = self.groups(table)
        levels = self.levels(table)
        return Machine(
            name=name,
            groups=groups,
            levels=levels,
            max_devices=self.most(table, groups, levels),
            memory=self.memory(table),
            overlap=self.overlap(table),
            figures=self.figures,
            provenance=self.provenance(table),
        )

    def groups(self, table: dict[str, Any]) -> tuple[DeviceGroup, ...]:
        """`[device]` where all are alike, else `[[devices]]` with the `count` of each group."""
        if ("device" in table) == ("devices" in table):
            raise self.error(
                "device", "either [device] or several [[devices]]", "both" if "device" in table else "none"
            )
        if "device" in table:
            return (DeviceGroup(self.device(self.table(table, "device"), "device."), None),)
        rows = self.rows(table, "devices")
        return tuple(
            DeviceGroup(self.device(row, prefix, ("count",)), self.count(row, "count", prefix)) for prefix, row in rows
        )

    def device(self, table: dict[str, Any], prefix: str, more: tuple[str, ...] = ()) -> Device:
        self.expect_keys(table, prefix, (*_names(Device), *more))
        peaks = self.table(table, "peak_flops_per_second", prefix)
        rates = {dtype: self.number(peaks, dtype, f"{prefix}peak_flops_per_second.") for dtype in peaks}
        if "f32" not in rates:
            raise self.error(f"{prefix}peak_flops_per_second.f32", "a number with a source", "nothing")
        efficiencies = "matmul_efficiency_by_type"
        by_type = self.table(table, efficiencies, prefix) if efficiencies in table else {}
        return Device(
            name=self.text(table, "name", prefix),
            peak_flops_per_second=rates,
            matmul_efficiency=self.fraction(table, "matmul_efficiency", prefix),
            matmul_half_efficiency_flops=self.number(table, "matmul_half_efficiency_flops", prefix),
            memory_bandwidth_bytes_per_second=self.number(table, "memory_bandwidth_bytes_per_second", prefix),
            memory_efficiency=self.fraction(table, "memory_efficiency", prefix),
            memory_capacity_bytes=self.count(table, "memory_capacity_bytes", prefix),
            kernel_floor_seconds=self.number(table, "kernel_floor_seconds", prefix),
            matmul_efficiency_by_type={d: self.fraction(by_type, d, f"{prefix}{efficiencies}.") for d in by_type},
            dispatch_seconds=self.optional(table, "dispatch_seconds", prefix),
            tiles=self.tiles(self.table(table, "tiles", prefix), f"{prefix}tiles.") if "tiles" in table else None,
            attention=self.attention(self.table(table, "attention", prefix), f"{prefix}attention.")
            if "attention" in table
            else {},
        )

    def attention(self, table: dict[str, Any], prefix: str) -> dict[str, dict[int, AttentionEfficiency]]:
        """`[device.attention.bf16.128]`: by element type and head size."""
        found: dict[str, dict[int, AttentionEfficiency]] = {}
        for dtype in table:
            sizes = self.table(table, dtype, prefix)
            for size in sizes:
                key = f"{prefix}{dtype}.{size}."
                if not size.isdecimal() or int(size) < 1:
                    raise self.error(key[:-1], "a head size of at least 1 as the key", size)
                row = self.table(sizes, size, f"{prefix}{dtype}.")
                self.expect_keys(row, key, _names(AttentionEfficiency))
                reached = (self.fraction(row, name, key) for name in _names(AttentionEfficiency))
                found.setdefault(dtype, {})[int(size)] = AttentionEfficiency(*reached)
        return found

    def tiles(self, table: dict[str, Any], prefix: str) -> Tiles:
        self.expect_keys(table, prefix, _names(Tiles))
        slowdown = self.number(table, "misaligned_slowdown", prefix)
        if slowdown < 1:
            raise self.error(f"{prefix}misaligned_slowdown.value", "a factor of at least 1", slowdown)
        return Tiles(
            *(self.count(table, key, prefix) for key in ("rows", "columns", "processors", "wave_rows", "wave_columns")),
            wave_fraction=self.from_zero(table, "wave_fraction", prefix, most=1),
            alignment_bytes=self.count(table, "alignment_bytes", prefix),
            misaligned_slowdown=slowdown,
        )

    def levels(self, table: dict[str, Any]) -> tuple[Level, ...]:
        """Innermost first; each unit holds whole units of the level below."""
        levels: list[Level] = []
        rows = self.rows(table, "levels")
        for number, (prefix, row) in enumerate(rows):
            level = self.level(row, prefix)
            below = levels[-1].devices if levels else 1
            if level.devices is None and number < len(rows) - 1:
                raise self.error(f"{prefix}devices", "a count (only the outermost level is unlimited)", "nothing")
            if level.devices is not None and below is not None and (level.devices % below or level.devices < below):
                raise self.error(f"{prefix}devices.value", f"a multiple of the level below's {below}", level.devices)
            levels.append(level)
        return tuple(levels)

    def level(self, table: dict[str, Any], prefix: str) -> Level:
        self.expect_keys(table, prefix, _names(Level))
        fitted = self.table(table, "fitted", prefix) if "fitted" in table else {}
        self.expect_keys(fitted, f"{prefix}fitted.", COLLECTIVES)
        return Level(
            name=self.text(table, "name", prefix),
            latency_seconds=self.number(table, "latency_seconds", prefix),
            hop_seconds=self.number(table, "hop_seconds", prefix),
            bandwidth_bytes_per_second=self.number(table, "bandwidth_bytes_per_second", prefix),
            devices=self.count(table, "devices", prefix) if "devices" in table else None,
            adapters=self.count(table, "adapters", prefix) if "adapters" in table else None,
            fitted={kind: self.fits(fitted, kind, f"{prefix}fitted.") for kind in fitted},
        )

    def fits(self, parent: dict[str, Any], kind: str, prefix: str) -> dict[int, FittedCollective]:
        """`{ source = "...", 2 = { latency_seconds = 1e-5, bus_bandwidth_bytes_per_second = 1e11 }, ... }`."""
        table = self.table(parent, kind, prefix)
        prefix = f"{prefix}{kind}."
        source = self.text(table, "source", prefix)
        fits: dict[int, FittedCollective] = {}
        for size in sorted(table.keys() - {"source"}):
            if not size.isdecimal() or int(size) < 2:
                raise self.error(f"{prefix}{size}", "a group size of at least 2 as the key", size)
            row = self.table(table, size, prefix)
            self.expect_keys(row, f"{prefix}{size}.", _names(FittedCollective))
            values = [self.positive(row.get(key), f"{prefix}{size}.{key}") for key in _names(FittedCollective)]
            for key, value in zip(_names(FittedCollective), values, strict=True):
                self.figures[f"{prefix}{size}.{key}"] = Figure(value, source)
            fits[int(size)] = FittedCollective(*values)
        if not fits:
            raise self.error(f"{prefix}2", "at least one group size", "nothing")
        return dict(sorted(fits.items()))

    def most(self, table: dict[str, Any], groups: tuple[DeviceGroup, ...], levels: tuple[Level, ...]) -> int | None:
        """How many devices there are: as stated, as the groups add up to, or as the outermost level holds."""
        stated = self.count(table, "max_devices") if "max_devices" in table else None
        counts = [group.count for group in groups if group.count is not None]
        if counts and stated not in (None, sum(counts)):
            raise self.error("max_devices.value", f"the sum of the groups' counts, {sum(counts)}", stated)
        most = sum(counts) if counts else stated
        room = levels[-1].devices
        if most is not None and room is not None and most > room:
            key = "devices" if counts else "max_devices.value"
            raise self.error(key, f"at most the {room} devices of the outermost level, {levels[-1].name}", most)
        return most or room

    def memory(self, table: dict[str, Any]) -> Memory:
        if "memory" not in table:
            return Memory()
        memory, prefix = self.table(table, "memory"), "memory."
        self.expect_keys(memory, prefix, _names(Memory))
        granularity = "allocator_granularity_bytes"
        return Memory(
            workspace_bytes=int(self.optional(memory, "workspace_bytes", prefix)),
            allocator_granularity_bytes=self.count(memory, granularity, prefix) if granularity in memory else 1,
            allocator_segment_bytes=int(self.optional(memory, "allocator_segment_bytes", prefix)),
        )

    def overlap(self, table: dict[str, Any]) -> Overlap:
        if "overlap" not in table:
            return Overlap()
        overlap = self.table(table, "overlap")
        self.expect_keys(overlap, "overlap.", _names(Overlap))
        return Overlap(*(self.optional(overlap, key, "overlap.") for key in _names(Overlap)))

    def provenance(self, table: dict[str, Any]) -> dict[str, str]:
        if "provenance" not in table:
            return {}
        provenance = self.table(table, "provenance")
        return {key: self.text(provenance, key, "provenance.") for key in provenance}

    def error(self, key: str, expected: str, got: object) -> DistirError:
        return DistirError(f"machine file {self.path}: {key}: expected {expected}, got {got}")

    def expect_keys(self, table: dict[str, Any], prefix: str, known: tuple[str, ...]) -> None:
        """A key with another unit (`latency_us`) is told which one is known."""
        for key in sorted(table.keys() - set(known)):
            alike = [name for name in known if name.split("_")[0] == key.split("_")[0]]
            raise self.error(f"{prefix}{key}", f"one of {', '.join(alike or known)}", "an unknown key")

    def table(self, parent: dict[str, Any], key: str, prefix: str = "") -> dict[str, Any]:
        value = parent.get(key)
        if not isinstance(value, dict):
            raise self.error(f"{prefix}{key}", "a table", "nothing" if value is None else value)
        return cast(dict[str, Any], value)

    def rows(self, parent: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
        """The tables of an array, each with the prefix of its keys: the table's name, else its number."""
        rows = cast(object, parent.get(key))
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in cast(list[object], rows)):
            raise self.error(key, f"one or more tables [[{key}]]", "nothing" if rows is None else rows)
        tables = cast(list[dict[str, Any]], rows)
        names = [str(row.get("name", number)) for number, row in enumerate(tables)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise self.error(f"{key}.{twice[0]}", "different names", "two of this name")
        return [(f"{key}.{name}.", row) for name, row in zip(names, tables, strict=True)]

    def text(self, table: dict[str, Any], key: str, prefix: str = "") -> str:
        value = table.get(key)
        if not isinstance(value, str) or not value:
            raise self.error(f"{prefix}{key}", "a string", "nothing" if value is None else repr(value))
        return value

    def positive(self, value: object, key: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise self.error(key, "a positive number", "nothing" if value is None else value)
        return value

    def figure(self, table: dict[str, Any], key: str, prefix: str) -> tuple[str, object]:
        """The value beside its source, and its key."""
        entry = table.get(key)
        if not isinstance(entry, dict) or cast(dict[str, Any], entry).keys() != {"value", "source"}:
            expected = 'a table such as { value = 1.0, source = "where it comes from" }'
            raise self.error(f"{prefix}{key}", expected, "nothing" if entry is None else cast(object, entry))
        return self.text(cast(dict[str, Any], entry), "source", f"{prefix}{key}."), cast(object, entry["value"])

    def number(self, table: dict[str, Any], key: str, prefix: str) -> float:
        source, value = self.figure(table, key, prefix)
        number = self.positive(value, f"{prefix}{key}.value")
        self.figures[f"{prefix}{key}"] = Figure(number, source)
        return number

    def optional(self, table: dict[str, Any], key: str, prefix: str, most: float = float("inf")) -> float:
        """A number that may be absent or 0: then 0."""
        return self.from_zero(table, key, prefix, most) if key in table else 0.0

    def from_zero(self, table: dict[str, Any], key: str, prefix: str, most: float = float("inf")) -> float:
        source, value = self.figure(table, key, prefix)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
            raise self.error(f"{prefix}{key}.value", "a number that is not negative", value)
        if value == float("inf"):
            raise self.error(f"{prefix}{key}.value", "a finite number", value)
        self.figures[f"{prefix}{key}"] = Figure(value, source)
        return value

    def count(self, table: dict[str, Any], key: str, prefix: str = "") -> int:
        value = self.number(table, key, prefix)
        if value != int(value):
            raise self.error(f"{prefix}{key}.value", "a whole number", value)
        return int(value)

    def fraction(self, table: dict[str, Any], key: str, prefix: str) -> float:
        value = self.number(table, key, prefix)
        if value > 1:
            raise self.error(f"{prefix}{key}.value", "a fraction of at most 1", value)
        return value
