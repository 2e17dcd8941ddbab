"""`distir verify`: executes a sequential and a distributed program on several draws of all values and compares every output."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distir.dialects.errors import DistirError
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.model import load_executable, require_same_weights
from distir.tools.commands.report import progress, say

if TYPE_CHECKING:
    from distir.interpreters.equivalence import Verification

EXAMPLES = """\
examples:
  distir verify gpt2.mlir best.mlir
  distir verify train:step --against-eager
  distir verify gpt2.mlir best.mlir --dtype f32 --tolerance 1e-5 --inputs batch.npz
  distir verify --proof gpt2.mlir best.mlir
"""

EPILOG = f"""\
Both programs run on several draws of all values: every weight, state and input is another, state is large and small, labels
have what the loss ignores among them; then on the weights of SEQUENTIAL.mlir, if it has any. Of what takes long there are
fewer draws, which is said. Values in --inputs are not drawn.

Every element of an output is compared, on every device that has it: |a - b| <= tolerance * s, where s is the largest |a| of
the output; of an update (a result with the name of an argument) the largest change, and a few units of rounding are allowed.
Where runs on values that differ in their last digits move an element further, so may it be. Replicas are equal to 1e-13.
Weights that both programs have beside them are the same.
The exit status is 0 only if every output agrees and both programs have the same outputs.

With --proof nothing is executed, so programs of any size will do: every operation of the distributed program is shown to be a
shard of one of the sequential program by its rule, and every output and update to be what it claims. The rules are listed with
how each was found. Exit status: 0 proven; 3 not proven, and the first operation where the claim breaks is named; 1 an error.

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
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("sequential", metavar="SEQUENTIAL.mlir", help="the program that says what is right")
    parser.add_argument(
        "distributed", metavar="DISTRIBUTED.mlir", nargs="?", help="the program that should compute the same"
    )
    parser.add_argument(
        "--against-eager",
        action="store_true",
        help="SEQUENTIAL is MODULE:FUNCTION, a step of PyTorch or JAX: compares its program, or DISTRIBUTED.mlir, with three steps "
        "of the framework itself, in the program's types",
    )
    parser.add_argument(
        "--tolerance", metavar="T", type=tolerance, help="default: 1e-10; with --against-eager, by the types"
    )
    parser.add_argument("--dtype", choices=("f64", "f32"), default="f64", help="for all floating values (default: f64)")
    parser.add_argument("--inputs", metavar="F.npz", help="values of inputs by name; the others are drawn")
    parser.add_argument("--proof", action="store_true", help="prove it instead, without executing (docs/proof.md)")
    parser.add_argument(
        "--ranks", action="store_true", help="with --proof: of the programs of all ranks too, messages matched"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    import numpy as np

    from distir.interpreters.entry import arguments_of, entry_function
    from distir.interpreters.equivalence import verify
    from distir.tools.commands.capacity import check_memory
    from distir.tools.commands.values import print_comparison, read_arrays

    if args.proof and (args.against_eager or args.inputs is not None):
        raise DistirError("--proof executes nothing: no --against-eager, no --inputs")
    if args.ranks and not args.proof:
        raise DistirError("--ranks says what to prove: give --proof too")
    if args.against_eager:
        return _against_eager(args)
    if args.distributed is None:
        raise DistirError("expected two programs to compare, got one: give DISTRIBUTED.mlir, or --against-eager")
    if args.proof:
        from distir.tools.commands.prove import run_proof

        return run_proof(args)
    paths = args.sequential, args.distributed
    dtype = np.dtype(np.float64 if args.dtype == "f64" else np.float32)
    with progress("reading the programs"):
        sequential, distributed = (load_executable(path) for path in paths)
        require_same_weights(sequential, distributed, paths)
    for path, module in zip(paths, (sequential, distributed), strict=True):
        check_memory(module, path, dtype.itemsize)
    names = [port.name for port in arguments_of(entry_function(sequential, "main"))]
    given = read_arrays(args.inputs, names) if args.inputs is not None else {}
    with progress("executing both programs"):
        found = verify(
            sequential,
            distributed,
            given,
            tolerance=args.tolerance if args.tolerance is not None else 1e-10,
            dtype=dtype,
            names=paths,
        )
    if args.json:
        return print_found(found)
    say(_of_draws(found.draws, found.skipped, sorted(given)))
    return 0 if print_comparison(found.comparisons) else 1


def print_found(found: Verification) -> int:
    """What was found, as JSON; the exit status."""
    outputs = [{"name": c.name, "agrees": c.holds, "says": c.says} for c in found.comparisons]
    print(
        json.dumps(
            {"agrees": found.holds, "draws": found.draws, "skipped": found.skipped, "outputs": outputs}, indent=1
        )
    )
    return 0 if found.holds else 1


def _against_eager(args: Namespace) -> int:
    from distir.frontends.eager import verify_against_eager
    from distir.tools.commands.model import load_model
    from distir.tools.commands.values import print_comparison

    if args.inputs is not None or args.dtype != "f64":
        raise DistirError(
            "--against-eager draws all inputs and computes in the program's own types: no --inputs, no --dtype"
        )
    with progress(f"importing {args.sequential}"):
        module = load_model(args.sequential)
    program = load_executable(args.distributed) if args.distributed is not None else None
    with progress("running both"):
        found = verify_against_eager(module, program, tolerance=args.tolerance)
    if args.json:
        return print_found(found)
    say(f"against eager: {', '.join(found.draws)}")
    return 0 if print_comparison(found.comparisons) else 1


def _of_draws(draws: Sequence[str], skipped: int, given: Sequence[str]) -> str:
    """What the programs were run on."""
    values = f"all values but {', '.join(given)}" if given else "all values"
    said = f"{values} drawn: {', '.join(draws)}"
    return f"{said} ({skipped} more would take long)" if skipped else said
