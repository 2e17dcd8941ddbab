"""`distir simulate`: how long a program takes on a machine, how much memory it needs, and what its devices do."""

from __future__ import annotations

import json
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from distir.tools.commands.model import load_executable
from distir.tools.commands.report import bytes_text, check_output, print_table, progress, seconds_text

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from distir.interpreters.machines import Machine
    from distir.interpreters.simulate import Simulation, Summary

EXAMPLES = """\
examples:
  distir simulate best.mlir --machine dgx-2
  distir simulate best.mlir --machine mine.toml --json
  distir simulate best.mlir --machine dgx-a100 --trace best.json      open best.json in ui.perfetto.dev
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "simulate",
        help="time and memory of a program on a machine",
        description="Simulates a program on a machine. A sequential program runs on one device.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("program", metavar="PROG.mlir", help="a program of level 1 to 3")
    parser.add_argument("--machine", metavar="M", required=True, help="one of distir machines, or a .toml file")
    parser.add_argument("--cost-model", metavar="C", default="analytic", help="how costs are found (default: analytic)")
    parser.add_argument("--trace", metavar="F.json", help="write the timeline for Perfetto or chrome://tracing")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from distir.backends.trace import write_trace
    from distir.interpreters.machines import load_machine
    from distir.interpreters.simulate import simulate, summarize

    if args.trace is not None:
        check_output(args.trace)
    machine = load_machine(args.machine)
    with progress(f"simulating {args.program}"):
        module = load_executable(args.program)
        summary = summarize(module, machine, args.cost_model)
        overlap = any(stream for _, stream in summary.clocks)
        if overlap or args.trace is not None:  # a timeline takes the execution of every operation
            simulation = simulate(module, machine, args.cost_model)
            share = overlapping_shares(simulation)
            if args.trace is not None:
                write_trace(simulation, args.trace)
        else:
            share = serial_shares(summary)
    figures = {
        "program": args.program,
        "machine": machine.name,
        "cost_model": args.cost_model,
        **figures_of(summary, machine, batch_size(module), share),
    }
    if args.json:
        print(json.dumps(figures, indent=2))
    else:
        print_table(_rows(figures))
    return 0


def batch_size(module: ModuleOp) -> int | None:
    """The extent of dim 0 of the global inputs and labels, if they all have one and agree."""
    from xdsl.dialects.builtin import DYNAMIC_INDEX, TensorType

    from distir.interpreters.entry import arguments_of, entry_function
    from distir.interpreters.inputs import global_shape

    extents = {
        global_shape(port)[0]
        for port in arguments_of(entry_function(module, "main"))
        if port.role in ("input", "label") and isinstance(port.type, TensorType) and global_shape(port)
    }
    return extents.pop() if len(extents) == 1 and DYNAMIC_INDEX not in extents else None


def figures_of(summary: Summary, machine: Machine, batch: int | None, share: dict[str, float]) -> dict[str, Any]:
    """The figures of a simulation, by name; None where there is none."""
    from distir.dialects.dist import Dist
    from distir.dialects.dist.communication import CommunicationOp
    from distir.interpreters.costs import PICOSECONDS

    makespan = summary.makespan_picoseconds
    peaks = [summary.peak_memory_bytes[device] for device in range(summary.devices)]
    capacity = machine.device.memory_capacity_bytes
    messages = sorted(
        op.name for op in Dist.operations if issubclass(op, CommunicationOp) and op.name in summary.counts
    )
    return {
        "devices": summary.devices,
        "makespan_seconds": summary.makespan_seconds,
        "batch_size": batch,
        "throughput_per_second": batch * PICOSECONDS / makespan if batch is not None and makespan else None,
        "peak_memory_bytes": peaks,
        "memory_capacity_bytes": capacity,
        "fits_in_memory": max(peaks, default=0) <= capacity,
        "communication_count": {name.removeprefix("dist."): summary.counts[name] for name in messages},
        "share": share,
    }


def serial_shares(summary: Summary) -> dict[str, float]:
    """How the devices spend the time, on average, if each has one stream and so does one thing at a time."""
    from distir.interpreters.work import Kind

    compute = communication = 0.0
    for kinds in summary.busy_seconds.values():
        for kind, seconds in kinds.items():
            if kind in set(Kind):
                compute += seconds
            else:
                communication += seconds
    return _shares(compute, compute + communication, summary.makespan_seconds * summary.devices)


def overlapping_shares(simulation: Simulation) -> dict[str, float]:
    """The same when streams run side by side: communication counts while the device computes nothing."""
    computing: dict[int, list[tuple[int, int]]] = {}
    busy: dict[int, list[tuple[int, int]]] = {}
    for step in simulation.steps:
        if not step.placed.cost.picoseconds:
            continue
        span = (step.start_picoseconds, step.end_picoseconds)
        for device in {device for device, _ in step.placed.streams}:
            busy.setdefault(device, []).append(span)
            if not step.placed.communicates:
                computing.setdefault(device, []).append(span)
    total = simulation.makespan_picoseconds * simulation.devices
    return _shares(sum(map(_covered, computing.values())), sum(map(_covered, busy.values())), total)


def _shares(compute: float, busy: float, total: float) -> dict[str, float]:
    """Computing, communicating without computing, doing nothing."""
    shares = {"compute": compute, "communication": busy - compute, "idle": max(0.0, total - busy)}
    return {name: share / total if total else 0.0 for name, share in shares.items()}


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """The length of a union of intervals."""
    covered = reached = 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def _rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    peaks: list[int] = figures["peak_memory_bytes"]
    capacity: int = figures["memory_capacity_bytes"]
    most, least = max(peaks), min(peaks)
    fits = f"{most / capacity:.1%} of {bytes_text(capacity)}"
    if not figures["fits_in_memory"]:
        fits += ": DOES NOT FIT"
    counts = [f"{times} {name}" for name, times in figures["communication_count"].items()]
    devices = f"{len(peaks)} device{'s' if len(peaks) > 1 else ''}"
    rows = [
        ("program", figures["program"]),
        ("machine", f"{figures['machine']}, {devices}, {figures['cost_model']} cost model"),
        ("makespan", seconds_text(figures["makespan_seconds"])),
        ("peak memory", f"{bytes_text(most)} on device {peaks.index(most)}, {fits}"),
        ("least peak", f"{bytes_text(least)} on device {peaks.index(least)}"),
        ("communication", ", ".join(counts) or "none"),
        ("devices", ", ".join(f"{name} {share:.1%}" for name, share in figures["share"].items())),
    ]
    if figures["throughput_per_second"] is not None:
        throughput = f"{figures['throughput_per_second']:.4g} samples/s (batch {figures['batch_size']})"
        rows.insert(3, ("throughput", throughput))
    return rows
