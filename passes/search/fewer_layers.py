"""Recomputation of no more layers than memory asks for. In go a plan that repeats all layers, what its devices hold, and what stages keep by each policy;
out come policies that repeat fewer layers of each stage, down from those that likely just fit. Earlier stages have more microbatches in flight, and repeat more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from distir.passes.distribution.pipeline.tasks import table_of
from distir.passes.search.configurations import Configuration
from distir.passes.search.plan_bounds import PlanBounds

MOST_TRIED = 4
"""Numbers of layers that are tried of one plan."""


class FewerLayers:
    """The policies of one plan. What a layer more takes is found by what stages keep; what is left, by what devices hold under the policy before."""

    def __init__(self, bounds: PlanBounds, c: Configuration):
        self.configuration = c
        kept = [
            [stage.kept for stage in bounds.stages(replace(c, recompute=policy))]
            for policy in ("none", f"{c.recompute}:1", c.recompute)
        ]
        flying = table_of(c.schedule, c.pp, c.microbatches, len(kept[0])).in_flight()
        devices = c.dp * c.cp * c.tp
        self.bytes_each = [
            (none - one) * microbatches / c.microbatches / devices
            for none, one, microbatches in zip(kept[0], kept[1], flying, strict=True)
        ]
        """By stage, what a device likely holds for a layer that is not repeated, of all microbatches in flight."""
        self.counts = tuple(
            round((none - every) / (none - one)) if none > one else 0 for none, one, every in zip(*kept, strict=True)
        )
        """The layers of each stage that are repeated, under the last policy that fits."""
        self.ranks = bounds.stages_of_ranks(c, len(kept[0]))
        self._tried, self._share = {self.counts}, 1.0

    def next(self, peaks: Mapping[int, int], limit: int) -> tuple[int, ...] | None:
        """Fewer layers, where the last that fit hold `peaks` bytes on each device and may hold so many; None where no other are left."""
        c, fewer = self.configuration, list(self.counts)
        of_rank = c.dp * c.cp * c.tp
        for rank, stages in enumerate(self.ranks):
            left = (limit - max(peaks.get(rank * of_rank + i, 0) for i in range(of_rank))) * self._share
            for stage in (stage for stage in stages if self.bytes_each[stage] > 0):
                spared = max(0, min(fewer[stage], int(left / self.bytes_each[stage])))
                fewer[stage] -= spared
                left -= spared * self.bytes_each[stage]
        if (counts := tuple(fewer)) in self._tried or not any(counts):
            return None
        self._tried.add(counts)
        return counts

    def note(self, counts: tuple[int, ...], fits: bool) -> None:
        """What became of such a plan; where it does not fit, layers take more than they seem to."""
        if fits:
            self.counts = counts
        else:
            self._share /= 2

    def policy(self, counts: tuple[int, ...]) -> str:
        """That repeats so many layers of each stage."""
        return f"{self.configuration.recompute}:{'/'.join(map(str, counts if len({*counts}) > 1 else counts[:1]))}"
