"""`distir machines`: the machines that programs can be simulated on, and where their numbers come from."""

from __future__ import annotations

from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from distir.tools.commands.report import bytes_text, print_table, seconds_text

if TYPE_CHECKING:
    from distir.interpreters.machines import Link, Machine

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
    header = ("machine", "device", "memory", "peak", "per node", "devices", "in a node", "between nodes")
    print_table([_summary(load_machine(name)) for name in machine_names()], header)
    return 0


def _summary(machine: Machine) -> tuple[str, ...]:
    peaks = machine.device.peak_flops_per_second
    fastest = next(dtype for dtype in ("bf16", "f16", "f32") if dtype in peaks)
    return (
        machine.name,
        machine.device.name,
        bytes_text(machine.device.memory_capacity_bytes),
        f"{peaks[fastest] / 1e12:.4g} TFLOP/s {fastest}",
        str(machine.devices_per_node),
        "any number" if machine.max_devices is None else f"up to {machine.max_devices}",
        _link(machine.intra_node_link),
        "one node" if machine.inter_node_link is None else _link(machine.inter_node_link),
    )


def _link(link: Link) -> str:
    return f"{link.bandwidth_bytes_per_second / 1e9:.4g} GB/s, {seconds_text(link.latency_seconds)}"


def show(machine: Machine) -> None:
    """Every number of the machine, by its key in the file, with its source."""
    print(f"{machine.name}: {machine.device.name}\n")
    rows = [(key, _number(machine, key), source) for key, source in machine.sources.items()]
    print_table(rows, ("number", "value", "source"))


def _number(machine: Machine, key: str) -> str:
    """The value of a dotted key, as in `device.peak_flops_per_second.f16`."""
    from distir.interpreters.machines import FittedCollective

    value: Any = machine
    for name in key.split("."):
        if isinstance(value, Mapping):
            entries = cast(Mapping[str | int, Any], value)
            value = entries[int(name) if name.isdecimal() else name]
        else:
            value = getattr(value, name)
    if isinstance(value, FittedCollective):
        return f"{seconds_text(value.latency_seconds)} + bytes / {value.bus_bandwidth_bytes_per_second:.4g} per second"
    return f"{value:.15g}"
