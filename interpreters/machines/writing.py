"""Writes machine files. In goes a machine with one kind of device; out comes the text of its file, which `reading`
reads, every number with its source."""

from __future__ import annotations

import json

from distir.interpreters.machines.description import Machine


def machine_text(machine: Machine) -> str:
    """The text of a machine's file. Its numbers are its `figures`; reading it gives an equal machine."""
    lines = [f"name = {_text(machine.name)}"]
    if "max_devices" in machine.figures:
        lines += _numbers(machine, "", ("max_devices",))
    lines += ["", "[device]", f"name = {_text(machine.device.name)}", *_table(machine, "device.")]
    for part in ("peak_flops_per_second", "matmul_efficiency_by_type", "tiles"):
        if table := _table(machine, f"device.{part}."):
            lines += ["", f"[device.{part}]", *table]
    for dtype, sizes in machine.device.attention.items():
        for size in sizes:
            part = f"device.attention.{dtype}.{size}"
            lines += ["", f"[{part}]", *_table(machine, f"{part}.")]
    for level in machine.levels:
        prefix = f"levels.{level.name}."
        lines += ["", "[[levels]]", f"name = {_text(level.name)}", *_table(machine, prefix)]
        for kind, sizes in level.fitted.items():
            key = f"{prefix}fitted.{kind}."
            lines += ["", f"[levels.fitted.{kind}]"]
            lines.append(f"source = {_text(machine.figures[f'{key}{next(iter(sizes))}.latency_seconds'].source)}")
            for size, fit in sizes.items():
                entries = ", ".join(f"{name} = {value!r}" for name, value in vars(fit).items())
                lines.append(f"{size} = {{ {entries} }}")
    for part in ("memory", "overlap"):
        if table := _table(machine, f"{part}."):
            lines += ["", f"[{part}]", *table]
    if machine.provenance:
        lines += ["", "[provenance]", *(f"{key} = {_text(value)}" for key, value in machine.provenance.items())]
    return "\n".join(lines) + "\n"


def _table(machine: Machine, prefix: str) -> list[str]:
    """The numbers directly in a table."""
    names = [key.removeprefix(prefix) for key in machine.figures if key.startswith(prefix)]
    return _numbers(machine, prefix, [name for name in names if "." not in name])


def _numbers(machine: Machine, prefix: str, names: list[str] | tuple[str, ...]) -> list[str]:
    figures = machine.figures
    return [
        f"{name} = {{ value = {figures[prefix + name].value!r}, source = {_text(figures[prefix + name].source)} }}"
        for name in names
    ]


def _text(text: str) -> str:
    """A TOML basic string: JSON's escapes are a subset of its."""
    return json.dumps(text, ensure_ascii=False)
