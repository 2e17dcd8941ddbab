"""`distir train`: batches are the same for every plan, a run goes on from its last whole checkpoint on any plan, and faults end it with that one whole."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint
from safetensors.torch import load_file
from torch import nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.backends.torch.emission import emit
from distir.backends.torch.portable.distir_faults import hold
from distir.backends.torch.trainer import train
from distir.dialects.errors import DistirError
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from tests.end_to_end.commands import COMMAND, environment, parents_of_all, ranks_of

ROOT = Path(__file__).parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes through /proc")


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def step(made: nn.Module | None = None) -> ModuleOp:
    made = made or model()
    example = torch.randn(16, 8), torch.randint(0, 4, (16,))
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-2)
    return import_step(training_step(made, nn.functional.cross_entropy, optimizer), example)


def program(folder: Path, of: nn.Module | None = None, **plan: int) -> Path:
    """The step under a plan, emitted; no plan is one rank."""
    module = step(of)
    values = dict(weights_of(module))
    if plan:
        DtpParallelizePass(**plan).apply(Context(), module)
    emit(module, values, folder)
    return folder


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rank, two replicas, two stages; and data."""
    folder = tmp_path_factory.mktemp("programs")
    program(folder / "one")
    program(folder / "dp", dp=2)
    program(folder / "pp", pp=2, microbatches=2)
    draw = np.random.default_rng(0)
    np.savez(folder / "data.npz", input=draw.standard_normal((200, 8), np.float32), label=draw.integers(0, 4, 200))
    return folder


def words(programs: Path, steps: int, *more: str, checkpoint: Path | None = None) -> list[str]:
    kept = [] if checkpoint is None else ["--checkpoint", str(checkpoint)]
    return ["--data", str(programs / "data.npz"), "--steps", str(steps), "--backend", "gloo", *kept, *more]


def losses(checkpoint: Path) -> dict[int, float]:
    lines = (checkpoint / "log.jsonl").read_text().splitlines()
    return {line["step"]: line["loss"] for line in map(json.loads, lines)}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_run_goes_on_on_another_plan(programs: Path, tmp_path: Path) -> None:
    """10 steps of two replicas with a checkpoint that torch.distributed.checkpoint reads, 7 more from it, damaged, then one process from the 10th again, which
    also says what 30 steps at once are."""
    said: list[str] = []
    train(programs / "one", words(programs, 30, checkpoint=tmp_path / "whole"), 1, say=said.append)
    assert len(losses(tmp_path / "whole")) == 30
    parts = tmp_path / "parts"
    train(programs / "dp", words(programs, 10, "--format", "dcp", checkpoint=parts), 2, say=said.append)
    read = {name: torch.zeros_like(value) for name, value in model().state_dict().items()}
    torch.distributed.checkpoint.load(read, checkpoint_id=parts / "step_00000010" / "dcp", no_dist=True)
    assert all(value.any() for value in read.values())
    train(programs / "dp", words(programs, 17, checkpoint=parts), 2, say=said.append)
    damaged = parts / "step_00000017" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-5] + b"other")
    said.clear()
    train(programs / "one", words(programs, 30, checkpoint=parts), 1, say=said.append)
    assert said[0] == (
        "checkpoint step_00000017 is damaged (model.safetensors is not what was written): going on from step_00000010"
    )
    assert sorted(losses(parts)) == list(range(1, 31))
    for number, loss in losses(tmp_path / "whole").items():
        assert abs(losses(parts)[number] - loss) < 1e-5
    summary = json.loads((parts / "step_00000030" / "checkpoint.json").read_text())
    assert (summary["step"], summary["data"]) == (30, "data.npz")
    trained = model()
    trained.load_state_dict(load_file(parts / "step_00000030" / "model.safetensors"))
    expected = load_file(tmp_path / "whole" / "step_00000030" / "model.safetensors")
    for name, value in trained.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)


def test_files_that_are_not_what_a_run_needs_end_it_in_one_line(programs: Path, tmp_path: Path) -> None:
    """Data of another kind, an input that is cut short, a checkpoint whose summary was changed, and one of another model."""
    draw, cut = np.random.default_rng(0), tmp_path / "cut.npz"
    np.savez(tmp_path / "kind.npz", input=np.full((200, 8), "a"), label=draw.integers(0, 4, 200))
    np.savez(tmp_path / "fractions.npz", input=draw.random((200, 8)), label=draw.random(200))
    cut.write_bytes((programs / "data.npz").read_bytes()[:-40])
    kept = tmp_path / "kept"
    train(programs / "one", words(programs, 1, checkpoint=kept), 1, say=lambda line: None)
    summary = json.loads((kept / "step_00000001" / "checkpoint.json").read_text())
    other = tmp_path / "other"
    program(other, of=nn.Linear(8, 4))
    for folder, given, message in (
        ("one", ["--data", str(tmp_path / "kind.npz")], "kind.npz: input is of <U1, expected numbers"),
        (
            "one",
            ["--data", str(tmp_path / "fractions.npz")],
            "fractions.npz: label is of float64, expected whole numbers",
        ),
        ("one", ["--data", str(cut)], "cut.npz: cannot be read"),
        ("one", ["--inputs", str(cut)], "cut.npz: cannot be read"),
        ("other", words(programs, 2, checkpoint=kept), "has no 'weight': it is of another model or optimizer"),
    ):
        where = other if folder == "other" else programs / folder
        more = given if "--steps" in given else [*given, "--steps", "2", "--backend", "gloo"]
        with pytest.raises(DistirError, match=message):
            train(where, more, 1, say=lambda line: None)
    said: list[str] = []
    for changed in ({"files": {}}, {"step": -3}, {"step": 7}, {"seed": True}):
        (kept / "step_00000001" / "checkpoint.json").write_text(json.dumps(summary | changed))
        train(programs / "one", words(programs, 1, checkpoint=kept), 1, say=said.append)
    assert [line.split(":")[0] for line in said if "damaged" in line] == [
        "checkpoint step_00000001 is damaged (checkpoint.json names no file)",
        "checkpoint step_00000001 is damaged (checkpoint.json has step -3)",
        "checkpoint step_00000001 is damaged (checkpoint.json is of step 7)",
        "checkpoint step_00000001 is damaged (checkpoint.json has seed True)",
    ]


def test_updates_that_are_lost() -> None:
    """Rank 1 makes `a` and the half of `b` that rank 0 takes, and nobody makes the part of `c` that is taken; `d` is not updated."""
    from distir.backends.torch.portable.distir_arrays import lost

    def port(name: str, *ranges: int) -> dict[str, object]:
        return {"name": name, "dims": [[list(ranges)]] if ranges else None, "reduction": None}

    taken = [[port("a"), port("b", 0, 2), port("b", 2, 4), port("c", 0, 2), port("d")], [port("b", 2, 4)]]
    made = [[port("b", 0, 2)], [port("b", 2, 4), port("a"), port("c", 0, 4)]]
    assert lost(taken, made) == ["a", "b", "c"]


class Averages(nn.Module):
    """Of which almost nothing runs in microbatches, since the divisor has a row for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        return x + self.outer(torch.tanh(self.inner(means)))


def test_an_update_that_is_made_on_another_rank_gets_there(tmp_path: Path) -> None:
    """By `distir train` and by `distir run --steps`: rank 0 takes state that rank 1 updates. The message is in the program."""
    from distir.backends.torch import execute
    from distir.backends.torch.portable.distir_data import open_data

    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 4), *(Averages() for _ in range(4)))
    sgd = torch.optim.SGD(eager.parameters(), lr=0.1, momentum=0.9)
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", **{n: draw.standard_normal((20, 12, 4), np.float32) for n in ("input", "label")})
    module = import_step(
        training_step(eager, nn.functional.mse_loss, sgd), (torch.ones(4, 12, 4), torch.ones(4, 12, 4))
    )
    values = dict(weights_of(module))
    DtpParallelizePass(pp=2, microbatches=2, sharding="ilp").apply(Context(), module)
    emit(module, values, tmp_path / "pp")
    log = tmp_path / "log.jsonl"
    words = ["--data", str(tmp_path / "d.npz"), "--steps", "4", "--backend", "gloo", "--log", str(log)]
    train(tmp_path / "pp", words, 2, say=lambda line: None)
    ports = [{"name": name, "role": name, "dtype": "float32", "shape": [4, 12, 4]} for name in ("input", "label")]
    batches = [open_data(tmp_path / "d.npz", ports).batch(0, step) for step in range(1, 5)]
    found = [float(step["loss"]) for step in execute(module, values | batches[0], following=batches[1:]).steps]
    expected: list[float] = []
    for batch in batches:
        sgd.zero_grad()
        loss = nn.functional.mse_loss(eager(torch.from_numpy(batch["input"])), torch.from_numpy(batch["label"]))
        loss.backward()
        sgd.step()
        expected.append(loss.item())
    assert [json.loads(line)["loss"] for line in log.read_text().splitlines()] == pytest.approx(expected, abs=1e-6)
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("plan", ["dp", "pp"])
def test_stages_that_torch_compiles(plan: str, programs: Path, tmp_path: Path) -> None:
    for name, more in (("as it is", []), ("compiled", ["--compile", "aot_eager"])):
        train(programs / plan, words(programs, 3, *more, checkpoint=tmp_path / name), 2, say=lambda line: None)
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "as it is"), abs=1e-6)


def test_tokens_of_a_step_that_does_not_say_which_is_the_label(tmp_path: Path) -> None:
    """A written step: of two arguments that are alike the last is the label, one further on."""
    from distir.backends.torch.portable.distir_data import open_data

    (tmp_path / "text.txt").write_bytes(bytes(range(100)))
    ports = [{"name": name, "role": "input", "dtype": "int64", "shape": [4, 6]} for name in ("y", "x")]
    batch = open_data(tmp_path / "text.txt", ports).batch(0, 1)
    np.testing.assert_array_equal(batch["x"], batch["y"] + 1)


@pytest.mark.long
def test_pipelines_and_eager_pytorch_train_alike(programs: Path, tmp_path: Path) -> None:
    train(programs / "pp", words(programs, 12, checkpoint=tmp_path / "pp"), 2, say=lambda line: None)
    from distir.backends.torch.portable.distir_data import Samples

    ports = [{"name": "input", "shape": [16, 8]}, {"name": "label", "shape": [16]}]
    data = Samples(Path("data"), dict(np.load(programs / "data.npz")), ports)
    eager = model()
    optimizer = torch.optim.AdamW(eager.parameters(), lr=1e-2)
    for number, found in losses(tmp_path / "pp").items():
        batch = {name: torch.from_numpy(value) for name, value in data.batch(0, number).items()}
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(eager(batch["input"]), batch["label"])
        loss.backward()
        optimizer.step()
        assert abs(found - loss.item()) < 1e-5


def started(programs: Path, checkpoint: Path, *more: str) -> subprocess.Popen[str]:
    """`train` of two replicas in a process of its own, once it is at step 20."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom distir.backends.torch.trainer import Interrupt, train\n"
        "try: train(Path(sys.argv[1]), sys.argv[2:], 2)\nexcept Interrupt as i: sys.exit(128 + i.number)\n"
    )
    given = words(programs, 1_000_000, "--checkpoint-every", "10", *more, checkpoint=checkpoint)
    launcher = subprocess.Popen(
        [sys.executable, "-c", script, str(programs / "dp"), *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | {"PYTHONPATH": str(ROOT / ".ns"), "PYTHONUNBUFFERED": "1"},
    )
    assert launcher.stdout is not None
    while not launcher.stdout.readline().startswith("step 20 "):
        assert launcher.poll() is None
    return launcher


def check_whole(checkpoint: Path) -> int:
    """The newest checkpoint is whole; its step."""
    from distir.backends.torch.portable import distir_checkpoints

    found, summary, notes = distir_checkpoints.newest(checkpoint)
    assert found is not None
    assert notes == []
    return summary["step"]


@linux
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_a_checkpoint(number: signal.Signals, programs: Path, tmp_path: Path) -> None:
    launcher = started(programs, tmp_path / "ck")
    ranks = ranks_of(launcher.pid)
    launcher.send_signal(number)
    out, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 128 + number, errors
    last = out.splitlines()[-1]
    assert last.startswith("stopped at step ")
    assert check_whole(tmp_path / "ck") == int(last.split()[3])
    assert not list((tmp_path / "ck").glob(".*.tmp"))
    assert sorted(ranks) == [0, 1]
    assert not any(Path(f"/proc/{process}").exists() for process, _ in ranks.values())


@linux
@pytest.mark.long
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_is_killed(victim: int, programs: Path, tmp_path: Path) -> None:
    launcher = started(programs, tmp_path / "ck")
    ranks = ranks_of(launcher.pid)
    os.kill(ranks[victim][0], signal.SIGKILL)
    _, errors = launcher.communicate(timeout=60)
    assert f"rank {victim} was killed by SIGKILL" in errors.splitlines()[-1]
    assert check_whole(tmp_path / "ck") % 10 == 0
    assert not any(Path(f"/proc/{process}").exists() for process, _ in ranks.values())


@linux
@pytest.mark.long
def test_the_launcher_is_killed(programs: Path, tmp_path: Path) -> None:
    launcher = started(programs, tmp_path / "ck")
    ranks = ranks_of(launcher.pid)
    os.kill(ranks[1][0], signal.SIGSTOP)
    launcher.kill()
    launcher.communicate()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{p}").exists() for p, _ in ranks.values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{process}").exists() or folder.exists() for process, folder in ranks.values())


@linux
@pytest.mark.long
def test_a_rank_stands_still(programs: Path, tmp_path: Path) -> None:
    def stop(line: str) -> None:
        if line.startswith("step 5 "):
            os.kill(ranks_of(os.getpid())[1][0], signal.SIGSTOP)

    with pytest.raises(DistirError, match=r"^no progress for 5 seconds: rank 1 in a step: the process is stopped$"):
        train(programs / "dp", words(programs, 1_000_000), 2, 5, stop)
    assert not ranks_of(os.getpid())


@pytest.mark.long
@pytest.mark.parametrize("kind", ["safetensors", "dcp"])
def test_a_full_disk(kind: str, programs: Path, tmp_path: Path) -> None:
    """No file can be longer than 4096 bytes from the second checkpoint on: the first stays."""
    checkpoint = tmp_path / "ck"
    given = ["--format", kind]
    run_alone(programs / "one", words(programs, 4, *given, checkpoint=checkpoint))
    ran = run_alone(programs / "one", words(programs, 8, *given, checkpoint=checkpoint), largest_file=4096)
    assert ran.returncode == 1
    expected = (
        "train.py: the checkpoint of step 8 cannot be written to .*File too large; the last one, of step 4, is whole"
    )
    assert re.fullmatch(expected, ran.stderr.strip())
    assert check_whole(checkpoint) == 4


def run_alone(
    folder: Path, given: list[str], largest_file: int = -1, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "train.py", *given],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, -1)),
    )


MISTAKES: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "no data": (lambda p: ["--data", str(p / "no.npz")], "No such file"),
    "other names": (lambda p: ["--data", str(p / "other.npz")], "no 'label'; it has input"),
    "other shapes": (lambda p: ["--data", str(p / "wide.npz")], "a sample of input has shape [9], expected [8]"),
    "tokens": (lambda p: ["--data", str(p / "tokens.bin")], "tokens are for a step of one input"),
    "a pipe": (lambda p: ["--data", str(p / "pipe.npz")], "is neither a file nor a folder"),
    "labels out of range": (lambda p: ["--data", str(p / "far.npz")], "rank 0, step 1, ranks_0.py:"),
    "output in a pipe": (lambda p: ["-o", str(p / "pipe.npz")], "is no file"),
    "output nowhere": (lambda p: ["-o", str(p / "no" / "out.safetensors")], "there is no folder"),
    "a log that is a folder": (lambda p: ["--log", str(p)], "is a folder"),
    "checkpoints below a file": (lambda p: ["--checkpoint", str(p / "data.csv" / "ck")], "Not a directory"),
    "checkpoints of a run": (lambda p: ["--checkpoint", str(p / "held")], "another run writes there"),
    "no number": (lambda p: ["--log-every", "0"], "expected a whole number of at least 1, got '0'"),
    "no format": (lambda p: ["--data", str(p / "data.csv")], "expected .txt, .bin or .npy"),
}


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_line(mistake: str, programs: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", input=np.zeros((20, 8), np.float32))
    np.savez(tmp_path / "wide.npz", input=np.zeros((20, 9), np.float32), label=np.zeros(20, np.int64))
    (tmp_path / "tokens.bin").write_bytes(bytes(1000))
    np.savez(tmp_path / "far.npz", input=np.zeros((20, 8), np.float32), label=np.full(20, 400))
    (tmp_path / "data.csv").write_text("1,2")
    os.mkfifo(tmp_path / "pipe.npz")
    assert hold(tmp_path / "held") is None
    given, expected = MISTAKES[mistake]
    ran = run_alone(programs / "one", ["--backend", "gloo", *given(tmp_path)])
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("train.py: ")
    assert expected in line


def test_a_pipe_is_no_checkpoint(programs: Path, tmp_path: Path) -> None:
    """It is left out, and not waited for."""
    kept = tmp_path / "kept"
    for name in ("step_00000002", "step_00000003"):
        (kept / name).mkdir(parents=True)
    os.mkfifo(kept / "step_00000003" / "checkpoint.json")
    (kept / "step_00000002" / "checkpoint.json").write_text("[" * 100_000)
    said: list[str] = []
    train(programs / "one", words(programs, 1, checkpoint=kept), 1, say=said.append)
    assert said[:2] == [
        "checkpoint step_00000003 is damaged (checkpoint.json is no file): beginning anew",
        "checkpoint step_00000002 is damaged (checkpoint.json cannot be read): beginning anew",
    ]


@pytest.mark.long
@linux
def test_torchrun_starts_again(programs: Path, tmp_path: Path) -> None:
    """A rank that is killed ends both; the next start goes on from the last checkpoint."""
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "torch.distributed.run", "--max-restarts=1", "--nproc-per-node=2", "train.py"]
    more = ["--checkpoint-every", "20", "--log-every", "100"]
    run = subprocess.Popen(
        [*command, *words(programs, 400, *more, checkpoint=kept)],
        cwd=programs / "dp",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until = time.monotonic() + 60
    while not (kept / "step_00000040").exists() and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(max(process for process, parent in parents_of_all().items() if parent == run.pid), signal.SIGKILL)
    said, _ = run.communicate(timeout=120)
    assert run.returncode == 0, said
    assert "going on from step_" in said
    assert check_whole(kept) == 400


@pytest.mark.long
def test_a_port_that_is_taken(programs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = run_alone(
            programs / "one", ["--backend", "gloo"], MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK="0", WORLD_SIZE="1"
        )
    assert ran.returncode == 1
    assert f"train.py: the ranks cannot meet at port {port}: " in ran.stderr.splitlines()[-1]


def distir(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    env = environment() | {"PYTHONPATH": f"{ROOT / '.ns'}{os.pathsep}{ROOT}"}
    return subprocess.run([*COMMAND, *given], cwd=folder, capture_output=True, text=True, env=env)


@pytest.mark.long
def test_gpt2_learns_shakespeare(tmp_path: Path) -> None:
    """200 steps on two processes under the plan that the search picked, one of them killed at step 77 and gone on from on another plan, are those of one process."""
    text = str(ROOT / "examples" / "text" / "shakespeare.txt")
    assert distir(tmp_path, "import", "examples.gpt2_pytorch:step", "-o", "gpt2.mlir").returncode == 0
    search = ["search", "gpt2.mlir", "--machine", "local-cpu", "--devices", "2"]
    assert distir(tmp_path, *search, "-o", "plan.mlir").returncode == 0
    assert distir(tmp_path, *search, "--dp", "2", "-o", "other.mlir").returncode == 0
    common = ["--data", text, "--log-every", "50", "--checkpoint"]
    for plan, steps, folder in [
        ("gpt2", 200, "one"),
        ("plan", 200, "two"),
        ("plan", 77, "three"),
        ("other", 200, "three"),
    ]:
        ran = distir(tmp_path, "train", f"{plan}.mlir", "--steps", str(steps), *common, folder)
        assert ran.returncode == 0, ran.stderr
    one, two, three = (losses(tmp_path / folder) for folder in ("one", "two", "three"))
    assert one[200] < 2.7 < 5.4 < one[1]
    assert max(abs(two[i] - one[i]) for i in one) < 1e-4
    assert abs(three[200] - one[200]) < 1e-4


@pytest.mark.long
def test_a_loop_of_ones_own(tmp_path: Path) -> None:
    """`distir.parallelize` on two processes, and on one, and eager PyTorch."""
    example = str(ROOT / "examples" / "own_loop.py")
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", example]
    said: list[list[str]] = []
    for command in (two, [sys.executable, example]):
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment())
        assert ran.returncode == 0, ran.stderr
        said.append(ran.stdout.splitlines())
    found = [[float(line.split()[-1]) for line in lines] for lines in said]
    assert len(found[0]) == 20
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_user_mistakes(tmp_path: Path) -> None:
    (tmp_path / "forward.mlir").write_text(
        'func.func @main(%x: tensor<4xf32> {dist.name = "x", dist.role = "input"}) -> tensor<4xf32> {\n'
        '  %0 = "aten.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  func.return %0 : tensor<4xf32>\n}\n'
    )
    ran = distir(tmp_path, "train", "forward.mlir", "--data", "d.npz", "--steps", "3")
    assert ran.returncode == 1
    assert ran.stderr.startswith("distir: error: forward.mlir updates nothing: distir train takes training steps")
