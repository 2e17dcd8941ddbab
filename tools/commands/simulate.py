"""`distir simulate`: how long a program takes on a machine, how much memory it needs, and how its devices spend the
time. In go the program and the machine; out come these figures as text, JSON or an HTML page, and a trace."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Sequence
from functools import cached_property
from html import escape
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError
from distir.tools.commands.breakdown import KINDS, header, parts_of, rows_of
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.model import Program, load_executable, name_of
from distir.tools.commands.report import (
    add_settings,
    assumed_text,
    bytes_text,
    check_output,
    facts_of,
    print_table,
    progress,
    say,
    seconds_text,
    table_text,
    write_whole,
)

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from distir.interpreters.simulate.analysis import Analysis

EXAMPLES = """\
examples:
  distir simulate best.mlir --machine dgx-2
  distir simulate best.mlir --machine mine.toml --json
  distir simulate best.mlir --machine dgx-2 --by layer                what each layer takes
  distir simulate best.mlir --machine dgx-a100 --report best.html     why it takes that long, in a browser
  distir simulate best.mlir --machine dgx-a100 --trace best.json      open best.json in ui.perfetto.dev
  distir simulate best.mlir --machine dgx-a100 --trace best.json --window 50%..51% --devices 0,3..5
  distir simulate best.mlir --machine dgx-a100 --trace ranks/         a file per rank, for Holistic Trace Analysis
"""

DETAILED = 64
"""Devices up to which each one's peak is described."""
GROUPS = 4
"""Kinds of peak that are printed."""
NUMBER = re.compile(r'_\d+(?=")')
"""What tells apart values of one name in a text, and means nothing on another device."""
TOP = 8
"""Groups of tensors that a peak names."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "simulate",
        help="time and memory of a program on a machine",
        description="Simulates a program on a machine. A sequential program runs on one device.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("program", metavar="PROG.mlir", help="a program of level 1 to 3")
    parser.add_argument("--machine", metavar="M", required=True, help="one of distir machines, or a .toml file")
    add_settings(parser)
    parser.add_argument("--cost-model", metavar="C", default="analytic", help="how costs are found (default: analytic)")
    parser.add_argument(
        "--trace", metavar="F.json", help="write the timeline for Perfetto; a folder (F/): a file per rank"
    )
    parser.add_argument("--window", metavar="A..B", help="of the trace: 10ms..12ms, or 50%%..51%% of the makespan")
    parser.add_argument("--devices", metavar="N,A..B", help="of the trace: 0,3..5")
    parser.add_argument(
        "--depth", choices=("stage", "layer", "op"), help="of the trace: the entry's steps, inside its calls, or all"
    )
    parser.add_argument("--report", metavar="F.html", help="write a page with timeline, memory and critical path")
    parser.add_argument(
        "--by",
        choices=KINDS,
        default="module",
        help="what time and memory are shown by: the model's modules, its layers, kinds of work, operations (default: module)",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    if args.report is not None:
        check_output(args.report)
    if args.trace is not None and not (args.trace.endswith("/") or Path(args.trace).is_dir()):
        check_output(args.trace)
    if args.trace is None and (args.window or args.devices or args.depth):
        raise DistirError("--window, --devices and --depth say what --trace writes: give --trace F.json")
    with progress(f"simulating {args.program}"):
        found = simulate(args.program, args.machine, args.cost_model, args.settings)
        figures = {"program": args.program, **found.figures}
        parts = parts_of(found.analysis, args.by)
        if args.trace is not None:
            _write_trace(args, found.analysis)
        if args.report is not None:
            found.report(args.report, args.command_line)
    if args.json:
        print(json.dumps({**figures, "by": args.by, "parts": parts}, indent=2))
    else:
        print_table(_rows(figures))
        print(f"\ntime of an average device, and memory of the fullest, by {args.by}")
        from distir.interpreters.simulate.breakdown import places

        print_table(rows_of(parts, figures["makespan_seconds"]), header(args.by))
        _print_peaks(figures["peaks"], places(found.program, figures["devices"]))
    return 0


class Simulated:
    """A program on a machine: its time and memory, and why."""

    def __init__(self, program: ModuleOp, name: str, analysis: Analysis, cost_model: str) -> None:
        self.program, self.name, self.analysis, self.cost_model = program, name, analysis, cost_model

    @property
    def makespan_seconds(self) -> float:
        """From when the first device begins to when the last has ended."""
        return self.analysis.summary.makespan_seconds

    @property
    def peak_memory_bytes(self) -> dict[int, int]:
        """The most that each device holds at a time."""
        return self.analysis.summary.peak_memory_bytes

    @cached_property
    def figures(self) -> dict[str, Any]:
        """What `distir simulate --json` prints, but for the program's name."""
        own = {"machine": self.analysis.machine.name, "cost_model": self.cost_model}
        return {**own, **figures_of(self.analysis, batch_size(self.program))}

    def report(self, path: str, command: str = "") -> None:
        """Writes the HTML page with timeline, memory and critical path; `command` is what made it, which the page says."""
        from distir.backends.report import simulation_report

        facts = {"command": command, "program": self.name, **facts_of(self.analysis.machine.name, self.cost_model)}
        facts["a flop for each element is assumed of"] = assumed_text(self.figures["assumed"])
        page = simulation_report(
            self.name, self.analysis, self.figures["batch_size"], _explanation(self.program), facts
        )
        write_whole(path, lambda stream: stream.write(page.encode()))

    def trace(self, path: str) -> None:
        """Writes the timeline of every operation for Perfetto."""
        from distir.backends.trace import TraceView, write_trace

        write_trace(
            self.analysis.expansion, path, TraceView((0, self.analysis.summary.makespan_picoseconds), None, "op")
        )

    def __str__(self) -> str:
        return table_text(_rows({"program": self.name, **self.figures}))

    def _repr_html_(self) -> str:
        rows = (
            f"<tr><th>{escape(n)}</th><td>{escape(v)}</td></tr>"
            for n, v in _rows({"program": self.name, **self.figures})
        )
        return f"<table>{''.join(rows)}</table>"


def simulate(
    program: Program, machine: str | PathLike[str], cost_model: str = "analytic", settings: Sequence[str] = ()
) -> Simulated:
    """Time and memory of a program of level 1 to 3 (a file, a module, or a plan) on a machine (a name, or a .toml file), of which `settings` give
    other numbers ("device.memory_capacity_bytes=80GB"). Raises DistirError for a program that cannot run there: too few devices, open shapes."""
    from distir.interpreters.machines import load_machine
    from distir.interpreters.simulate.analysis import Analysis

    module = load_executable(program)
    name = name_of(program, "program")
    analysis = Analysis(module, load_machine(fspath(machine), settings), cost_model)
    _ = analysis.summary  # a mistake ends this call, and not the first look at a figure
    return Simulated(module, name, analysis, cost_model)


def _explanation(module: ModuleOp) -> list[str]:
    """Why the program is sharded as it is, if `ilp-shard` was asked."""
    from xdsl.dialects.builtin import ArrayAttr, StringAttr

    from distir.passes.sharding.explain import EXPLANATION

    lines = module.attributes.get(EXPLANATION)
    return [line.data for line in lines if isinstance(line, StringAttr)] if isinstance(lines, ArrayAttr) else []


def _write_trace(args: Namespace, analysis: Analysis) -> None:
    from distir.backends.trace import TraceView, write_trace

    count, makespan = analysis.summary.devices, analysis.summary.makespan_picoseconds
    window = parse_window(args.window, makespan) if args.window else None
    devices = parse_devices(args.devices, count) if args.devices else None
    write_trace(analysis.expansion, args.trace, TraceView(window, devices, args.depth or "op"))


def parse_window(text: str, makespan: int) -> tuple[int, int]:
    """`10ms..12.5ms`, `1.2s..`, `50%..51%` of the makespan; picoseconds. Raises DistirError."""
    first, dots, last = text.partition("..")
    if not dots:
        raise DistirError(f"--window: expected A..B, such as 10ms..12ms or 50%..51%, got '{text}'")
    window = (_moment(first, makespan) if first else 0, _moment(last, makespan) if last else makespan)
    if not window[0] < window[1] or window[0] >= makespan:
        raise DistirError(f"--window: {text} is empty: the program runs from 0 to {seconds_text(makespan / 1e12)}")
    return window


def _moment(text: str, makespan: int) -> int:
    number = text.rstrip("%munps ")
    scales = {"%": makespan / 100, "s": 1e12, "ms": 1e9, "us": 1e6, "ns": 1e3, "ps": 1.0}
    try:
        return round(float(number) * scales[text[len(number) :].strip()])
    except (KeyError, ValueError, OverflowError):
        raise DistirError(f"--window: expected a time such as 10ms, 1.5s, 20us or 50%, got '{text}'") from None


def parse_devices(text: str, count: int) -> frozenset[int]:
    """`0,3..5`. Raises DistirError."""
    found: set[int] = set()
    for item in text.split(","):
        first, dots, last = item.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()):
            raise DistirError(f"--devices: expected numbers and ranges such as 0,3..5, got '{text}'")
        found.update(range(int(first), int(last or first) + 1) if int(last or first) < count else [count])
    if max(found, default=count) >= count:
        raise DistirError(f"--devices: {text}: the program has devices 0..{count - 1}")
    return frozenset(found)


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


def figures_of(analysis: Analysis, batch: int | None) -> dict[str, Any]:
    """The figures of a simulation, by name; None where there is none."""
    from distir.dialects.dist.communication import CommunicationOp
    from distir.interpreters.costs import PICOSECONDS
    from distir.interpreters.simulate.breakdown import assumed_shares

    summary, machine = analysis.summary, analysis.machine
    makespan = summary.makespan_picoseconds
    described = peaks_of(analysis)
    reserved = max((peak["reserved_bytes"] for peak in described), default=0)
    peaks = [summary.peak_memory_bytes[device] for device in range(summary.devices)]
    capacity = machine.device.memory_capacity_bytes
    messages = {op.name for op in analysis.module.walk() if isinstance(op, CommunicationOp)} & summary.counts.keys()
    return {
        "devices": summary.devices,
        "makespan_seconds": summary.makespan_seconds,
        "batch_size": batch,
        "throughput_per_second": batch * PICOSECONDS / makespan if batch is not None and makespan else None,
        "peak_memory_bytes": peaks,
        "memory_capacity_bytes": capacity,
        "reserved_memory_bytes": reserved,
        "fits_in_memory": reserved <= capacity,
        "communication_count": {name.removeprefix("dist."): summary.counts[name] for name in sorted(messages)},
        "share": share_of(analysis),
        "assumed": assumed_shares(analysis.expansion),
        "communication_by_axis": along_axes(analysis),
        "peaks": described,
    }


def share_of(analysis: Analysis) -> dict[str, float]:
    """How the devices spend the time, on average: computing, communicating without computing, doing nothing."""
    total = analysis.summary.makespan_picoseconds * analysis.summary.devices
    times = analysis.device_times
    return {
        name: sum(getattr(time, name) for time in times) / max(total, 1)
        for name in ("compute", "communication", "idle")
    }


def along_axes(analysis: Analysis) -> dict[str, dict[str, float]]:
    """Seconds of an average device in communication along each axis: those beside which it computes nothing, and those beside which it does."""
    from distir.interpreters.costs import PICOSECONDS
    from distir.interpreters.simulate.occupancy import by_axis

    scale = PICOSECONDS * max(analysis.summary.devices, 1)
    return {
        axis: {"exposed_seconds": time.exposed / scale, "hidden_seconds": time.hidden / scale}
        for axis, time in by_axis(analysis.device_times).items()
    }


def peaks_of(analysis: Analysis) -> list[dict[str, Any]]:
    """What each device holds at its peak: the largest groups of tensors, and what the rest adds up to. All devices of a
    program of up to `DETAILED` devices, else only the one that holds the most."""
    peaks = analysis.summary.peak_memory_bytes
    devices = range(analysis.summary.devices)
    shown = devices if len(devices) <= DETAILED else [max(devices, key=lambda device: peaks[device])]
    found: list[dict[str, Any]] = []
    for peak in map(analysis.peak, shown):
        top = [
            {
                "name": h.name,
                "role": h.role,
                "operation": h.operation,
                "module": h.module,
                "path": "/".join(h.path),
                "bytes": h.bytes,
                "copies": h.copies,
            }
            for h in peak.live_tensors[:TOP]
        ]
        others = sum(h.total_bytes for h in peak.live_tensors[TOP:])
        during = "/".join(peak.during)
        found.append(
            {
                "device": peak.device,
                "bytes": peak.bytes,
                "reserved_bytes": analysis.reserved_bytes(peak.device),
                "during": during,
                "top": top,
                "other_bytes": others,
            }
        )
    return found


def _rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    peaks: list[int] = figures["peak_memory_bytes"]
    capacity: int = figures["memory_capacity_bytes"]
    most, least = max(peaks), min(peaks)
    reserved: int = figures["reserved_memory_bytes"]
    excess = "" if figures["fits_in_memory"] else ": DOES NOT FIT"
    fits = f"{most / capacity:.1%} of {bytes_text(capacity)}{excess}"
    counts = [f"{times} {name}" for name, times in figures["communication_count"].items()]
    devices = f"{len(peaks)} device{'s' if len(peaks) > 1 else ''}"
    along = [
        f"{axis} {seconds_text(time['exposed_seconds'])} exposed, {seconds_text(time['hidden_seconds'])} hidden"
        for axis, time in figures["communication_by_axis"].items()
    ]
    rows = [
        ("program", figures["program"]),
        ("machine", f"{figures['machine']}, {devices}, {figures['cost_model']} cost model"),
        ("makespan", seconds_text(figures["makespan_seconds"])),
        ("peak memory", f"{bytes_text(most)} on device {peaks.index(most)}, {fits}"),
        ("least peak", f"{bytes_text(least)} on device {peaks.index(least)}"),
        ("communication", ", ".join(counts) or "none"),
        ("devices", ", ".join(f"{name} {share:.1%}" for name, share in figures["share"].items())),
    ]
    if along:
        rows.append(("by axis", "; ".join(along)))
    if figures["throughput_per_second"] is not None:
        throughput = f"{figures['throughput_per_second']:.4g} samples/s (batch {figures['batch_size']})"
        rows.insert(3, ("throughput", throughput))
    if figures["assumed"]:
        rows.append(("assumed", f"a flop for each element, of {assumed_text(figures['assumed'])}"))
    if reserved != most:
        rows.append(("reserved", f"{bytes_text(reserved)} at the peak, with what allocator and libraries take{excess}"))
    return rows


def _print_peaks(peaks: list[dict[str, Any]], places: Sequence[str]) -> None:
    """What is live at the peaks; devices that hold the same are one paragraph, those that hold the most come first."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for peak in peaks:
        alike.setdefault(NUMBER.sub("", json.dumps({**peak, "device": None})), []).append(peak)
    for same in sorted(alike.values(), key=lambda same: -same[0]["bytes"])[:GROUPS]:
        peak, devices = same[0], [each["device"] for each in same]
        during = f", during {peak['during']}" if peak["during"] else ""
        print()
        where = f" ({places[devices[0]]}{', ...' if len(devices) > 1 else ''})" if places[devices[0]] else ""
        say(f"peak of device {_ranges(devices)}{where}: {bytes_text(peak['bytes'])}{during}")
        rows = [
            (
                bytes_text(tensors["bytes"] * tensors["copies"]),
                f"{tensors['copies']} x {bytes_text(tensors['bytes'])}" if tensors["copies"] > 1 else "",
                tensors["role"],
                " ".join(
                    filter(
                        None,
                        (tensors["operation"], tensors["name"], f"({tensors['module']})" if tensors["module"] else ""),
                    )
                ),
                tensors["path"],
            )
            for tensors in peak["top"]
        ]
        if peak["other_bytes"]:
            rows.append((bytes_text(peak["other_bytes"]), "", "others", "", ""))
        if rows:
            print_table(rows)
    if len(alike) > GROUPS:
        print(f"\nand {len(alike) - GROUPS} more kinds of device: --json has all")


def _ranges(numbers: list[int]) -> str:
    """`0..3,8`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] + 1 == number:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("..".join(map(str, part)) for part in parts)
