"""Connectionist temporal classification in parts. In go the operands of `aten._ctc_loss` or of its gradient; out
come the results, made of elementwise operators, gathers and one recursion over time each.

Their kernels check no labels and no lengths, and the shapes of their results depend on values, so no program has them. The recursions are those
of Graves et al. (2006, section 4.1) over labels with a blank before, between and behind them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

Lengths = Tensor | Sequence[int]
_INFINITY = float("inf")


@contextmanager
def sequence_losses() -> Generator[None]:
    """`ctc_loss` is a function of the losses of samples meanwhile: torch's own reads its lengths as it is traced."""
    library = torch.library.Library("aten", "IMPL")
    for overload in ("IntList", "Tensor"):
        library.impl(f"ctc_loss.{overload}", _reduced, "AutogradCPU")
    try:
        yield
    finally:
        library._destroy()  # pyright: ignore[reportPrivateUsage]


def _reduced(
    scores: Tensor,
    targets: Tensor,
    steps: Lengths,
    counts: Lengths,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    is_batch = scores.dim() == 3
    batch = scores if is_batch else scores.unsqueeze(1)
    if isinstance(steps, Tensor) != isinstance(counts, Tensor):
        steps, counts = torch.as_tensor(steps), torch.as_tensor(counts)
    if isinstance(steps, Tensor) and isinstance(counts, Tensor):
        steps, counts = steps.reshape(-1), counts.reshape(-1)
    losses, _ = torch.ops.aten._ctc_loss(batch, targets, steps, counts, blank, zero_infinity)
    if zero_infinity:
        losses = torch.where(losses == _INFINITY, 0, losses)
    if reduction == 1:
        return (losses / _column(counts).reshape(-1).clamp(min=1)).mean()
    return losses.sum() if reduction == 2 else losses if is_batch else losses.squeeze(0)


def ctc_loss(
    scores: Tensor, targets: Tensor, steps: Lengths, counts: Lengths, blank: int = 0, zero_infinity: bool = False
) -> tuple[Tensor, Tensor]:
    """The loss of each sample, and by sample, time and label the logarithm of how probable the beginnings of sequences are."""
    states = _States.of(scores, targets, steps, counts, blank)
    if states is None:
        return NotImplemented
    here = torch.where(states.places <= torch.where(states.counts > 0, 1, 0), states.scores[0], -_INFINITY)
    reached = [here]
    for now in states.scores[1:]:
        two = torch.where(states.skips, _later(here, 2), -_INFINITY)
        here = _log_sum(here, _later(here, 1), two) + now
        reached.append(here)
    beginnings = torch.stack(reached, 1)
    last = states.ends.unsqueeze(1) & (torch.arange(len(reached)).reshape(1, -1, 1) == states.steps.unsqueeze(2) - 1)
    highest = torch.where(last, beginnings, -_INFINITY).amax((1, 2))
    finite = torch.where(highest == -_INFINITY, 0, highest).reshape(-1, 1, 1)
    ended = torch.where(last, (beginnings - finite).exp(), 0).sum((1, 2)).log() + finite.reshape(-1)
    is_empty = (states.steps == 0).reshape(-1)  # no time: certain if there are no labels
    without = torch.where(states.counts > 0, _INFINITY, 0.0).to(scores.dtype).reshape(-1)
    return torch.where(is_empty, without, -ended), beginnings


def ctc_loss_backward(
    gradient: Tensor,
    scores: Tensor,
    targets: Tensor,
    steps: Lengths,
    counts: Lengths,
    losses: Tensor,
    beginnings: Tensor,
    blank: int,
    zero_infinity: bool = False,
) -> Tensor:
    """The gradient by the scores, which are taken for logarithms of probabilities that sum to one, as the kernel takes them."""
    states = _States.of(scores, targets, steps, counts, blank)
    if states is None:
        return NotImplemented
    here = torch.full_like(states.scores[0], -_INFINITY)
    reached: list[Tensor] = []
    for time in reversed(range(len(states.scores))):
        now, left = states.scores[time], states.steps - 1 - time
        two = _earlier(torch.where(states.skips, here, -_INFINITY), 2)
        further = torch.where(left > 0, _log_sum(here, _earlier(here, 1), two), -_INFINITY)
        here = torch.where(states.ends & (left == 0), 0, further) + now
        reached.append(here)
    both = beginnings.transpose(0, 1) + torch.stack(reached[::-1])
    of_state = torch.where(both == -_INFINITY, 0, (both + losses.unsqueeze(1) - states.scores).exp())
    labels = states.labels.expand(both.shape)
    of_label = torch.zeros_like(scores).scatter_add(2, labels, of_state)
    times = torch.arange(len(states.scores)).reshape(-1, 1, 1)
    found = (scores.exp() - of_label) * gradient.unsqueeze(1)
    found = torch.where((losses == _INFINITY).unsqueeze(1), 0.0 if zero_infinity else float("nan"), found)
    return torch.where(times < states.steps, found, 0)


class _States:
    """The labels of each sample with blanks, `labels` [samples, states], and the scores that they have, [time, samples, states]."""

    def __init__(self, scores: Tensor, labels: Tensor, steps: Tensor, counts: Tensor):
        self.labels, self.steps, self.counts = labels, steps, counts
        self.scores = scores.gather(2, labels.expand(scores.shape[0], *labels.shape))
        self.places = torch.arange(labels.shape[1])
        self.ends = (self.places == 2 * counts) | (self.places == 2 * counts - 1)
        other = labels[:, 2:] != labels[:, :-2]
        self.skips = torch.nn.functional.pad(other, [2, 0])[:, : labels.shape[1]]
        """Whether a state may follow the one two before it."""

    @staticmethod
    def of(scores: Tensor, targets: Tensor, steps: Lengths, counts: Lengths, blank: int) -> _States | None:
        """None for labels in one row that only values divide into samples."""
        samples = scores.shape[1]
        if targets.dim() == 1:
            if isinstance(counts, Tensor):
                return None
            longest, parts = max(counts, default=0), targets.split(list(counts))
            padded = [torch.nn.functional.pad(part, [0, longest - len(part)]) for part in parts]
            targets = torch.stack(padded) if padded else targets.new_zeros([0, 0])
        elif not isinstance(counts, Tensor):
            targets = targets[:, : max(counts, default=0)]
        by_sample = _column(counts)
        known = torch.where(torch.arange(targets.shape[1]) < by_sample, targets, blank)
        blanks = torch.full_like(known, blank)
        labels = torch.stack([blanks, known], 2).reshape(samples, 2 * targets.shape[1])
        last = torch.full([samples, 1], blank, dtype=labels.dtype)
        return _States(scores, torch.cat([labels, last], 1), _column(steps), by_sample)


def _column(lengths: Lengths) -> Tensor:
    """Of each sample, or one for all where they are known to be equal."""
    if isinstance(lengths, Tensor):
        return lengths.unsqueeze(1)
    return torch.tensor([*lengths][:1] if len({*lengths}) == 1 else [*lengths]).unsqueeze(1)


def _later(x: Tensor, by: int) -> Tensor:
    """Each state has what the one so many before it had."""
    return torch.nn.functional.pad(x, [by, 0], value=-_INFINITY)[:, : x.shape[1]]


def _earlier(x: Tensor, by: int) -> Tensor:
    return torch.nn.functional.pad(x, [0, by], value=-_INFINITY)[:, by:]


def _log_sum(*logarithms: Tensor) -> Tensor:
    """The logarithm of the sum of what these are the logarithms of."""
    together = torch.stack(logarithms)
    highest = together.amax(0)
    finite = torch.where(highest == -_INFINITY, 0, highest)
    return (together - finite).exp().sum(0).log() + finite
