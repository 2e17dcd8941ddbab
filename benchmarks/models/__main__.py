"""What becomes of each of some two hundred architectures: exported, imported, compared with PyTorch, distributed, verified.

    python -m benchmarks.models                      all that `results.json` does not have yet; then the summary in README.md
    python -m benchmarks.models --again llama        those with `llama` in their names, anew
    python -m benchmarks.models --list step          names of those with `step` in them
    python -m benchmarks.models --summary            only the summary, of what there is

Each model has a process of its own (a fork), with limits of memory and of CPU seconds for each step. What is known is written after each model,
so that an interrupted sweep goes on where it was. Exported files are kept in `--folder`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

from benchmarks.models.examine import Architecture, Examination, State
from benchmarks.models.sources import import_torchvision
from benchmarks.models.table import (
    STEPS,
    architectures,
    read_results,
    total_seconds,
    write_results,
    write_summary,
)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names, such as `onnx`, `plain:` or `llama`; by default all")
    parser.add_argument("--again", action="store_true", help="also those that results.json has")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--summary", action="store_true", help="write the summary of what there is and end")
    parser.add_argument("--seconds", type=float, default=60.0, help="CPU seconds of each step (default: 60)")
    parser.add_argument("--memory", type=float, default=8.0, help="GiB for each model (default: 8)")
    parser.add_argument("--minutes", type=float, help="begin no other model after so many minutes")
    parser.add_argument("--folder", type=Path, default=Path("out/models"), help="for exported files")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    args = parsed(arguments)
    chosen = [a for a in architectures() if not args.names or any(part in a.name for part in args.names)]
    if args.list:
        print("\n".join(a.name for a in chosen))
        return 0
    results = read_results()
    if not args.summary:
        args.folder.mkdir(parents=True, exist_ok=True)
        sweep([a for a in chosen if args.again or a.name not in results], args)
    write_summary(read_results())
    return 0


def sweep(chosen: Sequence[Architecture], args: argparse.Namespace) -> None:
    """In an order that mixes kinds and families, so that part of a sweep stands for it."""
    import_libraries()
    began = time.monotonic()
    ordered = sorted(chosen, key=lambda a: crc32(a.name.encode()))
    for number, architecture in enumerate(ordered, 1):
        if args.minutes is not None and time.monotonic() - began > 60 * args.minutes:
            print(f"{len(ordered) - number + 1} are left", flush=True)
            return
        found = in_a_process(architecture, args)
        results = read_results()
        results[architecture.name] = found
        write_results(results)
        said = "  ".join(f"{step} {state['state']}" for step, state in found.items())
        print(f"[{number}/{len(ordered)}] {architecture.name}: {total_seconds(found):.0f} s  {said}", flush=True)


def in_a_process(architecture: Architecture, args: argparse.Namespace) -> dict[str, State]:
    """What a fork of this process, which has imported what all need, tells of one model; of one that ended before it was done, the
    step at which it did."""
    read, write = os.pipe()
    with tempfile.TemporaryFile() as said:
        if (child := os.fork()) == 0:
            os.close(read)
            status = 1
            try:
                for stream in (1, 2):
                    os.dup2(said.fileno(), stream)
                one(architecture, args, write)
                status = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        os.close(write)
        text, in_time = _read_until(
            read, time.monotonic() + args.seconds * len(STEPS) * 4
        )  # of a machine that is shared
        if not in_time:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        last = said.read().decode(errors="replace").strip().splitlines()[-1:]
    lines = [line for line in text.decode().split("\n")[:-1]]
    found: dict[str, State] = dict(json.loads(line) for line in lines)
    if status != 0:
        step = next((step for step in STEPS if step not in found), STEPS[-1])
        why = ": ".join([f"ended with status {status}", *last]) if in_time else "out of time"
        found[step] = {"state": "crashed", "why": why, "seconds": 0.0}
    return found


def _read_until(pipe: int, end: float) -> tuple[bytes, bool]:
    """What comes until the other side is closed, and whether it was in time."""
    text = b""
    with os.fdopen(pipe, "rb", buffering=0) as file:
        while (left := end - time.monotonic()) > 0:
            if select.select([file], [], [], left)[0]:
                if not (more := file.read(65536)):
                    return text, True
                text += more
    return text, False


def one(architecture: Architecture, args: argparse.Namespace, write: int) -> None:
    """Examines one model in this process, and tells each step as a line of JSON."""
    memory, cpu = int(args.memory * 2**30), int(args.seconds * len(STEPS) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 10))
    with os.fdopen(write, "w") as out:

        def tell(step: str, state: State) -> None:
            print(json.dumps([step, state]), file=out, flush=True)

        Examination(architecture, args.folder, args.seconds, tell).run()


def import_libraries() -> None:
    """What most models need, once for all of them."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    logging.disable(logging.WARNING)  # of libraries
    for name in ("torch.onnx", "onnxscript", "transformers", "distir.frontends.pytorch", "distir.frontends.onnx"):
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    import_torchvision()


if __name__ == "__main__":
    sys.exit(main())
