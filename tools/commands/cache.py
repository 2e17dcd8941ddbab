"""`distir cache`: the rules of operators that are kept between runs. In goes an action; out come their place and
number, or they are removed."""

from __future__ import annotations

import json
import os
from argparse import Action, ArgumentParser, Namespace
from collections import Counter
from typing import Any

from distir.tools.commands.help import HelpFormatter
from distir.tools.commands.report import print_table, say

EXAMPLES = """\
examples:
  distir cache show              the directory, and the files of rules in it
  distir cache show --operators  how many rules of each operator this version keeps
  distir cache clear             removes all files of rules, and which programs were checked
"""


class WithoutCache(Action):
    """Neither reads nor writes the user's cache, in processes that this one starts either."""

    def __init__(self, option_strings: list[str], dest: str, help: str | None = None):
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option: str | None = None) -> None:
        from distir.passes.shardcombine.cache import NO_CACHE

        os.environ[NO_CACHE] = "1"


def add_no_cache(parser: ArgumentParser) -> None:
    """The option of commands that discover rules."""
    parser.add_argument(
        "--no-cache", action=WithoutCache, help="discover all rules anew: the cache is neither read nor written"
    )


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "cache",
        help="the rules of operators that are kept between runs",
        description="Shows or clears the rules of operators that are kept between runs.",
        epilog=EXAMPLES,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("action", choices=("show", "clear"), help="show or clear")
    parser.add_argument("--operators", action="store_true", help="with show: the number of rules of each operator")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from distir.passes.shardcombine.cache import cache_directory, cache_files, current_file, read_entries

    files = cache_files()
    if args.action == "clear":
        from distir.tools import checked_programs

        kept = [*files, *checked_programs.files()]
        for file in kept:
            file.unlink(missing_ok=True)
        removed = {"directory": str(cache_directory()), "removed": len(kept)}
        said = f"{cache_directory()}: {len(kept)} files removed"
        say(json.dumps(removed) if args.json else said)
        return 0
    if args.json:
        current = current_file()
        known = [
            {"file": f.name, "rules": len(read_entries(f)), "bytes": f.stat().st_size, "in_use": f == current}
            for f in files
        ]
        operators = Counter(key.split(" ", 1)[0] for key in read_entries(current))
        print(
            json.dumps(
                {"directory": str(cache_directory()), "files": known, "operators": dict(sorted(operators.items()))},
                indent=1,
            )
        )
        return 0
    say(str(cache_directory()))
    if args.operators:
        counts = Counter(key.split(" ", 1)[0] for key in read_entries(current_file()))
        print_table([(name, str(count)) for name, count in sorted(counts.items())], ("operator", "rules"))
        return 0
    rows = [
        (
            file.name,
            str(len(read_entries(file))),
            str(file.stat().st_size),
            "in use" if file == current_file() else "of other versions",
        )
        for file in files
    ]
    print_table(rows, ("file", "rules", "bytes", ""))
    return 0
