"""A weight that the first and the last stage use: its gradients meet once, after the loop over microbatches."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from xdsl.context import Context

from distir.dialects.dist import SendOp
from distir.frontends.pytorch import import_step, training_step, written_step
from distir.interpreters.entry import arguments_of, entry_function, results_of
from distir.interpreters.equivalence import verify
from distir.interpreters.reference import run
from distir.interpreters.shares import parameter_share
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.structure import shape_of
from tests.long_cases import also_long

BATCH, WORDS, WIDTH, SEQUENCE = 8, 11, 6, 4


class Tied(nn.Module):
    """Words to scores of words, by one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.middle = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scores = nn.Linear(WIDTH, WORDS, bias=False)
        self.scores.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores [batch, words] of words [batch, sequence]."""
        return self.scores(torch.tanh(self.middle(self.words(words).mean(1))))


@pytest.mark.parametrize("microbatches", also_long([2, 4], [4]))
def test_its_gradients_meet_once(microbatches: int) -> None:
    torch.manual_seed(0)
    model = Tied().double()
    example = torch.randint(0, WORDS, (BATCH, SEQUENCE)), torch.randint(0, WORDS, (BATCH,))
    step = training_step(model, cross_entropy, torch.optim.AdamW(model.parameters(), lr=0.1))
    sequential = import_step(step, example)
    inputs = dict(weights_of(sequential)) | {"words": example[0].numpy(), "label": example[1].numpy()}
    expected = run(sequential, inputs)
    module = sequential.clone()
    DtpParallelizePass(pp=2, microbatches=microbatches, schedule="1f1b").apply(Context(), module)
    found = run(module, inputs)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12)
    sent = [shape_of(op.input) for op in module.walk() if isinstance(op, SendOp)]
    # The weight, its gradient, and its update where that is made elsewhere.
    assert sent.count((WORDS, WIDTH)) <= 3
    assert sent.count((BATCH // microbatches, WIDTH)) >= 2 * microbatches  # activations and their gradients


class Masters(torch.optim.Optimizer):
    """Gradient descent on weights in double precision, of which the model has copies."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model.parameters(), {})
        for parameter in model.parameters():
            self.state[parameter] = {"master": parameter.detach().double()}

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # pyright: ignore
        for parameter, state in self.state.items():
            assert parameter.grad is not None
            parameter.copy_(state["master"].sub_(parameter.grad.double(), alpha=0.1))


def test_what_is_made_of_both_gradients_is_made_once() -> None:
    torch.manual_seed(0)
    model = Tied()
    optimizer = Masters(model)

    def step(words: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = cross_entropy(model(words), label)
        loss.backward()
        optimizer.step()
        return loss

    example = torch.randint(0, WORDS, (BATCH, SEQUENCE)), torch.randint(0, WORDS, (BATCH,))
    sequential = import_step(written_step(step, model, optimizer), example)
    inputs = dict(weights_of(sequential)) | {"words": example[0].numpy(), "label": example[1].numpy()}
    expected = run(sequential, inputs)
    DtpParallelizePass(pp=2, microbatches=4).apply(Context(), sequential)
    for name, value in run(sequential, inputs).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)
    sent = [shape_of(op.input) for op in sequential.walk() if isinstance(op, SendOp)]
    assert sent.count((WORDS, WIDTH)) <= 3  # the value, the gradient, and the update where that is made elsewhere


class Deep(nn.Module):
    """As many layers as its table weighs: the scores take about as long as the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(512, 64)
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8)])

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores [batch, word, words] of words [batch, word]."""
        return self.layers(self.words(words)) @ self.words.weight.t()


@pytest.mark.parametrize("sharding", ["auto", pytest.param("ilp", marks=pytest.mark.long)])
def test_it_lives_where_parameters_are_even(sharding: str) -> None:
    """On the last stage, which the layers are not on: the first receives it, and sends its gradient."""
    torch.manual_seed(0)
    model = Deep()
    words = torch.randint(0, 512, (8, 32))
    step = training_step(
        model, lambda x, y: cross_entropy(x.flatten(0, 1), y.flatten()), torch.optim.SGD(model.parameters(), 0.1)
    )
    sequential = import_step(step, (words, words))
    module = sequential.clone()
    DtpParallelizePass(dp=2, pp=2, microbatches=2, sharding=sharding, time_limit=2).apply(Context(), module)
    assert verify(sequential, module, count=1).holds
    assert (
        parameter_share(sequential, module) < 0.65
    )  # 0.87 where the first stage has it; two of the layers are on the last, for time
    parts = [
        {port.type for port in ports(entry_function(module)) if port.name == "words.weight"}
        for ports in (arguments_of, results_of)
    ]
    assert parts[0] == parts[1]
