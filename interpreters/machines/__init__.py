"""Machines: the figures of hardware that cost models use. In goes a machine's name or a TOML file; out comes a
`Machine`, in which every number has a source.

Each built-in machine is a file of this folder; a user's own (`distir calibrate` writes one) has the same form, which
`docs/cost_models.md` describes and `reading` checks:

    memory_bandwidth_bytes_per_second = { value = 9.0e11, source = "where the number comes from" }

Devices are numbered unit by unit of the innermost level (node by node), group by group where they differ.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from distir.dialects.errors import DistirError
from distir.dialects.plugins import Registry, expected
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
    "with_settings",
]

BUILT_IN = Path(__file__).parent

MACHINES: Registry[Path] = Registry("machine", {path.stem: path for path in sorted(BUILT_IN.glob("*.toml"))})
"""The files of the machines that have a name."""


def machine_names() -> list[str]:
    """The machines that can be asked for by name."""
    return sorted(MACHINES)


def load_machine(name_or_path: str | Path, settings: Sequence[str] = ()) -> Machine:
    """The machine of that name, or the one that a `.toml` file describes, with numbers that are set otherwise, as in
    `device.memory_capacity_bytes=80GB`, here or behind the name (`with_settings`). Raises DistirError."""
    if found := _SET.fullmatch(str(name_or_path)):
        name_or_path, settings = found[1], (*found[2].split(), *settings)
    if str(name_or_path) not in MACHINES and not str(name_or_path).endswith(".toml"):
        raise DistirError(
            f"unknown machine {name_or_path}: {expected(str(name_or_path), MACHINES, 'the path of a .toml file')}"
        )
    path = MACHINES[str(name_or_path)] if str(name_or_path) in MACHINES else Path(name_or_path)
    machine = read_machine(path, settings)
    is_own = str(name_or_path) not in MACHINES and not machine.provenance
    if path not in _noted and (is_own or any(map(_sets_link, settings))):
        _noted.add(path)
        for note in fitted_notes(machine):
            print(f"distir: note: machine {name_or_path}: {note}", file=sys.stderr)
    return machine


def _sets_link(setting: str) -> bool:
    """Whether it gives a link another number, rather than all that is known of it a factor."""
    key, _, value = setting.partition("=")
    return key.rpartition(".")[2].startswith(("bandwidth", "latency")) and not value.endswith("x")


_SET = re.compile(r"(.*?)((?: [\w.]+=\S+)+)")


def with_settings(name_or_path: str, settings: Sequence[str]) -> str:
    """A machine whose numbers are set otherwise as one text, which passes take: `dgx-2 device.memory_capacity_bytes=80GB`."""
    return " ".join([name_or_path, *settings])


_noted: set[Path] = set()
"""Files of which it has been said what in them has no effect."""


def fitted_notes(machine: Machine) -> list[str]:
    """Where a measured table stands for the figures of a link, so that changing these changes nothing for such groups."""
    found: list[str] = []
    for level in machine.levels:
        for kind, sizes in level.fitted.items():
            groups = ", ".join(map(str, sizes))
            found.append(
                f"{kind} among {groups} devices of level {level.name} takes what [levels.fitted.{kind}] says, whatever "
                "bandwidth_bytes_per_second and latency_seconds of the level are: remove the table to use those"
            )
    return found
