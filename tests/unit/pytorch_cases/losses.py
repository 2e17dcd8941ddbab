"""Steps with losses of every kind, and models that return more than a tensor."""

# pyright: basic, reportIncompatibleMethodOverride=false, reportCallIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportReturnType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distir.frontends.pytorch import training_step, written_step
from tests.unit.pytorch_cases.registry import case, classes, mlp, quick, values


class Margin(nn.Module):
    """A loss with parameters and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.centers = nn.Parameter(torch.randn(3, 3).double())
        self.register_buffer("seen", torch.zeros(3).double())

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        self.seen += F.one_hot(label, 3).sum(0)
        return F.cross_entropy(-torch.cdist(x, self.centers), label)


@case
@quick
def a_loss_with_parameters() -> Any:
    model, loss = mlp(), Margin()
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1)
    return training_step(model, loss, optimizer, example_args=classes())


@case
def a_loss_with_an_optimizer_of_its_own() -> Any:
    model, loss = mlp(), Margin()
    optimizers = [torch.optim.Adam(model.parameters()), torch.optim.SGD(loss.parameters(), lr=0.5)]
    return training_step(model, loss, optimizers, example_args=classes())


Pair = namedtuple("Pair", ["logits", "hidden"])


@dataclass
class Output:
    loss: Tensor
    logits: Tensor
    rest: Any = None


class Returning(nn.Module):
    def __init__(self, wrap: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.inside, self.wrap = mlp(), wrap

    def forward(self, x: Tensor) -> Any:
        y = self.inside(x)
        return self.wrap(y, y * 2)


@case
def a_model_that_returns_a_dictionary() -> Any:
    model = Returning(lambda y, z: {"logits": y, "more": [z, {"deep": y + z}]})
    return training_step(
        model,
        lambda out, y: F.cross_entropy(out["more"][1]["deep"], y),
        lambda p: torch.optim.SGD(p, lr=0.1),
        example_args=classes(),
    )


@case
def a_model_that_returns_a_named_tuple() -> Any:
    return training_step(
        Returning(Pair),
        lambda out, y: F.cross_entropy(out.logits, y),
        lambda p: torch.optim.SGD(p, lr=0.1),
        example_args=classes(),
    )


class OwnLoss(nn.Module):
    def __init__(self, wrap: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.inside, self.wrap = mlp(), wrap

    def forward(self, x: Tensor, labels: Tensor) -> Any:
        y = self.inside(x)
        return self.wrap(F.cross_entropy(y, labels), y)


@case
def a_model_whose_dictionary_has_the_loss() -> Any:
    return training_step(
        OwnLoss(lambda loss, y: {"loss": loss, "y": y}),
        None,
        lambda p: torch.optim.SGD(p, lr=0.1),
        example_args=classes(),
    )


@case
def a_model_whose_dataclass_has_the_loss() -> Any:
    return training_step(OwnLoss(Output), None, lambda p: torch.optim.SGD(p, lr=0.1), example_args=classes())


@case
def ignored_labels() -> Any:
    x, y = classes()
    y = torch.where(torch.arange(8) % 4 == 1, -100, y)
    return training_step(mlp(), F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.1), example_args=(x, y))


@case
def smoothed_and_weighted_labels() -> Any:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.1, 0.5, 2.0]).double(), label_smoothing=0.1)
    return training_step(mlp(), loss, lambda p: torch.optim.SGD(p, lr=0.1), example_args=classes())


@case
@quick
def ctc_loss() -> Any:
    """Of as many time steps and labels for each sample."""
    return labelled_sequences((7,) * 4, (3,) * 4)


@case
def ctc_loss_of_sequences_that_end() -> Any:
    return labelled_sequences((7, 5, 6, 7), (3, 0, 1, 2))


@case
def ctc_loss_with_lengths_as_tensors() -> Any:
    return labelled_sequences(torch.tensor([7, 5, 6, 7]), torch.tensor([3, 0, 1, 2]))


def labelled_sequences(steps: Any, counts: Any) -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Linear(6, 5).double()

        def forward(self, x: Tensor, labels: Tensor) -> Tensor:
            scores = self.inside(x).log_softmax(-1).transpose(0, 1)
            return F.ctc_loss(scores, labels, steps, counts)

    return training_step(
        Model(),
        None,
        lambda p: torch.optim.SGD(p, lr=0.1),
        example_args=(torch.randn(4, 7, 6).double(), torch.arange(12).reshape(4, 3) % 4 + 1),
    )


@case
def labels_that_end() -> Any:
    """A row has as many labels as stand before the first -1."""

    def loss(y: Tensor, label: Tensor) -> Tensor:
        second = torch.where(label > 0, -1, (label + 1) % 3)
        return F.multilabel_margin_loss(y, torch.stack([label, second, label * 0 - 1], 1))

    return training_step(mlp(), loss, lambda p: torch.optim.SGD(p, lr=0.1), example_args=classes())


@case
@quick
def a_loss_that_writes_to_numbers() -> Any:
    """Zeros that are written to, beside tensors of the model."""

    def loss(y: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(y, target, torch.where(target[:, 0] > 0, 1.0, -1.0))

    return training_step(mlp(), loss, lambda p: torch.optim.SGD(p, lr=0.1), example_args=values())


@case
def second_derivatives_of_each_row() -> Any:
    """Forward over reverse, and the gradient of both: autograd makes zeros of its own."""
    model = mlp(width=4, outputs=1)

    def laplacian(at: Tensor) -> Tensor:
        return torch.func.hessian(lambda point: model(point)[0])(at).diagonal().sum()

    return training_step(
        model,
        lambda y, at: (torch.func.vmap(laplacian)(at) - y[:, 0]).square().mean(),
        torch.optim.SGD(model.parameters(), lr=0.1),
        example_args=(torch.randn(8, 6).double(), torch.randn(8, 6).double()),
    )


@case
@quick
def a_square_that_is_kept() -> Any:
    """A parameter that nothing trains, of which a root is taken: drawn values would give no numbers."""
    model = mlp()
    squares = nn.ParameterList(torch.zeros_like(p) for p in model.parameters()).requires_grad_(False)

    def step(x: Tensor, label: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), label)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, gradient, square in zip(model.parameters(), gradients, squares, strict=True):
                square.mul_(0.9).addcmul_(gradient, gradient, value=0.1)
                p.sub_(0.1 * gradient / (square.sqrt() + 1e-6))
        return loss.detach()

    return written_step(step, {"model": model, "squares": squares}, example_args=classes())
