"""The order in which the original runs stages: its PipeDream scheduler, which alternates forward and backward on each
device, lowest microbatch first, and does not limit how many microbatches are in flight. Time goes in steps, and what a
step makes is available in the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """A piece of the program on one device of the pipeline, for every microbatch."""

    index: int
    """In the order of the chain: stage i needs stage i - 1."""
    device: int
    is_backward: bool = False


def schedule(stages: Sequence[Stage], microbatches: int) -> list[list[tuple[Stage, int]]]:
    """Per step, what runs: (stage, microbatch), by device. The stages are a chain: of forward and backward stages, a
    backward stage also needs its forward stage, which comes earlier in the chain."""
    ready: dict[int, list[tuple[Stage, int]]] = {stage.device: [] for stage in stages}
    ready[stages[0].device] = [(stages[0], microbatch) for microbatch in range(microbatches)]
    was_backward = dict.fromkeys(ready, True)
    steps: list[list[tuple[Stage, int]]] = []
    while any(ready.values()):
        step = [_next(ready[device], was_backward, device) for device in sorted(ready) if ready[device]]
        for stage, microbatch in step:
            ready[stage.device].remove((stage, microbatch))
            if stage.index + 1 < len(stages):
                following = stages[stage.index + 1]
                ready[following.device].append((following, microbatch))
        steps.append(step)
    return steps


def _next(ready: Sequence[tuple[Stage, int]], was_backward: dict[int, bool], device: int) -> tuple[Stage, int]:
    """The other kind than last time if any is ready, of the lowest microbatch."""
    kinds = {stage.is_backward for stage, _ in ready}
    wanted = not was_backward[device]
    was_backward[device] = wanted if wanted in kinds else not wanted
    return min((r for r in ready if r[0].is_backward == was_backward[device]), key=lambda r: r[1])
