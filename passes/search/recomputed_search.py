"""The search over recomputation too: in go configurations of several policies of `recompute-activations`; out come their figures and programs, each from the
search of a model that is recomputed so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.passes.dtp_parallelize import prepare
from distir.passes.recompute_activations import RecomputeActivationsPass
from distir.passes.search.configurations import Configuration, Details, Outcome
from distir.passes.search.search import Search


@dataclass
class RecomputedSearch(Search):
    """A search of the model as it is, and one for each policy that repeats something. `machine_name` is the machine's name, or its path."""

    machine_name: str = ""
    _searches: dict[str, Search] = field(default_factory=dict[str, Search])

    def of(self, policy: str) -> Search:
        """The search of the model under a policy."""
        if policy not in self._searches:
            passes = RecomputeActivationsPass(policy, self.machine_name, self.cost_model)

            def bind(batch: int) -> ModuleOp:
                module = self.bind(batch)
                if policy != "none":
                    prepare(Context(), module)
                    passes.apply(Context(), module)
                return module

            given = self.machine, self.cost_model, self.memory_limit_bytes, self.batch, self.overlap
            self._searches[policy] = Search(bind, *given, self.exhaustive, self.wanted)
        return self._searches[policy]

    def base(self, batch: int) -> ModuleOp:
        return self.of("none").base(batch)

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        for policy, alike in groupby(configurations, lambda c: c.recompute):
            self.of(policy).prepare(list(alike))

    def outcomes(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        """Those of each policy, one policy after the other."""
        for policy, alike in groupby(configurations, lambda c: c.recompute):
            search = self.of(policy)
            search.fastest = self.fastest
            yield from search.outcomes(list(alike))

    def one_by_one(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        for policy, alike in groupby(configurations, lambda c: c.recompute):
            yield from self.of(policy).one_by_one(list(alike))

    def evaluate(self, configuration: Configuration) -> Outcome:
        return self.of(configuration.recompute).evaluate(configuration)

    def program(self, configuration: Configuration) -> ModuleOp:
        return self.of(configuration.recompute).program(configuration)

    def details(self, c: Configuration) -> Details:
        return self.of(c.recompute).details(c)
