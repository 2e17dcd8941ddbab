"""Processes that begin with torch imported. In go a worker's module or a script, its words, environment and files; out comes a process to poll and to kill.

One server of this process (`fork_server`) imports torch once and forks every rank that is asked for, so that ranks cost no import each, and
later runs none (torch.distributed.elastic starts a Python for each, which imports torch anew: 2 CPU-seconds). The standard input of each is a
pipe that ends with the server, and the server ends them with their launcher."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from distir.dialects.errors import DistirError

POLL_SECONDS = 0.01
_GRACE_SECONDS = 2.0
"""How long a server that is no longer asked may take to kill what it started; one that has not answered yet has started nothing."""


class Process:
    """A fork of the server, with what `subprocess.Popen` has of it: `returncode` is minus the signal that killed it."""

    def __init__(
        self, words: Sequence[str | Path], environment: Mapping[str, str], output: Path, errors: Path | None = None
    ) -> None:
        """`words` are the name of a worker's module, or the path of a `.py`, and its arguments. The folders of `output` and `errors` are
        temporary ones: the server removes them when the launcher has ended."""
        self._server = _server(os.getpid())
        files = [str(path.absolute()) for path in (output, errors or output)]
        for file in files:
            Path(file).touch()  # to be read before the fork opens it
        self.pid: int = self._server.ask([[*map(str, words)], dict(environment), os.getcwd(), files])
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = -signal.SIGKILL if self._server.is_closed else self._server.ask(self.pid)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)  # nobody else has its number: it is kept until the server is asked

    def end(self) -> None:
        """Kills it if it still runs, and waits."""
        self.send_signal(signal.SIGKILL)
        while self.poll() is None:
            time.sleep(POLL_SECONDS)


class _Server:
    """The launcher's side: a line of JSON asks, a line answers."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "distir.backends.torch.fork_server"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            start_new_session=True,  # Ctrl-C is the launcher's: it ends ranks itself
        )
        self._has_answered = False
        atexit.register(self._close)

    @property
    def is_closed(self) -> bool:
        return self._process.stdin is None or self._process.stdin.closed

    def ask(self, request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BaseException as error:
            self._close()  # the answer may still come: nobody asks this server again
            if isinstance(error, Exception):
                raise DistirError(f"the process that starts ranks has ended: {error}") from error
            raise
        if not answer:
            self._close()
            raise DistirError(f"the process that starts ranks ended with status {self._process.returncode}")
        self._has_answered = True
        return json.loads(answer)

    def _close(self) -> None:
        """Ends it, and with it all that it started."""
        _server.cache_clear()
        atexit.unregister(self._close)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_GRACE_SECONDS if self._has_answered else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@cache
def _server(launcher: int) -> _Server:
    """The server of this process; a fork of a launcher has its own."""
    return _Server()


def environment() -> dict[str, str]:
    """One thread per rank; the same distir; gloo on the loopback interface, where all ranks are. The C library's allocator keeps
    memory that is freed (`man mallopt`): a step else takes thousands of page faults for what the one before it gave back."""
    kept = {
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_TOP_PAD_": str(64 << 20),
    }
    environment = {**kept, **os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    package = str(Path(__file__).absolute().parents[3])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
    if Path("/sys/class/net/lo").exists():
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environment
