"""Faults while distir works, many times on a busy machine: bounded time, one line that names the rank, nothing half-written, no orphan."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import onnx
import pytest

from distir.backends.torch import execute
from distir.dialects.errors import DistirError
from tests.end_to_end.commands import COMMAND, environment, example, ranks_of
from tests.end_to_end.test_torch_run import INPUTS, PAIR, parse, signal_to_rank_1

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="finds processes through /proc")]

TIMES = 20


@pytest.fixture(autouse=True, scope="module")
def load() -> Generator[None]:
    """Two processes for each core keep the machine busy."""
    burn = "import os\nstarter = os.getppid()\nwhile os.getppid() == starter: pass"
    burners = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(2 * (os.cpu_count() or 1))]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


@pytest.mark.parametrize("time_", range(TIMES))
@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGKILL, r"^rank 1 was killed by SIGKILL"),
        (signal.SIGSTOP, r"^no progress for 20 seconds: rank 1 in \S+ .*: the process is stopped$"),
    ],
)
def test_a_rank_dies_or_stalls(number: signal.Signals, message: str, time_: int):
    with signal_to_rank_1(number) as sent, pytest.raises(DistirError, match=message):
        execute(parse(PAIR), {**INPUTS, "i": np.array([0, 1])}, measure=10**9, timeout_seconds=20)
    assert time.monotonic() - sent[0] < 40
    assert not ranks_of(os.getpid())


@pytest.mark.parametrize("time_", range(TIMES))
def test_a_rank_raises(time_: int):
    with pytest.raises(DistirError, match=r"^rank 1 failed: onnx.Gather in @main: .*out of range"):
        execute(parse(PAIR), INPUTS)
    assert not ranks_of(os.getpid())


@pytest.mark.parametrize("time_", range(TIMES))
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_launcher_ends(number: signal.Signals, time_: int, tmp_path: Path):
    (tmp_path / "pair.mlir").write_text(PAIR)
    np.savez(tmp_path / "in.npz", i=np.array([0, 1]))
    (tmp_path / "tmp").mkdir()
    arguments = ["run", "pair.mlir", "--inputs", "in.npz", "--measure", "1000000000", "-o", "out.npz"]
    environment_ = environment() | {"TMPDIR": str(tmp_path / "tmp")}
    launcher = subprocess.Popen([*COMMAND, *arguments], cwd=tmp_path, stderr=subprocess.PIPE, env=environment_)
    while len(workers := ranks_of(launcher.pid)) < 2:
        assert launcher.poll() is None
        time.sleep(0.02)
    time.sleep(time_ / 5)
    if time_ % 2:
        os.kill(workers[1][0], signal.SIGSTOP)
    launcher.send_signal(number)
    _, errors = launcher.communicate(timeout=20)
    assert launcher.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert b"Traceback" not in errors
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{number}").exists() for number, _ in workers.values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{number}").exists() for number, _ in workers.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npz", "pair.mlir", "tmp"]
    assert not list((tmp_path / "tmp").iterdir())


def import_mlp(folder: Path) -> None:
    onnx.save(example("mlp_onnx")([8, 4, 2]), folder / "mlp.onnx")
    words = ["import", "mlp.onnx", "--shape", "x=4,8", "--shape", "z=4,2", "-o", "mlp.mlir"]
    assert subprocess.run([*COMMAND, *words], cwd=folder, env=environment()).returncode == 0


WRITERS = {
    "import": ["import", "gpt2.onnx", "-o", "OUT.mlir"],
    "simulate a trace": ["simulate", "mlp.mlir", "--machine", "dgx-2", "--trace", "OUT.json"],
    "simulate a report": ["simulate", "mlp.mlir", "--machine", "dgx-2", "--report", "OUT.html"],
    "search a table": ["search", "mlp.mlir", "--machine", "dgx-2", "--devices", "2", "--csv", "OUT.csv"],
    "search a report": ["search", "mlp.mlir", "--machine", "dgx-2", "--devices", "2", "--report", "OUT.html"],
    "search a program": ["search", "mlp.mlir", "--machine", "dgx-2", "--devices", "2", "-o", "OUT.mlir"],
    "run": ["run", "mlp.mlir", "-o", "OUT.npz"],
    "run a checkpoint": ["run", "mlp.mlir", "-o", "OUT.safetensors"],
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("limit", [0, 100])
def test_a_full_disk(writer: str, limit: int, tmp_path: Path):
    """Files of at most `limit` bytes can be written where the command writes; temporary folders are elsewhere."""
    onnx.save(example("gpt2_onnx")(n_layer=1, d_model=16, n_head=2, vocab=23, n_ctx=8), tmp_path / "gpt2.onnx")
    import_mlp(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    process = subprocess.run(
        [*COMMAND, *WRITERS[writer]],
        cwd=tmp_path,
        capture_output=True,
        env=environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].startswith(b"distir: error: ")
    reasons = (b"File too large", b"No usable temporary directory")
    assert any(reason in process.stderr.splitlines()[-1] for reason in reasons)
    assert b"Traceback" not in process.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_unreadable_weights(kept: int, tmp_path: Path):
    import_mlp(tmp_path)
    weights = (tmp_path / "mlp.safetensors").read_bytes()
    (tmp_path / "mlp.safetensors").write_bytes(weights[:kept])
    process = subprocess.run([*COMMAND, "run", "mlp.mlir"], cwd=tmp_path, capture_output=True, env=environment())
    assert process.returncode == 1
    assert process.stderr.splitlines()[-1].startswith(b"distir: error: ")
    assert b"mlp.safetensors" in process.stderr
