"""Averages of weights by `torch.optim.swa_utils.AveragedModel`: the first update copies, all later ones average. In
goes an update while a step is traced; out come both results and a choice between them, by the buffer that counts updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.optim import swa_utils


def choosing_averages() -> Any:
    """A context in which averages are updated so."""
    return patch.object(swa_utils.AveragedModel, "update_parameters", _update)


@torch.no_grad()
def _update(self: Any, model: nn.Module) -> None:
    """As `AveragedModel.update_parameters`."""
    own = list(chain(self.module.parameters(), self.module.buffers()) if self.use_buffers else self.parameters())
    theirs = [*model.parameters(), *(model.buffers() if self.use_buffers else ())]
    is_first = self.n_averaged == 0
    for mine, given, mean in zip(own, theirs, _means(self, own, theirs), strict=False):
        mine.detach().copy_(torch.where(is_first, given.detach().to(mean.dtype), mean))
    if not self.use_buffers:
        for mine, given in zip(self.module.buffers(), model.buffers(), strict=True):
            mine.detach().copy_(given.detach())
    self.n_averaged += 1


def _means(average: Any, own: Sequence[Tensor], theirs: Sequence[Tensor]) -> list[Tensor]:
    """What an update that is not the first gives each tensor."""
    copies, given = [each.detach().clone() for each in own], [each.detach() for each in theirs]
    if (several := average.multi_avg_fn) is None:
        one = cast("Callable[[Tensor, Tensor, Tensor], Tensor]", average.avg_fn or swa_utils.get_swa_avg_fn())
        return [one(mine, other, average.n_averaged) for mine, other in zip(copies, given, strict=False)]
    for dtype in dict.fromkeys(each.dtype for each in copies):
        places = [i for i, each in enumerate(copies) if each.dtype == dtype]
        several([copies[i] for i in places], [given[i] for i in places], average.n_averaged)
    return copies
