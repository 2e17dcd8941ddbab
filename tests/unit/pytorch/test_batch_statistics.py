"""Statistics of the batch that its rows are combined with: pipelines without microbatches have them, others are refused, and what the
refusal advises works."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.entry import arguments_of, entry_function
from distir.interpreters.equivalence import verify
from distir.interpreters.proof import prove
from distir.interpreters.shares import parameter_share, work_share
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.distribution.pipeline.stages import phase_of, stage_calls, stage_of
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare
from distir.passes.pipeline_stages import PipelineStagesPass


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.second(torch.relu(h - h.mean(0)))


class Shuffled(Centred):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)).flip(0))


def step(model: nn.Module) -> ModuleOp:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = training_step(model, nn.functional.mse_loss, optimizer)
    return import_step(step, (torch.randn(4, 6), torch.randn(4, 6)))


def test_statistics_are_made_inside_where_the_batch_is_one_part():
    """Both layers are in the forward part, one in each stage, and updates after it."""
    module = step(Centred())
    prepare(Context(), module)
    PipelineStagesPass(stages=2).apply(Context(), module)
    calls = [(phase_of(call), stage_of(call)) for call in stage_calls(entry_function(module))]
    found = [call for call in calls if call[0] != "before"]
    assert found == [("forward", 0), ("forward", 1), ("backward", 1), ("backward", 0), ("update", 0), ("update", 1)]


@pytest.mark.parametrize("model", [Centred, Shuffled])
def test_replicas_and_stages(model: type[nn.Module]):
    module = step(model())
    distributed = module.clone()
    DtpParallelizePass(dp=2, pp=2).apply(Context(), distributed)
    assert parameter_share(module, distributed) < 0.75
    assert verify(module, distributed, count=1).holds


@pytest.mark.parametrize("model", [Centred, Shuffled])
def test_what_a_refusal_advises_works(model: type[nn.Module]):
    module = step(model())
    options: dict[str, Any] = {"dp": 2, "pp": 2, "microbatches": 2, "sharding": "ilp"}
    with pytest.raises(DistirError) as refusal:
        DtpParallelizePass(**options).apply(Context(), module.clone())
    advised = dict(re.findall(r"(microbatches|sharding)=(\w+)", str(refusal.value)))
    assert advised
    options |= {name: int(value) if value.isdecimal() else value for name, value in advised.items()}
    distributed = module.clone()
    DtpParallelizePass(**options).apply(Context(), distributed)
    assert verify(module, distributed, count=1).holds


@pytest.mark.parametrize("model", [Centred, Shuffled])
def test_a_batch_that_cannot_be_cut_in_time_is_one_microbatch(
    model: type[nn.Module], capsys: pytest.CaptureFixture[str]
):
    module = step(model())
    distributed = module.clone()
    DtpParallelizePass(dp=2, pp=2, microbatches=2).apply(Context(), distributed)
    note = capsys.readouterr().err
    assert "one microbatch instead of 2: aten." in note
    assert parameter_share(module, distributed) < 0.75
    assert verify(module, distributed, count=1).holds


class Paired(Centred):
    """Two views of each row, one after the other."""

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(torch.cat([x, x.flip(1)])))
        return self.second(h)


def all_pairs(z: Tensor, label: Tensor) -> Tensor:
    z = nn.functional.normalize(z)
    return (z @ z.t()).logsumexp(1).mean() + (z[:4] * label).mean()


@pytest.mark.parametrize(("options", "count"), [({"dp": 2}, 2), ({"dp": 2}, 1), ({"tp": 2}, 2)])
def test_rows_of_two_views_leave_the_loop_together(options: dict[str, int], count: int):
    """A loss over all pairs is made after the loop, of both views of each row, which lie far from each other."""
    torch.manual_seed(0)
    model = Paired()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    module = import_step(training_step(model, all_pairs, optimizer), (torch.randn(4, 6), torch.randn(4, 6)))
    distributed = module.clone()
    DtpParallelizePass(pp=2, microbatches=count, divide=True, **options).apply(Context(), distributed)
    assert parameter_share(module, distributed) < 0.75
    assert verify(module, distributed, count=1).holds
    prepare(Context(), module)
    assert prove(module, distributed)


class Mixed(Centred):
    """Each row with another one of the batch: inputs are needed whole, and cut inside."""

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(0.7 * x + 0.3 * x.flip(0))))


def test_inputs_that_are_taken_whole_are_cut_inside():
    torch.manual_seed(0)
    model = Mixed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(z: Tensor, y: Tensor) -> Tensor:
        return (z - y - y.flip(0)).square().mean()

    module = import_step(training_step(model, loss, optimizer), (torch.randn(4, 6), torch.randn(4, 6)))
    distributed = module.clone()
    DtpParallelizePass(dp=2, microbatches=2).apply(Context(), distributed)
    assert work_share(module, distributed) < 0.75
    assert verify(module, distributed, count=1).holds


class OverEdges(nn.Module):
    """A graph: features of nodes, and edges as two rows of their numbers, which are no rows of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h = self.first(x)
        return self.second(torch.relu(torch.zeros_like(h).index_add(0, edges[1], h[edges[0]])))


def test_what_has_other_rows_is_not_of_the_batch():
    torch.manual_seed(0)
    model = OverEdges()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(8, 6), torch.randint(0, 8, (2, 12)), torch.randn(8, 6)
    module = import_step(training_step(model, nn.functional.mse_loss, optimizer), inputs)
    assert parse_batch("", entry_function(module)) == {i: 0 for i in batch_arguments(module, ("x", "label"))}
    distributed = module.clone()
    DtpParallelizePass(dp=4).apply(Context(), distributed)
    assert verify(module, distributed, count=1).holds


class LastState(nn.Module):
    """Sequences whose first dim is time, after a state of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.RNN(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        return self.head(self.cell(x, state)[0][-1])


def test_the_batch_is_found_behind_time_and_layers():
    torch.manual_seed(0)
    model = LastState()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(5, 4, 6), torch.randn(1, 4, 8), torch.randint(0, 3, (4,))
    module = import_step(training_step(model, nn.functional.cross_entropy, optimizer), inputs)
    ports, batch = arguments_of(entry_function(module)), parse_batch("", entry_function(module))
    assert sorted((ports[i].role, dim) for i, dim in batch.items()) == [("input", 1), ("input", 1), ("label", 0)]
    distributed = module.clone()
    DtpParallelizePass(dp=2, pp=2, microbatches=2).apply(Context(), distributed)
    assert work_share(module, distributed) < 0.5
    assert verify(module, distributed, count=1).holds


def test_first_dims_are_the_batch_where_other_dims_leave_it_open():
    """Two batches of other sizes with as many features, two dims that labels have too, and two matrices of a product."""
    for first, second in (((4, 6), (8, 6)), ((6, 4, 5), (4, 6, 1)), ((4, 6), (6, 8))):
        module = import_step(lambda a, b: a.sum() + b.sum(), (torch.ones(first), torch.ones(second)))
        assert parse_batch("", entry_function(module)) == {0: 0, 1: 0}


def batch_arguments(module: ModuleOp, names: tuple[str, ...]) -> list[int]:
    return [i for i, port in enumerate(arguments_of(entry_function(module))) if port.name in names]


def test_scales_for_each_row_are_made_by_the_stage_that_takes_them():
    """An instance norm repeats its scale for every row of the batch, which another stage than the first takes: where it is made, it must
    be known that each microbatch has its rows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.LeakyReLU(0.1))
    given = torch.randn(4, 3, 6, 6), torch.randn(4, 4, 4, 4)
    module = import_step(
        training_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1)), given
    )
    distributed = module.clone()
    DtpParallelizePass(dp=2, pp=2, microbatches=2).apply(Context(), distributed)
    assert verify(module, distributed, count=1).holds
