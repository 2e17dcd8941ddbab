"""The tools of lit tests as forks of one process that has imported them: `lit --param fork-server=1`, as `make lit` does.

`command` says how tests run a module then: by this file as a script, which hands its words, folder, environment and files to the server, and
exits as the fork did. Most of a test's time is else the import of torch."""

import json
import os
import socket
import sys

IMPORTED = "torch", "onnx", "jax", "distir.tools.opt_driver", "distir.tools.universe", "filecheck.main"


def command() -> str:
    """Starts a server, which ends with this process, and says how to run a module by it."""
    import subprocess
    import tempfile

    path = os.path.join(tempfile.mkdtemp(prefix="lit-"), "socket")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    subprocess.Popen(
        [sys.executable, __file__, "--serve", path, str(listener.fileno())],
        stdin=subprocess.PIPE,  # whose other end is this process'
        pass_fds=[listener.fileno()],
        env={**os.environ, **own},
    )
    return f'"{sys.executable}" -S -E "{__file__}" "{path}"'


def _serve(path: str, number: int) -> None:
    """Forks for each request, until whoever started this is gone."""
    import select
    import signal
    from contextlib import suppress
    from importlib import import_module

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(fileno=number)
    for name in IMPORTED:
        with suppress(ImportError):
            import_module(name)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        asked, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(asked)
        asked.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    os.unlink(path)
    os.rmdir(os.path.dirname(path))


def _answer(asked: socket.socket) -> None:
    """Does in a fork what is asked, and says how it ended."""
    text, files, _, _ = socket.recv_fds(asked, 1 << 20, 3)
    if (number := os.fork()) == 0:
        asked.close()
        _run(*json.loads(text), files)
    asked.send(str(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])).encode())
    os._exit(0)


def _run(words: list[str], folder: str, environment: dict[str, str], files: list[int]) -> None:
    """As `python -m` does."""
    import runpy
    import signal
    import traceback

    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        os.dup2(files[descriptor], descriptor)
        os.close(files[descriptor])
        lines = 1 if name == "stderr" else -1  # as Python has it
        setattr(sys, name, open(descriptor, "w" if descriptor else "r", lines, closefd=False))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:], status = words[1:], 1
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _ask(path: str, words: list[str]) -> int:
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    request = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [request], [0, 1, 2])
    return int(server.recv(16) or 1)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        _serve(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(_ask(sys.argv[1], sys.argv[2:]))
