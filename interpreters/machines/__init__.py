"""Machines: what the cost models know about hardware, read from TOML files in which every number has a source.

Each built-in machine is a file of this folder; a user's own (`distir calibrate` writes one) has the same form:

    memory_bandwidth_bytes_per_second = { value = 9.0e11, source = "where the number comes from" }

Devices are numbered node by node. Where a machine may have several nodes, the devices asked for say how many.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from distir.dialects.errors import DistirError

BUILT_IN = Path(__file__).parent


@dataclass(frozen=True)
class FittedCollective:
    """Measured time of a collective: latency + bytes moved per device / bus bandwidth (NCCL's definition of busbw)."""

    latency_seconds: float
    bus_bandwidth_bytes_per_second: float


@dataclass(frozen=True)
class Link:
    """What connects each device to the others on one level (inside a node, or between nodes); one direction."""

    latency_seconds: float
    """One message, start to finish, without its bytes."""
    hop_seconds: float
    """Each further step of a ring after the first."""
    bandwidth_bytes_per_second: float
    fitted: Mapping[str, Mapping[int, FittedCollective]] = field(
        default_factory=dict[str, Mapping[int, FittedCollective]]
    )
    """By kind of collective and group size."""


@dataclass(frozen=True)
class Device:
    """One device: peaks, and the fractions of them that are reached."""

    name: str
    peak_flops_per_second: Mapping[str, float]
    """By element type as the IR prints it (`f16`); one that is not listed runs at the rate of `f32`."""
    matmul_efficiency: float
    """Fraction of the peak that large matmuls reach."""
    matmul_half_efficiency_flops: float
    """A matmul of this many flops reaches half of that."""
    memory_bandwidth_bytes_per_second: float
    memory_efficiency: float
    memory_capacity_bytes: int
    kernel_floor_seconds: float
    """What any kernel takes, however small."""

    def peak(self, dtype: str) -> float:
        """FLOP/s for an element type."""
        return self.peak_flops_per_second.get(dtype, self.peak_flops_per_second["f32"])


@dataclass(frozen=True)
class Machine:
    """A cluster of equal nodes."""

    name: str
    device: Device
    devices_per_node: int
    max_devices: int | None
    """None: as many nodes as are asked for."""
    intra_node_link: Link
    inter_node_link: Link | None
    """None: there is one node."""
    sources: Mapping[str, str]
    """Where each number comes from, by its dotted key."""

    def node_of(self, device: int) -> int:
        return device // self.devices_per_node

    def check_devices(self, count: int) -> None:
        """Raises DistirError if the machine does not have that many devices."""
        if self.max_devices is not None and count > self.max_devices:
            raise DistirError(f"machine {self.name} has {self.max_devices} devices, the program needs {count}")


def machine_names() -> list[str]:
    """The built-in machines."""
    return sorted(path.stem for path in BUILT_IN.glob("*.toml"))


def load_machine(name_or_path: str | Path) -> Machine:
    """The built-in machine of that name, or the one that a `.toml` file describes. Raises DistirError."""
    if str(name_or_path) in machine_names():
        return _read(BUILT_IN / f"{name_or_path}.toml")
    if not str(name_or_path).endswith(".toml"):
        raise DistirError(
            f"unknown machine {name_or_path}: expected {', '.join(machine_names())} or the path of a .toml file"
        )
    return _read(Path(name_or_path))


def _read(path: Path) -> Machine:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DistirError(f"machine file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DistirError(f"machine file {path}: {error}") from error
    return _MachineFile(path).machine(table)


@dataclass
class _MachineFile:
    """Reads the tables of one file; every complaint names the file and the key."""

    path: Path
    sources: dict[str, str] = field(default_factory=dict[str, str])

    def machine(self, table: dict[str, Any]) -> Machine:
        known = ("name", "devices_per_node", "max_devices", "device", "intra_node_link", "inter_node_link")
        self.expect_keys(table, "", known)
        per_node = self.count(table, "devices_per_node")
        most = self.count(table, "max_devices") if "max_devices" in table else None
        between = self.link(table, "inter_node_link") if "inter_node_link" in table else None
        if between is None and (most is None or most > per_node):
            raise self.error("inter_node_link", f"a table, or max_devices of at most {per_node}", "nothing")
        return Machine(
            name=self.text(table, "name"),
            device=self.device(self.table(table, "device")),
            devices_per_node=per_node,
            max_devices=most,
            intra_node_link=self.link(table, "intra_node_link"),
            inter_node_link=between,
            sources=self.sources,
        )

    def device(self, table: dict[str, Any]) -> Device:
        self.expect_keys(table, "device.", tuple(Device.__dataclass_fields__))
        peaks = self.table(table, "peak_flops_per_second", "device.")
        prefix = "device.peak_flops_per_second."
        rates = {dtype: self.number(peaks, dtype, prefix) for dtype in peaks}
        if "f32" not in rates:
            raise self.error(f"{prefix}f32", "a number with a source", "nothing")
        return Device(
            name=self.text(table, "name", "device."),
            peak_flops_per_second=rates,
            matmul_efficiency=self.fraction(table, "matmul_efficiency"),
            matmul_half_efficiency_flops=self.number(table, "matmul_half_efficiency_flops", "device."),
            memory_bandwidth_bytes_per_second=self.number(table, "memory_bandwidth_bytes_per_second", "device."),
            memory_efficiency=self.fraction(table, "memory_efficiency"),
            memory_capacity_bytes=self.count(table, "memory_capacity_bytes", "device."),
            kernel_floor_seconds=self.number(table, "kernel_floor_seconds", "device."),
        )

    def link(self, parent: dict[str, Any], key: str) -> Link:
        table, prefix = self.table(parent, key), f"{key}."
        self.expect_keys(table, prefix, tuple(Link.__dataclass_fields__))
        fitted = self.table(table, "fitted", prefix) if "fitted" in table else {}
        return Link(
            latency_seconds=self.number(table, "latency_seconds", prefix),
            hop_seconds=self.number(table, "hop_seconds", prefix),
            bandwidth_bytes_per_second=self.number(table, "bandwidth_bytes_per_second", prefix),
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
            self.expect_keys(row, f"{prefix}{size}.", tuple(FittedCollective.__dataclass_fields__))
            fits[int(size)] = FittedCollective(
                *(self.positive(row.get(key), f"{prefix}{size}.{key}") for key in FittedCollective.__dataclass_fields__)
            )
            self.sources[f"{prefix}{size}"] = source
        if not fits:
            raise self.error(f"{prefix}2", "at least one group size", "nothing")
        return dict(sorted(fits.items()))

    def error(self, key: str, expected: str, got: object) -> DistirError:
        return DistirError(f"machine file {self.path}: {key}: expected {expected}, got {got}")

    def expect_keys(self, table: dict[str, Any], prefix: str, known: tuple[str, ...]) -> None:
        if unknown := sorted(table.keys() - set(known)):
            raise self.error(f"{prefix}{unknown[0]}", f"one of {', '.join(known)}", "an unknown key")

    def table(self, parent: dict[str, Any], key: str, prefix: str = "") -> dict[str, Any]:
        value = parent.get(key)
        if not isinstance(value, dict):
            raise self.error(f"{prefix}{key}", "a table", "nothing" if value is None else value)
        return cast(dict[str, Any], value)

    def text(self, table: dict[str, Any], key: str, prefix: str = "") -> str:
        value = table.get(key)
        if not isinstance(value, str) or not value:
            raise self.error(f"{prefix}{key}", "a string", "nothing" if value is None else repr(value))
        return value

    def positive(self, value: object, key: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise self.error(key, "a positive number", "nothing" if value is None else value)
        return value

    def number(self, table: dict[str, Any], key: str, prefix: str) -> float:
        """A number beside its source."""
        entry = table.get(key)
        if not isinstance(entry, dict) or entry.keys() != {"value", "source"}:
            expected = 'a table such as { value = 1.0, source = "where it comes from" }'
            raise self.error(f"{prefix}{key}", expected, "nothing" if entry is None else entry)
        self.sources[f"{prefix}{key}"] = self.text(cast(dict[str, Any], entry), "source", f"{prefix}{key}.")
        return self.positive(cast(dict[str, Any], entry)["value"], f"{prefix}{key}.value")

    def count(self, table: dict[str, Any], key: str, prefix: str = "") -> int:
        value = self.number(table, key, prefix)
        if value != int(value):
            raise self.error(f"{prefix}{key}.value", "a whole number", value)
        return int(value)

    def fraction(self, table: dict[str, Any], key: str) -> float:
        value = self.number(table, key, "device.")
        if value > 1:
            raise self.error(f"device.{key}.value", "a fraction of at most 1", value)
        return value
