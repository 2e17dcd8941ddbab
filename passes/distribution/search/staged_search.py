"""The search over plans that the pipeline of passes makes: in go a model and configurations, out come the figures of the program that
`dtp-parallelize{sharding=ilp grouped=true}` writes for each. Nothing else is simulated, and the best plan's text is that program.

Configurations are looked at in the order of what they can reach at most, until no other can be among the fastest."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.interpreters.machines import Machine, load_machine
from distir.interpreters.simulate import SummaryMemo, summarize
from distir.interpreters.work import Kind
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.search.best_first import BestFirst
from distir.passes.distribution.search.configurations import Configuration, Figures, Outcome
from distir.passes.distribution.search.representative import figures_of_program
from distir.passes.dtp_parallelize import DtpParallelizePass, prepare, preparing
from distir.passes.sharding_search.search import NothingFits

SECONDS_PER_PLAN = 60.0
"""For choosing the sharding of one plan: what is best is proven if that is enough, and otherwise the best that was found."""


@dataclass
class StagedSearch:
    """Evaluates configurations of one model. `bind(batch)` gives the level 1 program at a batch size, afresh; `machine` is a name or a path."""

    bind: Callable[[int], ModuleOp]
    machine_name: str
    cost_model: str
    memory_limit_bytes: int
    batch: str = ""
    overlap: bool = False
    wanted: int = 0
    """How many of the fastest plans are wanted; 0: the figures of all."""
    divides: bool = False
    """Whether each plan divides first (`ilp-shard{divide}`)."""
    _bases: dict[int, ModuleOp] = field(default_factory=dict[int, ModuleOp])
    _sharded: dict[tuple[int, ...], ModuleOp | DistirError] = field(
        default_factory=dict[tuple[int, ...], "ModuleOp | DistirError"]
    )
    """The last program before its schedule, which does not depend on that."""
    _seconds: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])
    _memo: SummaryMemo = field(default_factory=SummaryMemo)

    @cached_property
    def machine(self) -> Machine:
        return load_machine(self.machine_name)

    def base(self, batch: int) -> ModuleOp:
        """The annotated program at a batch size."""
        if batch not in self._bases:
            self._bases[batch] = self.bind(batch)
            prepare(Context(), self._bases[batch])
        return self._bases[batch]

    def passes(self, c: Configuration) -> DtpParallelizePass:
        """The pass that writes a configuration's program."""
        return DtpParallelizePass(
            dp=c.dp,
            tp=c.tp,
            pp=c.pp,
            microbatches=c.microbatches,
            schedule=c.schedule,
            batch=self.batch,
            machine=self.machine_name,
            cost_model=self.cost_model,
            overlap=self.overlap,
            sharding="ilp",
            memory_limit=str(self.memory_limit_bytes),
            restrict="dp=batch",
            time_limit=SECONDS_PER_PLAN,
            grouped=True,
            divide=self.divides,
        )

    def program(self, c: Configuration) -> ModuleOp:
        """The distributed program of a configuration. Raises DistirError where none fits, or the rules or the batch forbid it."""
        passes = self.passes(c).pipeline()[len(preparing()) :]
        last = next(i for i, each in enumerate(passes) if isinstance(each, ApplyShardingPass)) + 1
        key = (c.batch, c.dp, c.tp, c.pp, c.microbatches)
        if key not in self._sharded:
            self._sharded.clear()
            module = self.base(c.batch).clone()
            try:
                with contextlib.redirect_stderr(io.StringIO()):  # notes on plans that nobody may take
                    for each in passes[:last]:
                        each.apply(Context(), module)
                self._sharded[key] = module
            except DistirError as error:
                self._sharded[key] = error
        if isinstance(found := self._sharded[key], DistirError):
            raise found
        module = found.clone()
        for each in passes[last:]:
            each.apply(Context(), module)
        return module

    def outcomes(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        """Simulates all configurations that are wanted."""
        queue = BestFirst(self.wanted or len(configurations) + 1)
        for c in configurations:
            queue.add({c: self.least_seconds(c) if self.wanted else 0.0})
        while (found := queue.next()) is not None:
            for c in found[1]:
                yield queue.note(self.evaluate(c))
        yield from queue.slower()

    def evaluate(self, c: Configuration) -> Outcome:
        """Simulates one configuration."""
        try:
            figures = self._figures(self.program(c))
        except NothingFits as error:
            least, limit = error.least_bytes, self.memory_limit_bytes / 1e9
            return Outcome(
                c, None, f"needs at least {least / 1e9:.1f} GB of memory, the limit is {limit:.1f} GB", least
            )
        except DistirError as error:
            return Outcome(c, None, str(error))
        if figures.peak_memory_bytes > self.memory_limit_bytes:
            peak, limit = figures.peak_memory_bytes / 1e9, self.memory_limit_bytes / 1e9
            return Outcome(c, figures, f"needs {peak:.1f} GB of memory, the limit is {limit:.1f} GB")
        return Outcome(c, figures)

    def _figures(self, module: ModuleOp) -> Figures:
        return figures_of_program(module, self.machine, self.cost_model, self.overlap, self._memo)

    def least_seconds(self, c: Configuration) -> float:
        """What a plan takes at least, as far as an operation on a shard takes no smaller share of the time than the shard is of the whole:
        all work evenly on all devices; and each stage waits for the stages before it, in the first microbatch forward and in the last one backward,
        beside its own share of the contractions. The longest stage is shortest where later stages have less."""
        work, contractions = self._work(c.batch)
        filled = 1 - (1 - 1 / c.microbatches) ** c.pp
        return max(work / (c.dp * c.tp * c.pp), contractions / (c.dp * c.tp * c.microbatches) / filled)

    def _work(self, batch: int) -> tuple[float, float]:
        """Seconds that one device takes for everything, and for contractions."""
        if batch not in self._seconds:
            busy = summarize(self.base(batch), self.machine, self.cost_model).busy_seconds
            spent = busy[0]
            self._seconds[batch] = sum(spent.values()), spent.get(Kind.MATMUL.value, 0.0)
        return self._seconds[batch]
