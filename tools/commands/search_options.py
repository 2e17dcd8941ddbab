"""The options of `distir search`. In goes a command line; out come its values: shapes, batch sizes, policies and names of schedules as they are used."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, BooleanOptionalAction
from collections.abc import Sequence
from typing import Any

from distir.dialects.errors import DistirError
from distir.tools.commands.cache import add_no_cache
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.model import add_model_arguments
from distir.tools.commands.report import add_settings
from distir.tools.constraints import add_constraints, integers

SEARCH_SECONDS = 120.0
"""For plans that the integer program makes, unless told."""
EXAMPLES = """\
examples:
  distir search gpt2.onnx --shape input1=64,1,128 --machine dgx-2 --devices 16
  distir search gpt2.onnx --shape input1=64,1,128 --machine dgx-2 --devices 16 --batch-sizes 128..1024 --csv plans.csv
  distir search mlp.onnx --shape x=512,64 --shape z=512,64 --machine dgx-a100 --devices 8 -o best.mlir
"""


def add_options(subparsers: Any) -> ArgumentParser:
    """The parser of the command."""
    parser = subparsers.add_parser(
        "search",
        help="rank the ways to distribute a model over a machine",
        description="Simulates every data x tensor x pipeline parallel plan on N devices of a machine, and ranks them by "
        "throughput. Stop early with Ctrl-C: what was found so far is reported and written.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    add_model_arguments(parser)
    parser.add_argument("--machine", metavar="M", required=True, help="one of distir machines, or a .toml file")
    add_settings(parser)
    parser.add_argument("--devices", metavar="N", type=int, required=True, help="dp * tp * pp of every plan")
    parser.add_argument(
        "--batch-sizes", metavar="A,B|A..B", help="global batches; A..B doubles from A (default: the model's)"
    )
    add_constraints(parser)
    parser.add_argument(
        "--microbatches",
        metavar="K,...",
        help="of the rows of a replica (default: those of 1, 2, 4, ... rows each, at most 128)",
    )
    parser.add_argument(
        "--schedules",
        metavar="S,...",
        help="for plans with a pipeline: 1f1b, gpipe, 1f1b-eager, pipedream, a plug-in's, or a FILE.csv of PyTorch's, interleaved, "
        "looped-bfs, zb-h1, zbv and dualpipev (default: 1f1b, and gpipe to train)",
    )
    parser.add_argument(
        "--recompute",
        metavar="P,...",
        default="none",
        help="policies of recompute-activations to choose from: none, full, selective, full:2 (layers of each stage), NAME+NAME, ...; all: the first three. "
        "Beside none, plans that fit only by full or selective are tried with as few layers of each stage as fit (default: none)",
    )
    parser.add_argument(
        "--batch", metavar="ARG:DIM,...", default="", help="batch dims (default: dim 0 of inputs and labels)"
    )
    parser.add_argument("--cost-model", metavar="C", default="analytic", help="how costs are found (default: analytic)")
    parser.add_argument("--memory-limit", metavar="BYTES", help="per device, as in 28GB (default: the machine's)")
    parser.add_argument(
        "--exhaustive",
        action="store_true",
        help="simulate also plans that cannot fit, or cannot be among the best (--csv and --report: these always)",
    )
    parser.add_argument(
        "--sharding",
        choices=("auto", "ilp"),
        help=SUPPRESS,  # of scripts from when there was a choice
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        default=SEARCH_SECONDS,
        help=f"for all plans together, those that promise most first (default: {SEARCH_SECONDS:g})",
    )
    parser.add_argument(
        "--divide",
        action="store_true",
        help="plans divide parameters and work first, also where a faster one does not (small models)",
    )
    parser.add_argument(
        "--zero",
        metavar="STAGE",
        type=int,
        choices=range(4),
        help="replicas store state (1), gradients (2) and parameters (3) in parts, or nothing (0; default: what is fastest)",
    )
    parser.add_argument(
        "--virtual",
        metavar="V,...",
        help="stages on each rank, by schedules that leave it open (interleaved, looped-bfs), of which one is looked at too (default: 2)",
    )
    parser.add_argument(
        "--overlap",
        action=BooleanOptionalAction,
        help="messages on streams of their own, beside computation (default: to train, of the fastest plans, where these are faster so and fit)",
    )
    parser.add_argument(
        "--gradient-type",
        choices=("bf16", "f32"),
        help="gradients are added up over microbatches and reduced in this type (gradient-type; default: their own)",
    )
    parser.add_argument(
        "--matmul-type",
        choices=("f8E4M3FN", "f8E5M2", "bf16", "f16"),
        help="products with weights are charged at the machine's rate for this type (matmul-type; default: their own)",
    )
    parser.add_argument(
        "--matmul-keep",
        metavar="NAME,...",
        help="modules of the model that --matmul-type leaves as they are, as in lm_head",
    )
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="processes that share the search (default: 1)")
    parser.add_argument("--top", metavar="K", type=int, default=10, help="how many plans to print (default: 10)")
    parser.add_argument("--json", action="store_true", help="print the plans as JSON")
    parser.add_argument("--csv", metavar="F.csv", help="write all plans, those that were dropped too")
    parser.add_argument("--report", metavar="F.html", help="write a page with all plans, throughput against memory")
    add_no_cache(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write a plan: its program (.mlir), or the plan itself (.json)"
    )
    parser.add_argument(
        "--execute-top",
        metavar="N",
        type=int,
        help="run the N best plans here, one process per device: measured beside simulated",
    )
    parser.add_argument("--measure", metavar="N", type=int, default=5, help="runs of each of them (default: 5)")
    parser.add_argument(
        "--executions",
        metavar="F.json",
        help="keep what was measured, and begin with what this file has (--execute-top)",
    )
    parser.add_argument(
        "--calibrate-from",
        metavar="F.json",
        help="fit the machine's efficiencies to what was measured (a file of --executions) before plans are looked at",
    )
    parser.add_argument("--row", metavar="N", type=int, default=1, help="which plan -o writes (default: 1, the best)")
    parser.add_argument(
        "--from-config",
        metavar="TOOL:CONFIG",
        help="what is run today, simulated too: megatron:'ARGUMENTS', or megatron, torchtitan, deepspeed or accelerate and a file",
    )
    parser.add_argument(
        "--pin", metavar="PLAN.json", help="look at plans with the settings of this file only (docs/plans.md)"
    )
    return parser


def shapes_of(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    from distir.frontends.shapes import parse_shape

    return dict(map(parse_shape, texts))


def batch_sizes_of(text: str) -> list[int]:
    first, dots, last = text.partition("..")
    if not dots:
        return integers(text, "--batch-sizes")
    lows, highs = integers(first, "--batch-sizes"), integers(last, "--batch-sizes")
    if len(lows) != 1 or len(highs) != 1:
        raise DistirError(
            f"--batch-sizes: expected numbers with commas between them, or a range such as 8..64, got '{text}'"
        )
    (low,), (high,) = lows, highs
    if low > high:
        raise DistirError(f"--batch-sizes: {low}..{high} is empty")
    return [low << i for i in range((high // low).bit_length())]


def policies_of(text: str) -> list[str]:
    from distir.passes.recomputation.policies import Policy

    policies = (
        ["none", "selective", "full"] if text == "all" else list(dict.fromkeys(p.strip() for p in text.split(",")))
    )
    for policy in policies:
        Policy.read(policy)
    return policies


def schedules_of(text: str) -> list[str]:
    from distir.passes.distribution.pipeline.tasks import check_schedule

    names = [name.strip() for name in text.split(",")]
    for name in names:
        check_schedule(name)
    return names
