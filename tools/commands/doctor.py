"""`distir doctor`: whether a model can be distributed. In goes the model; out come its contents, what can be divided
and what not, what is slow to plan, and commands that work for it."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from typing import Any

from distir.dialects.errors import DistirError
from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.model import add_model_arguments, add_value_argument
from distir.tools.commands.report import bytes_text, print_table, progress, say

EXAMPLES = """\
examples:
  distir doctor mlp.onnx
  distir doctor gpt2.onnx --shape input1=8,1,128
  distir doctor examples.mlp_pytorch:step --seconds 20
  distir doctor gpt2.onnx --json > gpt2.json

Plans for four devices are tried, each in a process of its own and for --seconds at most: the commands at the end are those of plans that
were made. Shares are of flops and of bytes of parameters: what an axis can divide by the rules of operators alone, and what the
device that does most, or has most, is left with in a plan. Nothing is written."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="what a model consists of, what can be divided, and commands that work for it",
        description="Says what goes in, what is static, which operators cannot be cut, what each axis can divide, what is slow to plan.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    add_model_arguments(parser)
    add_value_argument(parser)
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="S", help="CPU seconds for each plan that is tried (default: 60)"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from distir.tools.commands.diagnosis import diagnosed

    if not args.seconds > 0:
        raise DistirError(f"--seconds: expected more than 0, got {args.seconds:g}")
    with progress(f"examining {args.model}"):
        found = diagnosed(args.model, args.shape, args.value, args.seconds)
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    return 0


def _print(found: dict[str, Any]) -> None:
    say(f"{found['model']}")
    _section("what goes in")
    rows = [[port["role"], port["name"], port["type"]] for port in found["inputs"]]
    for role, held in found["held"].items():
        rows.append([role, f"{held['tensors']} tensors", f"{held['elements']:,} elements, {bytes_text(held['bytes'])}"])
    if rows:
        print_table(rows)
    for line in found["open"]:
        say(f"open: {line}")
    if found["static"]:
        say("static: every shape is known" + (f" with {' '.join(found['shapes'])}" if found["shapes"] else ""))
    else:
        say(f"not static: {found['why']}")
    if "operations" in found:
        _print_program(found)
    _section("commands")
    for line in found["commands"]:
        say(f"  {line}")


def _print_program(found: dict[str, Any]) -> None:
    counts = found["operations"]
    _section("operators")
    say(
        f"operations: {counts['executed']:,}, once repeated layers are functions {counts['distinct']:,}; kinds: {counts['kinds']}"
    )
    for key, says in (
        ("without_rule", "have no rule and run whole on every device"),
        ("only_batch", "can be cut along the batch only"),
    ):
        kinds = found[key]
        say(f"{sum(kind['count'] for kind in kinds):,} {says}{':' if kinds else ''}")
        if kinds:
            rows = [[f"  {k['name']}", f"{k['count']} x", f"{k['work']:.1%} of flops", k["place"]] for k in kinds[:8]]
            print_table(rows)
        for kind in kinds[:8]:
            if why := kind.get("why"):
                say(f"  {kind['name']}: {why}")
        if len(kinds) > 8:
            say(f"  and {len(kinds) - 8} kinds more")
    _section("what an axis can divide, by the rules")
    print_table(
        [[axis, f"{share['work']:.0%}", f"{share['parameters']:.0%}"] for axis, share in found["axes"].items()],
        ["axis", "of flops", "of parameters"],
    )
    _section("plans for four devices")
    rows = [
        [plan["plan"], plan["says"]]
        if plan["work"] is None
        else [
            plan["plan"],
            f"{plan['work']:.2f} of flops, {plan['parameters']:.2f} of parameters on a device, {plan['seconds']:.1f} s",
        ]
        for plan in found["plans"]
    ]
    print_table(rows)
    _section("CPU seconds")
    print_table([[step, f"{seconds:.1f}"] for step, seconds in found["seconds"].items()])
    for line in found["slow"]:
        say(f"slow: {line}")


def _section(title: str) -> None:
    say("")
    say(title)
    sys.stdout.flush()


def shell(*words: str) -> str:
    """Words as a person types them."""
    import shlex

    return " ".join(map(shlex.quote, words))


def stem(model: str) -> str:
    """A name for files made of a model: `gpt2` of `models/gpt2.onnx`, `step` of `train:step`."""
    name = model.rpartition(":")[2] if ":" in model and not os.path.exists(model) else os.path.basename(model)
    from distir.frontends import extension_of

    return name.removesuffix(extension_of(name) or ".mlir") or "model"
