"""`distir run`: executes a program on processes of this machine, one per device. In go the program and its values;
out come results, step times and comparisons."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.model import load_executable
from distir.tools.commands.report import check_output, print_table, progress, seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xdsl.dialects.builtin import ModuleOp

    from distir.backends.torch import Execution
    from distir.interpreters.comparison import Comparison

EXAMPLES = """\
examples:
  distir run best.mlir                                         on CPUs, on drawn inputs
  distir run best.mlir --check gpt2.mlir                       compares with the sequential program
  distir run best.mlir --backend nccl --measure 10             on GPUs; the median time of 10 runs
  distir run best.mlir --inputs batch.npz -o outputs.npz
  distir run step.mlir --inputs batch.npz -o next.safetensors  what a training step returns, for import --weights
  distir run step_4.mlir --steps 3 --check step.mlir           trains three steps, each on a batch of its own
  distir run best.mlir --emit best                             what runs, as readable PyTorch: torchrun --nproc-per-node=2 best/train.py
  distir run step.mlir --steps 100 --inputs a.npz --inputs b.npz -o trained.safetensors
"""


def count(text: str) -> int:
    """A whole number of at least 0."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"expected a whole number of at least 0, got {text}")
    return int(text)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"expected a whole number of at least 1, got {text}")
    return int(text)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "run",
        help="execute a program, one process per device",
        description="Executes a program on processes of this machine, one per device.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("program", metavar="PROG.mlir", help="a program of level 1 to 3")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo", help="CPUs or GPUs (default: gloo)")
    parser.add_argument(
        "--inputs",
        metavar="F.npz",
        action="append",
        default=[],
        help="values of inputs by name; the others are drawn. With --steps it may be given several times: batches, in turn",
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        type=positive,
        default=1,
        help="train N steps: what one updates goes into the next (default: 1)",
    )
    parser.add_argument(
        "--check", metavar="MODEL.mlir", help="compare with this sequential program; status 1 if not equal"
    )
    parser.add_argument(
        "--measure", metavar="N", type=count, default=0, help="time N runs, after one that is not timed"
    )
    parser.add_argument(
        "-o", dest="output", metavar="OUT", help="write the outputs: OUT.npz, or OUT.safetensors, a checkpoint"
    )
    parser.add_argument(
        "--emit",
        metavar="DIR",
        help="run nothing: write each distinct rank's program as a module of PyTorch, with train.py for torchrun and the values",
    )
    parser.add_argument("--seed", metavar="N", type=count, default=0, help="of what is drawn (default: 0)")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=positive,
        default=300,
        help="end the run when no rank begins an operation for S seconds, and name those that stand still (default: 300)",
    )
    parser.add_argument(
        "--debug",
        action="store_true",
        help="before each collective, check that all its ranks are at the same one (slow)",
    )
    parser.add_argument("--json", action="store_true", help="print the outputs' sizes, times and comparisons as JSON")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from distir.backends.torch import execute
    from distir.tools.commands.capacity import check_memory
    from distir.tools.commands.values import batches_for, print_comparison, values_for, write_arrays

    if args.output is not None:
        check_output(args.output)
    program = load_executable(args.program)
    model = program if args.check is None else load_executable(args.check)
    if args.emit is not None:
        return _emit(args, program, model)
    if args.backend == "nccl":
        check_gpus(program, args.program)
    else:
        check_memory(program, args.program)
    if args.steps == 1 and len(args.inputs) > 1:
        raise DistirError("several --inputs are batches of several steps: give --steps N")
    if args.steps > 1 and not updates(program):
        raise DistirError(
            f"{args.program} updates nothing, so its steps are all the same: --steps is for training steps"
        )
    said = sys.stderr if args.json else None
    values = values_for(model, args.seed, args.inputs[0] if args.inputs else None, [program], said)
    following = batches_for(model, args.seed, args.inputs, args.steps)
    with progress(f"running {args.program}"):
        execution = execute(
            program,
            values,
            args.backend,
            following=following,
            measure=args.measure,
            timeout_seconds=args.timeout,
            debug=args.debug,
        )
    if args.output is not None:
        write_arrays(args.output, execution.outputs)
    if args.json:
        compared = _checked(model, args.check, [values, *following], execution.outputs, program) if args.check else []
        print(json.dumps(_found(execution, compared), indent=1))
        return 0 if all(each.holds for each in compared) else 1
    _print_steps(execution.steps)
    _print_outputs(execution.outputs)
    if args.measure:
        print(f"{seconds_text(execution.seconds)}, the median of {args.measure} runs")
    if args.check is None:
        return 0
    return 0 if print_comparison(_checked(model, args.check, [values, *following], execution.outputs, program)) else 1


def _emit(args: Namespace, program: ModuleOp, model: ModuleOp) -> int:
    """Writes the folder and says what is in it, and how it is run."""
    from pathlib import Path

    from distir.backends.torch.emission import emit
    from distir.interpreters.entry import entry_function, machine_devices
    from distir.tools.commands.values import values_for

    others = {"--output": args.output, "--check": args.check, "--measure": args.measure, "--json": args.json}
    if given := [name for name, value in others.items() if value]:
        raise DistirError(f"--emit runs nothing: leave {given[0]} out")
    if "\0" in args.emit:
        raise DistirError(f"{args.emit!r}: a folder's name has no null characters")
    values = values_for(model, args.seed, args.inputs[0] if args.inputs else None, [program])
    with progress(f"writing {args.emit}"):
        files = emit(program, values, Path(args.emit))
    for path in files:
        print(f"wrote {path}")
    world = machine_devices(program, entry_function(program, "main"))
    print(f"run it: torchrun --nproc-per-node={world} {Path(args.emit) / 'train.py'}")
    return 0


def _found(execution: Execution, compared: Sequence[Comparison]) -> dict[str, Any]:
    """What `--json` prints."""
    rows = (dict(zip(OUTPUT_COLUMNS, row, strict=True)) for row in _output_rows(execution.outputs))
    return {
        "seconds": execution.seconds,
        "runs_seconds": list(execution.runs),
        "steps": [{name: float(value.reshape(())) for name, value in step.items()} for step in execution.steps],
        "outputs": list(rows),
        "check": [{"name": c.name, "agrees": c.holds, "says": c.says} for c in compared],
    }


def check_gpus(module: ModuleOp, path: str) -> None:
    """Raises DistirError if this machine has fewer GPUs than the program has devices."""
    import torch

    from distir.interpreters.entry import entry_function, machine_devices

    needed, here = machine_devices(module, entry_function(module, "main")), torch.cuda.device_count()
    if needed > here:
        raise DistirError(f"{path} needs {needed} GPUs, torch finds {here} here: --backend gloo runs it on CPUs")


def updates(module: ModuleOp) -> bool:
    """Whether a result is the update of an argument."""
    from distir.interpreters.entry import arguments_of, entry_function, results_of

    entry = entry_function(module, "main")
    return bool({port.name for port in arguments_of(entry)} & {port.name for port in results_of(entry)})


def _checked(
    model: ModuleOp, path: str, steps: Sequence[Mapping[str, Any]], outputs: Mapping[str, Any], program: ModuleOp
) -> list[Comparison]:
    """The outputs of these steps beside what the reference executor says in double precision. What rounding decides is found
    in the types of the model."""
    import numpy as np

    from distir.interpreters.comparison import compare, moves_of, tolerance_of, whole_pieces
    from distir.tools.commands.capacity import check_memory

    check_memory(model, path, float_bytes=8)
    with progress(f"executing {path} for comparison"):
        expected = _after(model, steps, np.float64)

    def on_others(values: Mapping[str, Any]) -> dict[str, Any]:
        with progress(f"executing {path} on slightly other values"):
            return _after(model, [values, *steps[1:]], None)

    moves = moves_of(on_others, steps[0], expected, None)
    return compare(expected, whole_pieces(outputs), tolerance_of(program), steps[0], moves)


def _after(model: ModuleOp, steps: Sequence[Mapping[str, Any]], dtype: Any) -> dict[str, Any]:
    """What the reference executor says after these steps: what a step is not given, it has from the one before."""
    from distir.interpreters import reference

    held: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for given in steps:
        held |= given
        outputs = reference.run(model, held, dtype=dtype)
        held |= {name: value for name, value in outputs.items() if name in held}
    return outputs


def _print_steps(steps: Sequence[Mapping[str, Any]]) -> None:
    """The outputs of one element (the loss), step by step."""
    if steps and steps[0]:
        rows = [
            (str(i), *(f"{float(value.reshape(())):.6g}" for value in step.values())) for i, step in enumerate(steps, 1)
        ]
        print_table(rows, ("step", *steps[0]))


OUTPUT_COLUMNS = ("output", "shape", "type", "mean absolute value")


def _print_outputs(outputs: Mapping[str, Any]) -> None:
    if rows := _output_rows(outputs):
        print_table(rows, OUTPUT_COLUMNS)


def _output_rows(outputs: Mapping[str, Any]) -> list[tuple[str, ...]]:
    import numpy as np

    rows: list[tuple[str, ...]] = []
    for name, output in outputs.items():
        array = np.asarray(output)
        number = array.size and array.dtype.kind not in "OSU"
        magnitude = f"{np.abs(array.astype(np.float64)).mean():.6g}" if number else "-"
        rows.append((name, str(list(array.shape)), str(array.dtype), magnitude))
    return rows
