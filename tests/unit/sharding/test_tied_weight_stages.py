"""A weight that the first and the last stage use: its gradients meet once, after the loop over microbatches."""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from xdsl.context import Context

from distir.dialects.dist import SendOp
from distir.frontends.pytorch import import_step, training_step
from distir.interpreters.reference import run
from distir.interpreters.weights import weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.structure import shape_of

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


def test_its_gradients_meet_once() -> None:
    torch.manual_seed(0)
    model = Tied().double()
    example = torch.randint(0, WORDS, (BATCH, SEQUENCE)), torch.randint(0, WORDS, (BATCH,))
    step = training_step(model, cross_entropy, torch.optim.AdamW(model.parameters(), lr=0.1))
    sequential = import_step(step, example)
    inputs = dict(weights_of(sequential)) | {"words": example[0].numpy(), "label": example[1].numpy()}
    expected = run(sequential, inputs)
    for microbatches in (2, 4):
        module = sequential.clone()
        DtpParallelizePass(pp=2, microbatches=microbatches, schedule="1f1b").apply(Context(), module)
        found = run(module, inputs)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-12, atol=1e-12)
        sent = [shape_of(op.input) for op in module.walk() if isinstance(op, SendOp)]
        assert (
            sent.count((WORDS, WIDTH)) == 2
        )  # the weight itself, for the backward part of the last stage, and its gradients
        assert (
            sent.count((BATCH // microbatches, WIDTH)) >= 2 * microbatches
        )  # activations and their gradients, of every microbatch
