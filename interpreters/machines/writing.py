"""Writes machine files. In goes a machine; out comes the text of its file, which `reading` reads, every number with its source."""

from __future__ import annotations

from typing import Any

import tomlkit

from distir.interpreters.machines.description import Figure, Machine


def machine_text(machine: Machine) -> str:
    """The text of a machine's file. Its numbers are its `figures`; reading it gives an equal machine."""
    groups = {f"devices.{group.device.name}.": {"name": group.device.name} for group in machine.groups}
    levels = {f"levels.{level.name}.": {"name": level.name} for level in machine.levels}
    device = {"device": {"name": machine.device.name}} if machine.is_uniform else {"devices": [*groups.values()]}
    document: dict[str, Any] = {"name": machine.name, **device, "levels": [*levels.values()]}
    rows = levels if machine.is_uniform else groups | levels
    # Numbers of a table stand before the tables in it.
    for key, figure in sorted(machine.figures.items(), key=lambda item: item[0].count(".")):
        prefix = max(filter(key.startswith, rows), key=len, default="")
        table: dict[str, Any] = rows[prefix] if prefix else document
        *path, name = key.removeprefix(prefix).split(".")
        for part in path[:-1]:
            table = table.setdefault(part, {})
        if path[:1] == ["fitted"]:  # one source for all sizes
            table["source"] = figure.source
            table.setdefault(path[-1], tomlkit.inline_table())[name] = figure.value
        else:
            (table.setdefault(path[-1], {}) if path else table)[name] = _beside_its_source(figure)
    if machine.provenance:
        document["provenance"] = dict(machine.provenance)
    return tomlkit.dumps(document)


def _beside_its_source(figure: Figure) -> Any:
    entry = tomlkit.inline_table()
    entry.update(value=figure.value, source=figure.source)
    return entry
