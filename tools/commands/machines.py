"""`distir machines`: the machines that programs can be simulated on, and where their numbers come from."""

from __future__ import annotations

from argparse import Namespace, RawDescriptionHelpFormatter
from typing import TYPE_CHECKING, Any

from distir.tools.commands.report import bytes_text, print_table, say, seconds_text

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
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="a built-in machine, or a .toml file")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from distir.interpreters.machines import load_machine, machine_names

    if args.name is not None:
        show(load_machine(args.name))
        return 0
    header = ("machine", "device", "memory", "peak", "devices", "links, innermost first")
    print_table([_summary(load_machine(name)) for name in machine_names()], header)
    return 0


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
