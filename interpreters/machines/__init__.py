"""Machines: what the cost models know about hardware, read from TOML files in which every number has a source.

Each built-in machine is a file of this folder; a user's own (`distir calibrate` writes one) has the same form, which
`docs/cost_models.md` describes and `reading` checks:

    memory_bandwidth_bytes_per_second = { value = 9.0e11, source = "where the number comes from" }

Devices are numbered unit by unit of the innermost level (node by node), group by group where they differ.
"""

from __future__ import annotations

from pathlib import Path

from distir.dialects.errors import DistirError
from distir.interpreters.machines.description import (
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
from distir.interpreters.machines.reading import read_machine

__all__ = [
    "Device",
    "DeviceGroup",
    "Figure",
    "FittedCollective",
    "Level",
    "Machine",
    "Memory",
    "Overlap",
    "Tiles",
    "load_machine",
    "machine_names",
]

BUILT_IN = Path(__file__).parent


def machine_names() -> list[str]:
    """The built-in machines."""
    return sorted(path.stem for path in BUILT_IN.glob("*.toml"))


def load_machine(name_or_path: str | Path) -> Machine:
    """The built-in machine of that name, or the one that a `.toml` file describes. Raises DistirError."""
    if str(name_or_path) in machine_names():
        return read_machine(BUILT_IN / f"{name_or_path}.toml")
    if not str(name_or_path).endswith(".toml"):
        raise DistirError(
            f"unknown machine {name_or_path}: expected {', '.join(machine_names())} or the path of a .toml file"
        )
    return read_machine(Path(name_or_path))
