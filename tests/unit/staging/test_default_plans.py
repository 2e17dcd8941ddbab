"""What `dtp-parallelize` does unless told: it divides, and where a machine has too little memory, or graphs take values from outside, there is a plan all the same."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from xdsl.context import Context

from distir.dialects.errors import DistirError
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.equivalence import verify
from distir.interpreters.machines import load_machine
from distir.interpreters.simulate import simulate
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.ilp_shard import IlpShardPass
from tests.slow_machine import written
from tests.small_models import mlp
from tests.unit.pytorch.test_opaque_operations import loop_and_branch


def tiny(folder: Path) -> str:
    """A machine of which a device has 2 kB."""
    path = folder / "tiny.toml"
    text = Path(written(folder)).read_text(encoding="utf-8")
    changed = re.sub(r"(?<=memory_capacity_bytes = \{ value = )\d+", "2000", text)
    assert changed != text
    path.write_text(changed, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("degrees", [{"dp": 2}, {"tp": 2}, {"pp": 2, "microbatches": 2}])
def test_what_fits_no_device_is_written_all_the_same(
    degrees: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, machine = mlp(batch=8).module, tiny(tmp_path)
    module = source.clone()
    DtpParallelizePass(**degrees, machine=machine).apply(Context(), module)
    assert "more memory than" in capsys.readouterr().err
    assert verify(source, module, count=1).holds
    for asked in ({"sharding": "ilp"}, {"memory_limit": "2kB"}):
        with pytest.raises(DistirError, match="no sharding fits"):
            DtpParallelizePass(**degrees, machine=machine, **asked).apply(Context(), source.clone())


@pytest.mark.parametrize("degrees", [{"tp": 2}, {"dp": 2}, {"pp": 2}])
def test_the_time_of_graphs_is_what_was_said(degrees: dict[str, int], tmp_path: Path) -> None:
    """What a loop takes from outside is converted before it, which counts as for operands."""
    machine, module = written(tmp_path), loop_and_branch()
    prepare(Context(), module)
    plan = DtpParallelizePass(**degrees, machine=machine, batch="x:0")
    said = 0.0
    for each in plan.planning():
        each.apply(Context(), module)
        if isinstance(each, IlpShardPass):
            said = module.body.block.first_op.attributes["dist.seconds"].value.data  # pyright: ignore
    assert simulate(module, load_machine(machine)).makespan_seconds == pytest.approx(said, rel=1e-9)


class Queue(nn.Module):
    """Keys of the batch go into a queue of others, which is pushed on by as many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.last = nn.Linear(6, 4), nn.Linear(4, 4)
        self.register_buffer("queue", torch.randn(12, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys, queue = self.last(torch.relu(self.keys(x))), self.get_buffer("queue")
        with torch.no_grad():
            pushed = torch.cat([keys, queue[: -len(keys)]])
            queue.copy_(pushed)
        return keys


def test_rows_that_no_loop_can_join_are_in_one_microbatch(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = Queue()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    source = import_step(
        training_step(model, nn.functional.mse_loss, optimizer), (torch.randn(8, 6), torch.randn(8, 4))
    )
    module = source.clone()
    DtpParallelizePass(dp=2, pp=2, microbatches=2).apply(Context(), module)
    assert "one microbatch instead of 2: microbatch: %cat [12, 4]" in capsys.readouterr().err
    assert verify(source, module, count=1).holds


class Bags(nn.Module):
    """Words of all rows in one list, each row's where `offsets` says: what is computed for a row needs the whole list."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.EmbeddingBag(50, 16, mode="sum"), nn.Linear(16, 1)

    def forward(self, words: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.last(self.words(words, offsets))


def test_too_few_operations_of_rows_for_the_stages_are_in_one_microbatch(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = Bags()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randint(0, 50, (32,)), torch.arange(0, 32, 4), torch.rand(8, 1)
    module = import_step(training_step(model, nn.functional.mse_loss, optimizer), inputs)
    distributed = module.clone()
    DtpParallelizePass(dp=2, pp=2, microbatches=2).apply(Context(), distributed)
    assert "one microbatch instead of 2: cannot cut" in capsys.readouterr().err
    assert verify(module, distributed, count=1).holds
