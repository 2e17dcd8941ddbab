"""Asks questions about operators in a fork of this process. In go functions that give a text; out come the texts, or
no answer where a kernel crashes, hangs or takes all memory and so ends the fork.

Kernels do not check all the integers and sizes that they are given, and rule discovery and the drawing of indices
must try untested ones. One fork answers question after question; where it ends early, another goes on behind the
question that ended it. A fork limits itself, by signals and limits of the operating system that end it whatever code
it is in."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from distir.dialects.errors import DistirError

CPU_SECONDS = 20.0
"""That one question may take."""
_WALL_SECONDS = 300.0
"""That one may wait: for a lock that nobody gives back."""
_WAITS = 15
"""Times its CPU seconds, on a machine that does other things."""
_BYTES = 4 << 30
"""By which memory may grow."""
_PAGE = resource.getpagesize()


@dataclass(frozen=True)
class NoAnswer:
    """Why a question has no answer, as the end of a sentence that begins with what was asked."""

    reason: str
    raised: bool = False
    """Whether the code that was to answer raised an exception."""
    crashed: bool = False
    """Whether it ended the process, not by its limits of time."""


def answers(
    questions: Sequence[Callable[[], str]],
    prepare: Callable[[], None] = lambda: None,
    cpu_seconds: float = CPU_SECONDS,
) -> Iterator[str | NoAnswer]:
    """The texts that the questions give, in order, in forks in each of which `prepare` has run. Each may take so many seconds."""
    answered = 0
    while answered < len(questions):
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        if (child := os.fork()) == 0:
            os.close(read)
            _answer_all(questions[answered:], prepare, write, cpu_seconds)
        os.close(write)
        finished = False
        try:
            with os.fdopen(read, encoding="utf-8") as stream:
                for line in stream:
                    if not line.endswith("\n"):
                        break
                    found = json.loads(line)
                    answered += 1
                    yield found if isinstance(found, str) else NoAnswer(found["raised"], raised=True)
            finished = True
        finally:
            if not finished:
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        if answered < len(questions):
            answered += 1
            timed_out = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
            yield NoAnswer(_reason(status, cpu_seconds), crashed=not timed_out)


def _reason(status: int, cpu_seconds: float) -> str:
    if not os.WIFSIGNALED(status):
        return f"ends the process (status {os.WEXITSTATUS(status)})"
    match os.WTERMSIG(status):
        case signal.SIGPROF:
            return f"takes more than {cpu_seconds:.0f} s"
        case signal.SIGALRM:
            return f"does not end in {max(_WALL_SECONDS, _WAITS * cpu_seconds):.0f} s"
        case number:
            return f"crashes ({signal.Signals(number).name})"


def _answer_all(
    questions: Sequence[Callable[[], str]], prepare: Callable[[], None], write: int, cpu_seconds: float
) -> None:
    """The fork: it never returns into the code of its parent, and says nothing."""
    try:
        gc.freeze()
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _limit_memory()
        if (torch := sys.modules.get("torch")) is not None:
            torch.set_num_threads(
                1
            )  # a fork has none of the threads that kernels may have had, and would wait for them
        for number in (signal.SIGPROF, signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        prepare()
        with os.fdopen(write, "w", encoding="utf-8") as stream:
            for question in questions:
                signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
                signal.setitimer(signal.ITIMER_REAL, max(_WALL_SECONDS, _WAITS * cpu_seconds))
                stream.write(json.dumps(_answer(question)) + "\n")
                stream.flush()
    finally:
        os._exit(0)


def _answer(question: Callable[[], str]) -> str | dict[str, str]:
    try:
        return question()
    except Exception as error:
        return {"raised": f"{type(error).__name__}: {error}"}


def _limit_memory() -> None:
    """Addresses beyond those that are there already: what needs more raises MemoryError, or what its library has for that."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        most = int(statm.read_text().split()[0]) * _PAGE + _BYTES
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def in_child(compute: Callable[[], str], prepare: Callable[[], None], what: str) -> str:
    """The text that `compute` gives in a fork of this process, after `prepare` there; of this process where it raises, so that the
    exception is raised here. Raises DistirError if the fork ends early."""
    (found,) = answers([compute], prepare)
    if isinstance(found, str):
        return found
    if found.raised:
        return compute()
    raise DistirError(
        f"discover: {what} {found.reason} on integers that are out of its range: make it raise an exception there"
    )
