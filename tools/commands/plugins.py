"""`distir plugins`: the packages that extend distir here, and what each of them adds."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.report import print_table

EXAMPLES = """\
examples:
  distir plugins          each plug-in, its package, and what it adds
  distir plugins --json
"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "plugins",
        help="the packages that extend distir",
        description="Lists the plug-ins of this installation (docs/extending.md says how to write one).",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print them as JSON")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from distir.dialects.plugins import plugins

    found = plugins()
    if args.json:
        names = ("plugin", "package", "adds")
        print(json.dumps([dict(zip(names, (n, p, [{"kind": a.kind, "name": a.name} for a in added]), strict=True)) for n, p, added in found], indent=1))  # fmt: skip
        return 0
    rows = [(name, package, each.kind, each.name) for name, package, added in found for each in added]
    if rows:
        print_table(rows, ("plug-in", "package", "adds", "name"))
    else:
        print("no plug-ins: docs/extending.md says how to write one")
    return 0
