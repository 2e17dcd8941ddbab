"""The process that ranks are forks of, `python -m distir.backends.torch.fork_server`. In go lines of JSON: the work
of a new rank, or a rank's process number; out comes a line for each, the number of the new process, or the end of
the rank.

It imports the modules that ranks import, and does nothing else: a fork has only the thread that forks. Once its
launcher is gone it kills the remaining ranks (a stopped rank cannot end itself), and removes the folders that they
print to."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import set_debug_level_from_env

from distir.backends.torch import program as program
from distir.backends.torch import worker


def _serve() -> list[str]:
    """Answers until the launcher is gone. Returns only in forks, with what each is to run."""
    alive, held = os.pipe()
    forks, folders = set[int](), set[Path]()
    with suppress(BrokenPipeError):
        while request := sys.stdin.buffer.readline():
            asked: Any = json.loads(request)
            if isinstance(asked, int):
                number, status = os.waitpid(asked, os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if number else None
                forks.discard(number)
            else:
                words, variables, folder, files = asked
                if (answer := os.fork()) == 0:
                    os.close(held)
                    os.setsid()
                    os.dup2(alive, 0)
                    for descriptor, path in enumerate(files, 1):
                        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), descriptor)
                    os.environ.clear()
                    os.environ.update(variables)
                    os.chdir(folder)
                    return words
                forks.add(answer)
                folders |= {Path(path).parent for path in files}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    for number in forks:
        os.kill(number, signal.SIGKILL)
    for number in forks:
        os.waitpid(number, 0)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _end_with_server() -> None:
    os.read(0, 1)  # not sys.stdin: its lock would be held when the interpreter ends
    os._exit(1)


def _main() -> None:
    torch.set_num_threads(1)
    target, *arguments = sys.argv[:] = _serve()
    threading.Thread(target=_end_with_server, daemon=True).start()
    if "TORCH_DISTRIBUTED_DEBUG" in os.environ:
        set_debug_level_from_env()
    if target.endswith(".py"):
        sys.path.insert(0, str(Path(target).parent))
        runpy.run_path(target, run_name="__main__")
    else:
        worker.main(import_module(target).work, Path(arguments[0]), int(arguments[1]))


if __name__ == "__main__":
    _main()
