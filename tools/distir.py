"""`distir`: the command line goes in, the exit status comes out. The commands are in `distir.tools.commands`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from distir.tools.interruption import interruptible


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status: 0, 1 for a mistake or a check that fails, 130 for Ctrl-C, 143 for SIGTERM."""

    def command() -> int:
        from distir.tools.commands.main import run_command

        return run_command(argv)

    return interruptible("distir", command)


if __name__ == "__main__":
    sys.exit(main())
