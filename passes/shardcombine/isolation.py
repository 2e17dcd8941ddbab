"""Work that may crash the process, in a child of it: native kernels that do not check the integers they are given write outside
their results, and discovery must give them integers that nobody has tried."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from distir.dialects.errors import DistirError


def in_child(compute: Callable[[], str], prepare: Callable[[], None], what: str) -> str:
    """The text that `compute` gives in a fork of this process, after `prepare` there; of this process where the child cannot
    be prepared. Raises DistirError, with the signal, if the child crashes."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(read)
        _answer(compute, prepare, write)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        raise DistirError(
            f"discover: {what} crashes ({name}) on integers that are out of its range: make it raise an exception there"
        )
    return text if os.WEXITSTATUS(status) == 0 else compute()


def _answer(compute: Callable[[], str], prepare: Callable[[], None], write: int) -> None:
    """The child: it never returns into the code of its parent."""
    code = 1
    try:
        prepare()
        text = compute()
        with os.fdopen(write, "w", encoding="utf-8") as stream:
            stream.write(text)
        code = 0
    finally:
        os._exit(code)
