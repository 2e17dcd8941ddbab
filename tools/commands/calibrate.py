"""`distir calibrate`: measures what operations and messages take on this machine, or takes step times, and writes a machine file."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError, Namespace
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.report import add_settings, check_output, print_table, say, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from distir.backends.torch.calibration.fit import Host

EXAMPLES = """\
examples:
  distir calibrate -o here.toml                    two processes, gloo, CPU cores
  distir calibrate -o here.toml --processes 4      what each of four at once reaches
  distir calibrate -o gpus.toml --device cuda      all GPUs, NCCL
  distir simulate program.mlir --machine here.toml

  distir calibrate -o tuned.toml --machine dgx-a100 --fit runs.csv --scalars device.matmul_efficiency,node.bandwidth
      runs.csv:  program,seconds,name,settings
                 gpt_8.mlir,1.31,GPT on 8,
                 gpt_16.mlir,0.71,GPT on 16,node.adapters=1
"""
RUNS, QUICK_RUNS = 25, 5
CPU_DTYPES, CUDA_DTYPES = ("f32", "f64"), ("f32", "f16", "bf16", "f64")


def processes(text: str) -> int:
    """1 to 64."""
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise ArgumentTypeError(f"expected a number of processes from 1 to 64, got {text}")
    return int(text)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "calibrate",
        help="measure this machine",
        description="Measures matmuls, elementwise operations, copies and every collective on processes of this machine, all "
        "at once, fits the `analytic` cost model to them, reports how far it is from each kind, and writes a machine file. With --fit nothing "
        "is measured: up to three numbers of a machine are fitted to step times of programs, and the error on each row is reported that the "
        "fit to all others has. Columns of the file: program (a file, from the table's folder), seconds; optional: name, settings (as --set, "
        "of that row, separated by blanks).",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-o", dest="output", metavar="M.toml", required=True, help="the machine file to write")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="what to measure (default: cpu)")
    parser.add_argument(
        "--processes", metavar="N", type=processes, help="processes at once (default: 2 on CPUs, one per GPU on GPUs)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes and runs: seconds, and coarser")
    parser.add_argument(
        "--json", action="store_true", help="print how far the cost model is from what was measured as JSON"
    )
    parser.add_argument(
        "--fit",
        metavar="RUNS",
        help="fit to step times of programs: published ones or your own (.csv), or what search --executions kept (.json)",
    )
    parser.add_argument("--machine", metavar="M", help="of --fit: the machine to begin with")
    parser.add_argument(
        "--scalars",
        metavar="KEY,KEY",
        default="device.matmul_efficiency",
        help="of --fit: up to three numbers to change, named as for --set (default: device.matmul_efficiency)",
    )
    parser.add_argument(
        "--cost-model", metavar="C", default="analytic", help="of --fit: how costs are found (default: analytic)"
    )
    add_settings(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    if not args.output.endswith(".toml"):
        raise DistirError(f"{args.output}: a machine file's name ends in .toml")
    if args.fit is not None:
        from distir.tools.commands.fit_runs import run_fit

        return run_fit(args)
    if args.machine is not None or args.settings:
        raise DistirError("--machine and --set say what --fit begins with: give --fit RUNS.csv")
    from distir.backends.torch.calibration.fit import errors, fit_machine
    from distir.backends.torch.calibration.measure import measure
    from distir.backends.torch.calibration.probes import probes
    from distir.interpreters.machines.writing import machine_text

    check_output(args.output)
    count = args.processes or (2 if args.device == "cpu" else _gpus())
    if args.device == "cuda" and count > _gpus():
        raise DistirError(f"--processes {count}: torch finds {_gpus()} GPUs here")
    backend, dtypes = ("gloo", CPU_DTYPES) if args.device == "cpu" else ("nccl", CUDA_DTYPES)
    chosen = probes(count, dtypes, args.quick)
    runs = QUICK_RUNS if args.quick else RUNS
    with _bar(f"measuring on {count} {'process' if count == 1 else 'processes'}", len(chosen)) as advance:
        samples = measure(chosen, count, backend, runs, advance)
    host = describe_host(args.device, count)
    provenance = describe_run(args.device, count, runs)
    name = args.output.rpartition("/")[2].removesuffix(".toml")
    machine = fit_machine(name, host, samples, provenance)
    write_whole(args.output, lambda stream: stream.write(machine_text(machine).encode()))
    found = errors(machine, samples)
    if args.json:
        print(json.dumps({"machine": args.output, "errors": [asdict(each) for each in found]}, indent=1))
        return 0
    rows = [(e.kind, str(e.samples), f"{e.median:.0%}", f"{e.worst:.0%}") for e in found]
    print_table(rows, ("kind", "measured", "median error", "largest"))
    say(f"wrote {args.output}: distir machines {args.output} shows it")
    return 0


def _gpus() -> int:
    import torch

    if (count := torch.cuda.device_count()) == 0:
        raise DistirError("--device cuda: torch finds no GPU here")
    return count


def describe_host(device: str, count: int) -> Host:
    """What is measured: its name, memory and size."""
    import os

    from distir.backends.torch.calibration.fit import Host

    if device == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(0)
        return Host(properties.name, properties.total_memory, count, "distir calibrate; see provenance", True)
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // max(cores, count)
    return Host(f"core of {_cpu_model()}", memory, max(cores, count), "distir calibrate; see provenance", False)


def describe_run(device: str, count: int, runs: int) -> dict[str, str]:
    """How it was measured."""
    import os
    import platform
    from datetime import UTC, datetime

    import numpy
    import torch

    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    facts = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processes": f"{count} at once, one thread each; the least of {runs} runs",
        "host": f"{platform.system()} {platform.machine()}, {cores} cores of {_cpu_model()}",
        "load": f"{load:.1f} processes wanted a core when it ended",
        "libraries": f"torch {torch.__version__}, numpy {numpy.__version__}, Python {platform.python_version()}",
    }
    if device == "cpu":
        shared = "cores and memory bandwidth are shared: a device is what one of the processes gets while all run"
        facts["shared"] = shared if count <= cores else f"{shared}; there are more processes than cores"
    else:
        from torch.cuda import nccl

        facts["cuda"] = f"CUDA {torch.version.cuda}, NCCL {'.'.join(map(str, nccl.version()))}"
    return facts


def _cpu_model() -> str:
    import platform
    from pathlib import Path

    file = Path("/proc/cpuinfo")
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@contextmanager
def _bar(doing: str, total: int) -> Generator[Callable[[int], object]]:
    """A progress bar on stderr, if that is a terminal."""
    import sys

    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=total)
        yield lambda done: progress.update(task, completed=done)
