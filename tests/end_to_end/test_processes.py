"""`distir` as a process: help, what it loads, pipes, signals, full disks."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end.commands import COMMAND, environment, run


@pytest.mark.parametrize("command", ["", "import", "search", "simulate", "run", "verify", "machines"])
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]):
    assert run(*command.split(), "--help") == 0
    out = capsys.readouterr().out
    assert f"usage: distir {command}".rstrip() in out
    assert f"examples:\n  distir {command}" in out


def test_starts_light():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *COMMAND[1:], "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert not imported & {"numpy", "onnx", "torch", "rich"}


def test_a_reader_that_goes_away_is_no_mistake(folder: Path):
    process = subprocess.Popen(
        [*COMMAND, "import", "gpt2.onnx"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate()
    assert err.replace(b"\r", b"").count(b"\n") <= 1  # the note on unbound dimensions
    assert b"Traceback" not in err
    assert b"BrokenPipe" not in err


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_ctrl_c(folder: Path):
    os.mkfifo("pipe.mlir")  # the command waits in it for a program
    process = subprocess.Popen(
        [*COMMAND, "verify", "pipe.mlir", "pipe.mlir"], stderr=subprocess.PIPE, env=environment()
    )
    with open("pipe.mlir", "w"):  # opens when the command has
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert err == b"distir: interrupted\n"
    assert process.returncode == 130


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals to send")
@pytest.mark.parametrize("tool", ["distir", "distir_opt"])
@pytest.mark.parametrize(("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_while_starting(tool: str, number: signal.Signals, word: str):
    """Sent while modules are imported: a module of the standard library says when."""
    code = (
        "import os, sys, runpy\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'xdsl.ir': os.kill(os.getpid(), int(sys.argv.pop()))\n"
        "sys.meta_path.insert(0, Finder())\n"
        f"runpy.run_module('distir.tools.{tool}', run_name='__main__', alter_sys=True)\n"
    )
    arguments = [sys.executable, "-c", code, "--version", str(int(number))]
    process = subprocess.run(arguments, capture_output=True, text=True, env=environment())
    assert process.stderr == f"{tool.replace('_', '-')}: {word}\n"
    assert process.returncode == 128 + number


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit of a file's size")
def test_a_full_disk_leaves_what_was_there(folder: Path):
    """The limit of a file's size lets the weights be written, and the program not; then not even the weights."""
    import resource

    assert run("import", "mlp.onnx", "-o", "out.mlir") == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    weights, program = len(before["out.safetensors"]), len(before["out.mlir"])
    assert weights < program
    for limit in (program - 1, weights - 1):
        process = subprocess.run(
            [*COMMAND, "import", "mlp.onnx", "-o", "out.mlir"],
            stderr=subprocess.PIPE,
            env=environment(),
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        )
        assert process.returncode == 1
        assert process.stderr.count(b"\n") == 1
        assert b"cannot be written: File too large" in process.stderr
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
