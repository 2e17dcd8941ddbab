"""`distir train`: trains by a plan on processes of this machine. In go a plan or a program, and data; out come
losses and checkpoints."""

from __future__ import annotations

import json
import statistics
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.model import load_executable
from distir.tools.commands.report import progress
from distir.tools.commands.run import count, positive

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

EXAMPLES = """\
examples:
  distir train best.mlir --data tokens.bin --steps 200 --checkpoint runs/a
  distir train other.mlir --data tokens.bin --steps 400 --checkpoint runs/a       goes on, on another plan
  distir train best.mlir --data digits.npz --steps 100 --machine my.toml          beside what was simulated
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "train",
        help="train by a plan, on data, with checkpoints",
        description="Trains on processes of this machine, one per device of the plan. Batches are the same for every plan; a run that ended goes on "
        "from its last checkpoint, on this plan or another. To train elsewhere: distir run PLAN --emit DIR, then torchrun DIR/train.py with the same options.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "program", metavar="PLAN", help="a training step of level 1 to 3 (.mlir), or a plan (.json, docs/plans.md)"
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="with a plan: its model, where that is not the file that it names"
    )
    parser.add_argument(
        "--data",
        metavar="F",
        required=True,
        help="tokens (.txt: bytes, .bin, .npy), samples by name (.npz, .safetensors), or a folder of Hugging Face datasets",
    )
    parser.add_argument(
        "--tokens",
        choices=("uint8", "uint16", "uint32"),
        default="uint16",
        help="what a .bin file is of (default: uint16)",
    )
    parser.add_argument(
        "--same", action="store_true", help="labels are the input's tokens: the model shifts them itself"
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        type=positive,
        required=True,
        help="steps in all, those before the last checkpoint included",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="go on from the last checkpoint there, and write there: safetensors by the model's names",
    )
    parser.add_argument(
        "--checkpoint-every",
        metavar="N",
        type=positive,
        default=100,
        help="steps from one to the next (default: 100); the last step has one",
    )
    parser.add_argument(
        "--format",
        choices=("safetensors", "dcp"),
        default="safetensors",
        help="of checkpoints: whole arrays, or what torch.distributed.checkpoint reads, each rank its part (default: safetensors)",
    )
    parser.add_argument("--keep", metavar="N", type=positive, default=2, help="how many checkpoints stay (default: 2)")
    parser.add_argument(
        "--restarts",
        metavar="N",
        type=count,
        default=0,
        help="go on from the last checkpoint that often when a rank dies (default: 0)",
    )
    parser.add_argument(
        "--log", metavar="F.jsonl", help="a line for each step (default: log.jsonl beside the checkpoints)"
    )
    parser.add_argument(
        "--log-every", metavar="N", type=positive, default=10, help="steps between printed lines (default: 10)"
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=count,
        help="of the order of the data, and of weights that the plan does not have (default: 0)",
    )
    parser.add_argument(
        "--machine", metavar="M", help="print what a step was simulated to take there: a name, or a .toml file"
    )
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo", help="CPUs or GPUs (default: gloo)")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=positive,
        default=300,
        help="end when no rank begins a step for S seconds (default: 300)",
    )
    parser.add_argument(
        "--compile",
        nargs="?",
        const="inductor",
        metavar="BACKEND",
        help="compile each stage by torch.compile, communication apart, with this backend of it (inductor)",
    )
    parser.add_argument("-o", dest="output", metavar="OUT.safetensors", help="what the last step returns")
    parser.add_argument(
        "--json", action="store_true", help="print only, at the end, the steps, the last loss and the speed as JSON"
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from distir.backends.torch.emission import emit
    from distir.backends.torch.trainer import Interrupt, train
    from distir.interpreters.entry import entry_function, machine_devices
    from distir.tools.commands.capacity import check_memory
    from distir.tools.commands.run import check_gpus, updates
    from distir.tools.commands.values import memory_for

    program = _program(args.program, args.model)
    if not updates(program):
        raise DistirError(
            f"{args.program} updates nothing: distir train takes training steps (import MODULE:FUNCTION, or import MODEL.onnx --train)"
        )
    if not Path(args.data).exists():
        raise DistirError(f"{args.data}: no such file or folder")
    if args.checkpoint is not None and Path(args.checkpoint).exists() and not Path(args.checkpoint).is_dir():
        raise DistirError(f"{args.checkpoint}: is no folder, expected one for checkpoints")
    if args.backend == "nccl":
        check_gpus(program, args.program)
    else:
        check_memory(program, args.program)
    predicted = _predicted(program, args.machine)
    world = machine_devices(program, entry_function(program, "main"))
    with TemporaryDirectory(prefix="distir-") as name:
        folder, log = Path(name) / "program", Path(args.log or Path(args.checkpoint or name) / "log.jsonl")
        with progress(f"writing the program of {args.program}"):
            emit(program, memory_for(program, args.seed or 0, sys.stderr if args.json else None), folder)
        words = _words(args, predicted, log)
        for left in range(args.restarts, -1, -1):
            try:
                train(
                    folder,
                    words,
                    world,
                    args.timeout,
                    (lambda line: None) if args.json else lambda line: print(line, flush=True),
                )
                break
            except Interrupt as interrupt:
                return 128 + interrupt.number
            except DistirError as error:
                message = f"{error}{_from_where(args.checkpoint)}"
                if not left or "killed" not in str(error):
                    raise DistirError(message) from error
                print(f"{message}: beginning again", file=sys.stderr)
        if args.json:
            print(json.dumps(_found(args, log, predicted), indent=1))
    return 0


def _program(path: str, model: str | None) -> ModuleOp:
    """The program of a file, or of a plan."""
    if not path.endswith(".json"):
        if model is not None:
            raise DistirError(f"--model is for plans (.json), {path} is a program: leave it out")
        return load_executable(path)
    from distir.tools.plan_files import read_plan
    from distir.tools.plan_runs import run_of

    with progress(f"making the program of {path}"):
        return run_of(read_plan(path), path, model).row.program


def _words(args: Namespace, predicted: float | None, log: Path) -> list[str]:
    """The same options for `train.py`."""
    words = ["--data", args.data, "--tokens", args.tokens, "--steps", str(args.steps), "--backend", args.backend]
    words += ["--log", str(log), "--log-every", str(args.log_every)]
    if args.checkpoint is not None:
        words += [
            "--checkpoint",
            args.checkpoint,
            "--checkpoint-every",
            str(args.checkpoint_every),
            "--keep",
            str(args.keep),
            "--format",
            args.format,
        ]
    options = {"--seed": args.seed, "--predicted": predicted, "--compile": args.compile, "-o": args.output}
    words += [word for name, value in options.items() if value is not None for word in (name, str(value))]
    return words + (["--same"] if args.same else [])


def _predicted(program: ModuleOp, machine: str | None) -> float | None:
    """The seconds that a step takes in the simulation."""
    if machine is None:
        return None
    from distir.interpreters.machines import load_machine
    from distir.interpreters.simulate import simulate

    return simulate(program, load_machine(machine)).makespan_seconds


def _from_where(checkpoint: str | None) -> str:
    """From which step a new start would go on."""
    from distir.backends.torch.trainer import last_checkpoint

    found = None if checkpoint is None else last_checkpoint(checkpoint)
    return "" if found is None else f" (the last checkpoint is {found}: the same command goes on from it)"


def _found(args: Namespace, log: Path, predicted: float | None) -> dict[str, Any]:
    """What `--json` prints."""
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    seconds = [line["seconds"] for line in lines]
    return {
        "steps": lines[-1]["step"] if lines else 0,
        "last": lines[-1] if lines else {},
        "seconds_per_step": statistics.median(seconds) if seconds else None,
        "simulated_seconds_per_step": predicted,
        "checkpoint": args.checkpoint,
    }
