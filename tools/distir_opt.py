"""`distir-opt`: the optimizer driver. The command line goes in, the printed program comes out;
`distir.tools.opt_driver` does the work."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from distir.tools.interruption import interruptible


def main(args: Sequence[str] | None = None) -> None:
    """Parses, runs passes, prints; ends the process where the exit status is not 0."""

    def command() -> int:
        from distir.tools.opt_driver import run_driver

        return run_driver(args)

    if status := interruptible("distir-opt", command):
        sys.exit(status)


if __name__ == "__main__":
    main()
