"""`distir machines`: the machines that programs can be simulated on. In goes a name, or none; out come that
machine's numbers with their sources, or the list."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.report import add_settings, bytes_text, print_table, say, seconds_text

if TYPE_CHECKING:
    from distir.interpreters.machines import Device, Level, Machine

EXAMPLES = """\
examples:
  distir machines                lists the built-in machines
  distir machines dgx-2          shows its numbers, each with its source
  distir machines mine.toml      the same for a machine of your own
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "machines",
        help="the machines that are known",
        description="Lists the built-in machines, or shows the numbers of one with their sources.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="a built-in machine, or a .toml file")
    add_settings(parser)
    parser.add_argument("--json", action="store_true", help="print the machines as JSON")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from distir.interpreters.machines import load_machine

    if args.name is None and args.settings:
        raise DistirError("--set: say of which machine, by its NAME")
    machines = _all() if args.name is None else [load_machine(args.name, args.settings)]
    if args.json:
        print(json.dumps([*map(_described, machines)], indent=1))
    elif args.name is not None:
        show(*machines)
    else:
        header = ("machine", "device", "memory", "peak", "devices", "links, innermost first")
        print_table([*map(_summary, machines)], header)
    return 0


def _all() -> list[Machine]:
    """All that have a name and can be read; a note on stderr says of the others why not."""
    from distir.interpreters.machines import load_machine, machine_names

    found: list[Machine] = []
    for name in machine_names():
        try:
            found.append(load_machine(name))
        except DistirError as error:
            say(f"distir: note: {name} is left out: {error}", sys.stderr)
    return found


def _described(machine: Machine) -> dict[str, Any]:
    """What `--json` prints of a machine: each number with its source, by its key."""
    figures = {key: {"value": figure.value, "source": figure.source} for key, figure in machine.figures.items()}
    return {
        "name": machine.name,
        "devices": [group.device.name for group in machine.groups],
        "provenance": dict(machine.provenance),
        "figures": figures,
    }


def _summary(machine: Machine) -> tuple[str, ...]:
    devices = [group.device for group in machine.groups]
    return (
        machine.name,
        " + ".join(device.name for device in devices),
        " + ".join(bytes_text(device.memory_capacity_bytes) for device in devices),
        " + ".join(_peak(device) for device in devices),
        "any number" if machine.max_devices is None else f"up to {machine.max_devices}",
        "; ".join(_level(level) for level in machine.levels),
    )


def _peak(device: Device) -> str:
    peaks = device.peak_flops_per_second
    fastest = next(dtype for dtype in ("bf16", "f16", "f32") if dtype in peaks)
    return f"{peaks[fastest] / 1e12:.4g} TFLOP/s {fastest}"


def _level(level: Level) -> str:
    size = "" if level.devices is None else f" of {level.devices}"
    figures = f"{level.bandwidth_bytes_per_second / 1e9:.4g} GB/s, {seconds_text(level.latency_seconds)}"
    return f"{level.name}{size}: {figures}"


def show(machine: Machine) -> None:
    """How it was measured, if it was, and every number of the machine, by its key in the file, with its source."""
    say(f"{machine.name}: {' + '.join(group.device.name for group in machine.groups)}")
    print()
    if machine.provenance:
        print_table(list(machine.provenance.items()), ("measured", ""))
        print()
    rows = [(key, f"{figure.value:.15g}", figure.source) for key, figure in machine.figures.items()]
    print_table(rows, ("number", "value", "source"))
