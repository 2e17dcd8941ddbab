"""Gradient scalers. In goes a `torch.amp.GradScaler`; out come its scale and how often it did not overflow, as
tensors that a step remembers. An optimizer's step whose gradients are not finite changes nothing."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor


class ScalerMemory:
    """What one scaler remembers."""

    def __init__(self, scaler: Any) -> None:
        self.scaler = scaler

    def ports(self) -> list[tuple[str, str, Tensor]]:
        """Name, role and value of each."""
        scale, tracker = self.scaler._scale, self.scaler._growth_tracker
        scale = torch.tensor(self.scaler._init_scale, dtype=torch.float32) if scale is None else scale.detach().cpu()
        tracker = (
            torch.tensor(self.scaler._init_growth_tracker, dtype=torch.int32) if tracker is None else tracker.cpu()
        )
        return [("scaler.scale", "state", scale), ("scaler.growth_tracker", "state", tracker)]

    @contextmanager
    def standing(self, tensors: Mapping[str, Tensor]) -> Generator[None]:
        """The scaler has these meanwhile."""
        scaler = self.scaler
        before, states = dict(vars(scaler)), dict(scaler._per_optimizer_states)
        try:
            scaler._scale, scaler._growth_tracker = tensors["scaler.scale"], tensors["scaler.growth_tracker"]
            scaler._maybe_opt_step = _step_where_finite
            yield
        finally:
            vars(scaler).clear()
            vars(scaler).update(before)
            scaler._per_optimizer_states.clear()
            scaler._per_optimizer_states.update(states)

    def updates(self) -> dict[tuple[str, str], Tensor]:
        """What they are after the step."""
        scaler = self.scaler
        return {
            ("scaler.scale", "state"): scaler._scale,
            ("scaler.growth_tracker", "state"): scaler._growth_tracker,
        }


def _step_where_finite(optimizer: torch.optim.Optimizer, optimizer_state: Any, *args: Any, **kwargs: Any) -> Any:
    """The optimizer's step, after which all that it writes to is as before where a gradient was not finite."""
    overflowed = sum(cast("dict[Any, Tensor]", optimizer_state["found_inf_per_device"]).values())
    kept = cast(Tensor, overflowed) > 0
    written = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    written += [t for entry in optimizer.state.values() for t in entry.values() if isinstance(t, Tensor)]
    with torch.no_grad():
        before = [tensor.clone() for tensor in written]
    found = optimizer.step(*args, **kwargs)
    with torch.no_grad():
        for tensor, old in zip(written, before, strict=True):
            tensor.copy_(torch.where(kept, old, tensor))
    return found


def unscale(gradients: Sequence[Tensor], found_inf: Tensor, inverse: Tensor) -> None:
    """`aten._amp_foreach_non_finite_check_and_unscale_`."""
    for gradient in gradients:
        found_inf.copy_(torch.maximum(found_inf, (~torch.isfinite(gradient)).any().to(found_inf.dtype)))
        gradient.mul_(inverse.to(gradient.dtype))


def update_scale(
    scale: Tensor, tracker: Tensor, found_inf: Tensor, growth: float, backoff: float, interval: int
) -> Tensor:
    """`aten._amp_update_scale_`: less after an overflow, more after `interval` steps without one, unless that is not finite."""
    overflowed, is_due = found_inf > 0, tracker + 1 == interval
    grown = scale * growth
    grown = torch.where(is_due & torch.isfinite(grown), grown, scale)
    counted = torch.where(overflowed | is_due, torch.zeros_like(tracker), tracker + 1)
    scale.copy_(torch.where(overflowed, scale * backoff, grown))
    tracker.copy_(counted)
    return scale
