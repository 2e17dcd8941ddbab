"""`distir verify`: executes a sequential and a distributed program on the same values and compares every output."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError
from distir.tools.commands.model import load_executable
from distir.tools.commands.report import progress

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

EXAMPLES = """\
examples:
  distir verify gpt2.mlir best.mlir
  distir verify gpt2.mlir best.mlir --dtype f32 --tolerance 1e-5 --inputs batch.npz
"""

EPILOG = f"""\
An output agrees when |a - b| <= tolerance * max(1, max|a|). The exit status is 0 only if every output agrees and both
programs have the same outputs. Weights are those of SEQUENTIAL.mlir, else drawn; integer inputs that index a table are
drawn inside it.

{EXAMPLES}"""


def tolerance(text: str) -> float:
    """A number of at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ArgumentTypeError(f"expected a number of at least 0, got {text}")
    return value


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "verify",
        help="that a distributed program computes what the sequential one does",
        description="Executes both programs in this process and compares every output.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("sequential", metavar="SEQUENTIAL.mlir", help="the program that says what is right")
    parser.add_argument("distributed", metavar="DISTRIBUTED.mlir", help="the program that should compute the same")
    parser.add_argument("--tolerance", metavar="T", type=tolerance, default=1e-10, help="default: 1e-10")
    parser.add_argument("--dtype", choices=("f64", "f32"), default="f64", help="for all floating values (default: f64)")
    parser.add_argument("--inputs", metavar="F.npz", help="values of inputs by name; the others are drawn with seed 0")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    import numpy as np

    from distir.interpreters import reference
    from distir.tools.commands.capacity import check_memory
    from distir.tools.commands.values import compare, print_comparison, values_for

    dtype = np.dtype(np.float64 if args.dtype == "f64" else np.float32)
    with progress("reading the programs"):
        modules = [load_executable(path) for path in (args.sequential, args.distributed)]
    for path, module in zip((args.sequential, args.distributed), modules, strict=True):
        check_memory(module, path, dtype.itemsize)
    values = values_for(modules[0], 0, args.inputs)

    def execute(module: ModuleOp, path: str) -> dict[str, Any]:
        try:
            with progress(f"executing {path}"):
                return reference.run(module, values, dtype=dtype)
        except DistirError as error:
            raise DistirError(f"{path}: {error}") from error

    expected, got = execute(modules[0], args.sequential), execute(modules[1], args.distributed)
    return 0 if print_comparison(compare(expected, got, args.tolerance)) else 1
