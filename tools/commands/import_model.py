"""`distir import`: a model as a level 1 program, and its weights beside it."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any, cast

from distir.dialects.errors import DistirError
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.model import (
    add_model_arguments,
    add_value_argument,
    load_model,
    open_dimensions,
    save_program,
)
from distir.tools.commands.report import check_output, progress, say
from distir.tools.commands.train_option import TRAIN_HELP, train

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

EXAMPLES = """\
examples:
  distir import mlp.onnx                                    prints the program
  distir import mlp.onnx -o mlp.mlir                        writes mlp.mlir and mlp.safetensors
  distir import gpt2.onnx --shape input1=8,1,128 -o gpt2.mlir
  distir import my_package.models:small -o small.mlir       calls small() of my_package/models.py
  distir import examples.mlp_pytorch:step -o step.mlir      a PyTorch training step
  distir import pkg.models:step -o step.mlir --weights model.safetensors
  distir import mlp.onnx -o step.mlir --train loss=mse_loss optimizer=sgd:lr=0.1,momentum=0.9
  distir import vad.onnx --value sr=16000 --shape input=8,512 -o vad.mlir
  distir import clip.onnx -o clip.mlir --parameters logit_scale
  distir import gpt2.onnx --shape input1=8,1,128 -o step.mlir \\
      --train loss=cross_entropy optimizer=adamw:lr=1e-3 freeze='wpe.*'

"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "import",
        help="a model as a sequential program",
        description="Imports a model as a sequential (level 1) program. Without -o it is printed.",
        epilog=EXAMPLES + TRAIN_HELP,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    add_model_arguments(parser)
    parser.add_argument(
        "-o", dest="output", metavar="OUT.mlir", help="write the program, and OUT.safetensors beside it"
    )
    parser.add_argument(
        "--weights",
        metavar="CHECKPOINT",
        help="values of parameters, buffers and state by name: FILE.safetensors, or a state_dict that torch.save wrote",
    )
    for option, what in (("--parameters", "parameters"), ("--constants", "constants of the program")):
        parser.add_argument(
            option,
            action="extend",
            nargs="+",
            default=[],
            metavar="NAME",
            help=f"tensors of an ONNX file that are {what}, whatever they look like; patterns such as 'h.*.scale'; may repeat",
        )
    parser.add_argument(
        "--until",
        action="append",
        default=[],
        metavar="VALUE",
        help="make this value of an ONNX file's graph the result, and leave out what comes after it; may repeat",
    )
    add_value_argument(parser)
    parser.add_argument(
        "--train",
        nargs="+",
        metavar="KEY=VALUE",
        help="import a step that trains the model: loss=... optimizer=..., see below",
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="do not compare a step of PyTorch or JAX with one step of the framework itself",
    )
    parser.add_argument(
        "--json", action="store_true", help="with -o: print the program's arguments and results, and the notes, as JSON"
    )
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from distir.frontends import checkpoints

    if args.output is not None:
        if not args.output.endswith(".mlir"):
            raise DistirError(f"-o {args.output}: expected a name that ends in .mlir")
        check_output(args.output)
    elif args.json:
        raise DistirError("--json: give -o OUT.mlir: without it the program is what is printed")
    notes: list[str] = []
    with progress(f"importing {args.model}"):
        named = {"parameters": args.parameters, "constants": args.constants, "until": args.until, "values": args.value}
        module = load_model(args.model, args.shape, named)
        if not args.no_check:
            notes += _compared(module, args.model)
        if args.train is not None:
            module = train(module, args.model, args.train)
        if args.weights is not None and (kept := checkpoints.bind(module, args.weights)):
            notes.append(checkpoints.kept_note(args.weights, kept))
        if args.output is not None:
            save_program(module, args.output)
    if args.output is None:
        print(module)
    if found := open_dimensions(module):
        inputs, options = zip(*found, strict=True)
        notes.append(f"{', '.join(inputs)}: bind with {' '.join(options)}")
    if args.model.endswith(".onnx"):  # what a file does not say itself
        notes.append(tensors_note(module))
    if args.json and args.output is not None:
        print(json.dumps(_described(module, args.output, notes), indent=1))
        return 0
    for note in notes:
        say(f"distir: note: {note}", sys.stderr)
    return 0


def _described(module: ModuleOp, output: str, notes: list[str]) -> dict[str, Any]:
    """What `--json` prints: names, roles and types."""
    from distir.interpreters.entry import arguments_of, entry_function, results_of

    entry = entry_function(module)
    ports = {"arguments": arguments_of(entry), "results": results_of(entry)}
    said = {
        kind: [{"name": p.name, "role": p.role, "type": str(p.type)} for p in found] for kind, found in ports.items()
    }
    return {"program": output, **said, "notes": notes}


def _compared(module: ModuleOp, model: str) -> list[str]:
    """What was compared with the framework that the model comes from, if it comes from one."""
    if model.endswith((".onnx", ".mlir")):
        return []
    from distir.frontends.eager import check_imported

    try:
        return [said] if (said := check_imported(module)) else []
    except DistirError as error:
        raise DistirError(f"{model}: {error}") from error


def tensors_note(module: ModuleOp) -> str:
    """How many tensors of the model are parameters and buffers, beside the program, and how many are constants in it."""
    from math import prod

    from xdsl.dialects.builtin import TensorType
    from xdsl.traits import ConstantLike

    from distir.interpreters.entry import arguments_of, entry_function

    ports = arguments_of(entry_function(module))
    held = {role: [port.type for port in ports if port.role == role] for role in ("parameter", "buffer")}
    held["constant"] = [op.results[0].type for op in module.walk() if op.has_trait(ConstantLike) and op.results]
    counts: list[str] = []
    for role, types in held.items():
        tensors = [cast("TensorType[Any]", type) for type in types if isinstance(type, TensorType)]
        if tensors or role != "buffer":
            elements = sum(prod(tensor.get_shape()) for tensor in tensors)
            counts.append(f"{len(tensors)} {role}{'s' if len(tensors) != 1 else ''} of {elements:,} elements")
    return ", ".join(counts)
