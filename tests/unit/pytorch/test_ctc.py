"""The parts of connectionist temporal classification beside torch's kernels: losses and gradients on random sequences, with samples that have no
labels, no time, or more labels than time."""

import random

import pytest
import torch

from distir.frontends.pytorch.ctc import ctc_loss, ctc_loss_backward

aten = torch.ops.aten


@pytest.mark.parametrize("seed", range(40))
def test_parts_compute_what_the_kernels_do(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    times, samples, classes, longest = rng.randint(1, 9), rng.randint(1, 4), rng.randint(3, 6), rng.randint(1, 4)
    scores = torch.randn(times, samples, classes).double().log_softmax(-1)
    blank, zero_infinity = rng.randrange(classes), rng.random() < 0.5
    labels = torch.randint(0, classes - 1, (samples, longest))
    labels += labels >= blank
    steps, counts = [rng.randint(0, times) for _ in range(samples)], [rng.randint(0, longest) for _ in range(samples)]
    in_one_row = torch.cat([row[:count] for row, count in zip(labels, counts, strict=True)])
    options = blank, zero_infinity
    losses, beginnings = aten._ctc_loss(scores, labels, steps, counts, *options)
    gradient = torch.randn(samples).double()
    gradients = aten._ctc_loss_backward(gradient, scores, labels, steps, counts, losses, beginnings, *options)
    for targets, times_of, labels_of in (
        (labels, steps, counts),
        (in_one_row, steps, counts),
        (labels, torch.tensor(steps), torch.tensor(counts)),
    ):
        found, kept = ctc_loss(scores, targets, times_of, labels_of, *options)
        torch.testing.assert_close(found, losses, equal_nan=True)
        of_scores = ctc_loss_backward(gradient, scores, targets, times_of, labels_of, found, kept, *options)
        torch.testing.assert_close(of_scores, gradients, equal_nan=True)
