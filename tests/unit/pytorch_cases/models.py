"""Steps of models that write, draw, remember or look up."""

# pyright: basic, reportIncompatibleMethodOverride=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportReturnType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from distir.frontends.pytorch import training_step
from tests.unit.pytorch_cases.registry import CASES, REFUSED, case, classes, classifier, mlp, quick, refused


def model_case(
    name: str, make: Callable[[], nn.Module], example: Callable[[], tuple[Tensor, Tensor]], loss: Any
) -> None:
    CASES[name] = lambda: training_step(
        make().double(), loss, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), example_args=example()
    )


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 3, 8, 8).double(), torch.arange(4) % 3


def tokens() -> tuple[Tensor, Tensor]:
    return torch.arange(20).reshape(4, 5) % 7, torch.arange(4) % 3


class Bag(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag, self.last = nn.EmbeddingBag(7, 4, mode=mode), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.bag(x))


class FlatBag(Bag):
    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.bag(x.flatten(), torch.arange(0, x.numel(), x.shape[1])))


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.tokens, self.inside, self.last = nn.Embedding(7, 4), kind(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.inside(self.tokens(x))[0][:, -1])


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.cell, self.last = nn.Embedding(7, 4), nn.LSTMCell(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], 5, dtype=torch.float64)
        for t in range(x.shape[1]):
            h, c = self.cell(self.tokens(x[:, t]), (h, c))
        return self.last(h)


class Scattered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Parameter(torch.randn(7, 4)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.table.clone()
        rows[x[:, 0]] = self.table[x[:, 1]] * 2
        rows = rows.index_add(0, x[:, 2], self.table[x[:, 3]])
        return self.last(rows[x].mean(1))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w**3

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, w = ctx.saved_tensors
        (g,) = gradients
        return g * w**3, (g * x * 3 * w**2).sum(0) * 0.5


bound = Cube.apply


class Custom(nn.Module):
    def __init__(self, apply: Any) -> None:
        super().__init__()
        self.first, self.scale, self.apply_it = nn.Linear(6, 3), nn.Parameter(torch.ones(3)), apply

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_it(self.first(x), self.scale)


class Sharp(nn.Module):
    """Straight-through rounding, and a target that is detached."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inside(x)
        return y + ((y * 4).round() / 4 - y).detach()


class Random(nn.Module):
    def __init__(self, draw: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inside, self.draw = nn.Linear(6, 3), draw

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(self.draw(x))


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h[:, :2] *= 2.0
        h[:, 3] = x[:, 0]
        F.relu(h, inplace=True)
        return self.last(h + 1)


model_case(
    "batch_norm",
    lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Flatten(), nn.Linear(144, 3)),
    images,
    F.cross_entropy,
)
model_case(
    "group_norm_and_pooling",
    lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    ),
    images,
    F.cross_entropy,
)
model_case(
    "instance_norm_with_statistics",
    lambda: nn.Sequential(nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.Flatten(), nn.Linear(192, 3)),
    images,
    F.cross_entropy,
)
model_case(
    "cumulative_batch_norm",
    lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3)),
    classes,
    F.cross_entropy,
)
model_case("bag_of_sums", lambda: Bag("sum"), tokens, F.cross_entropy)
model_case("bag_of_means", lambda: Bag("mean"), tokens, F.cross_entropy)
model_case("bag_of_maxima", lambda: Bag("max"), tokens, F.cross_entropy)
model_case("bag_of_sequences", lambda: FlatBag("mean"), tokens, F.cross_entropy)
model_case("lstm", lambda: Recurrent(nn.LSTM), tokens, F.cross_entropy)
model_case("gru", lambda: Recurrent(nn.GRU), tokens, F.cross_entropy)
model_case("rnn", lambda: Recurrent(nn.RNN), tokens, F.cross_entropy)
model_case("lstm_cells", Cells, tokens, F.cross_entropy)
model_case("index_put", Scattered, tokens, F.cross_entropy)
model_case("custom_function", lambda: Custom(Cube.apply), classes, F.cross_entropy)
model_case("custom_function_bound_before", lambda: Custom(bound), classes, F.cross_entropy)
model_case("straight_through", Sharp, classes, F.cross_entropy)
model_case("writes_in_place", InPlace, classes, F.cross_entropy)
model_case(
    "dropout", lambda: nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.3), nn.Linear(5, 3)), classes, F.cross_entropy
)
model_case("random_integers", lambda: Random(lambda x: x * torch.randint(0, 5, x.shape)), classes, F.cross_entropy)
model_case("random_integers_like", lambda: Random(lambda x: x * torch.randint_like(x, 2, 5)), classes, F.cross_entropy)
model_case("random_permutation", lambda: Random(lambda x: x[:, torch.randperm(6)]), classes, F.cross_entropy)
model_case(
    "random_exponentials", lambda: Random(lambda x: x + torch.empty_like(x).exponential_()), classes, F.cross_entropy
)
model_case("gumbel_softmax", lambda: Random(lambda x: F.gumbel_softmax(x)), classes, F.cross_entropy)
model_case("rrelu", lambda: Random(lambda x: F.rrelu(x, training=True)), classes, F.cross_entropy)
model_case("alpha_dropout", lambda: Random(lambda x: F.alpha_dropout(x, 0.3, training=True)), classes, F.cross_entropy)
model_case(
    "transformer",
    lambda: nn.Sequential(
        nn.Linear(6, 8),
        nn.Unflatten(1, (2, 4)),
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        nn.Flatten(),
        nn.Linear(8, 3),
    ),
    classes,
    F.cross_entropy,
)
model_case(
    "tied_embedding_with_padding",
    lambda: nn.Sequential(nn.Embedding(7, 4, padding_idx=0), nn.Flatten(), nn.Linear(20, 3)),
    tokens,
    F.cross_entropy,
)
model_case(
    "embedding_scaled_by_how_often",
    lambda: nn.Sequential(nn.Embedding(7, 4, padding_idx=0, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(20, 3)),
    tokens,
    F.cross_entropy,
)
model_case(
    "embedding_with_a_largest_norm",
    lambda: nn.Sequential(nn.Embedding(7, 4, max_norm=0.5), nn.Flatten(), nn.Linear(20, 3)),
    tokens,
    F.cross_entropy,
)


@case
def a_compiled_model() -> Any:
    return classifier(lambda p: torch.optim.SGD(p, lr=0.1), torch.compile(mlp()))  # type: ignore[arg-type]


@case
def a_compiled_part() -> Any:
    model = mlp()
    model[0] = torch.compile(model[0])  # type: ignore[assignment]
    return classifier(lambda _: torch.optim.SGD(model.parameters(), lr=0.1), model)


class Counting(nn.Module):
    """Warms up by a number of its own."""

    def __init__(self, matters: bool) -> None:
        super().__init__()
        self.inside, self.calls, self.matters = mlp(), 0, matters

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.inside(x) * (min(1.0, self.calls / 10) if self.matters else 1.0)


@case
@refused("changes Counting.calls, which its next run reads")
def a_counter_that_matters() -> Any:
    return classifier(lambda p: torch.optim.SGD(p, lr=0.1), Counting(True))


@case
def a_counter_that_does_not_matter() -> Any:
    return classifier(lambda p: torch.optim.SGD(p, lr=0.1), Counting(False))


class Carrying(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.before = nn.Linear(6, 3).double(), None

    def forward(self, x: Tensor) -> Tensor:
        y = self.inside(x)
        y = y if self.before is None else y + self.before
        self.before = y.detach()
        return y


@case
@refused("changes Carrying.before")
def a_carried_activation() -> Any:
    return classifier(lambda p: torch.optim.SGD(p, lr=0.1), Carrying())


class Lucky(nn.Module):
    """Leaves a layer out by a number of Python's."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x) if random.random() < 2 else x


@case
@quick
@refused(r"draws numbers by random, .*: draw them with torch.rand")
def numbers_drawn_by_python() -> Any:
    return classifier(lambda p: torch.optim.SGD(p, lr=0.1), Lucky())


class Recomputed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.inside = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.inside, self.first(x), use_reentrant=True)


model_case("reentrant_checkpoints", Recomputed, classes, F.cross_entropy)
model_case(
    "sparse_gradients",
    lambda: nn.Sequential(nn.Embedding(7, 4, sparse=True), nn.Flatten(), nn.Linear(20, 3)),
    tokens,
    F.cross_entropy,
)
REFUSED["sparse_gradients"] = "sparse"


class Waves(nn.Module):
    """Complex parameters and a Fourier transform."""

    def __init__(self) -> None:
        super().__init__()
        self.filter, self.last = nn.Parameter(torch.ones(4, dtype=torch.complex128)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.fft.irfft(torch.fft.rfft(x) * self.filter, n=6))


@case
def complex_parameters() -> Any:
    model = Waves()
    model.last.double()
    return classifier(lambda p: torch.optim.Adam(p, lr=0.01), model)


class Looking(nn.Module):
    """Uses the gradient of an activation, and a mask made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(torch.tanh(self.inside(x)).sum(), x, create_graph=True)
        return self.inside(x * slope)


model_case("gradients_in_the_model", Looking, classes, F.cross_entropy)


class Experts(nn.Module):
    """Rows sorted by expert, and one product per group of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts, self.last = nn.Linear(8, 4), nn.Parameter(torch.randn(4, 8, 8)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        weight, expert = self.router(x).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        ends = torch.nn.functional.one_hot(expert, 4).sum(0).cumsum(0).to(torch.int32)
        found = F.grouped_mm(x[order], self.experts, offs=ends)
        return self.last(torch.zeros_like(x).index_put((order,), found) * weight[:, None])


@case
def experts_of_sorted_rows() -> Any:
    example = torch.randn(8, 8), torch.arange(8) % 3
    return training_step(Experts(), F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.1), example_args=example)


REFUSED["cumulative_batch_norm"] = "it reads the value of a tensor as a number"
