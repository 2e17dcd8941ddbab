"""Both ways to choose shardings in one search: in go configurations of both; out come the figures of all. Plans whose replicas hold all state and whose
tensor ranks cut weights are known soon; then the integer program plans what promises to be faster, or fits where they do not, as long again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

from xdsl.dialects.builtin import ModuleOp

from distir.interpreters.machines import Machine
from distir.passes.search.best_first import Fastest
from distir.passes.search.configurations import Configuration, Details, Outcome, distinct
from distir.passes.search.search import Search
from distir.passes.search.staged_search import StagedSearch

LEAST_SECONDS = 30.0
"""For the plans of the integer program, where the others take less."""


@dataclass
class JointSearch:
    """Two searches of one model on one machine."""

    plain: Search
    staged: StagedSearch
    seconds: float | None = None
    """For the plans of the integer program; none: as long as the others took, or half a minute."""

    def of(self, c: Configuration) -> Search | StagedSearch:
        """The search that a configuration is for."""
        return self.staged if c.sharding == "ilp" else self.plain

    @property
    def machine(self) -> Machine:
        return self.plain.machine

    @property
    def cost_model(self) -> str:
        return self.plain.cost_model

    @property
    def batch(self) -> str:
        return self.plain.batch

    @property
    def memory_limit_bytes(self) -> int:
        return self.plain.memory_limit_bytes

    @property
    def wanted(self) -> int:
        return self.plain.wanted

    @property
    def fastest(self) -> Fastest | None:
        """The plans that processes found that share the search."""
        return self.plain.fastest

    @fastest.setter
    def fastest(self, found: Fastest | None) -> None:
        self.plain.fastest = self.staged.fastest = found

    def base(self, batch: int) -> ModuleOp:
        """The annotated program at a batch size."""
        return self.plain.base(batch)

    def program(self, c: Configuration) -> ModuleOp:
        """The distributed program of a configuration. Raises DistirError where the rules or the batch forbid it."""
        return self.of(c).program(c)

    def details(self, c: Configuration) -> Details:
        """What a plan's memory and communication are."""
        return self.of(c).details(c)

    def evaluate_alone(self, c: Configuration) -> Outcome:
        """One configuration, as it is among others."""
        return self.of(c).evaluate_alone(c)

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        """Makes what all configurations share."""
        for search, chosen in zip((self.plain, self.staged), _by_sharding(configurations), strict=True):
            search.prepare(chosen)

    def outcomes(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        """Simulates all configurations that are wanted, as far as there is time."""
        plain, staged = _by_sharding(configurations)
        known, start = list[Outcome](), monotonic()
        for outcome in self.plain.outcomes(plain) if plain else ():
            known.append(outcome)
            yield outcome
        self.staged.seconds = self.seconds or max(LEAST_SECONDS, monotonic() - start)
        alike = {c.overlap for c in staged}
        yield from self.staged.outcomes(staged, distinct(o for o in known if o.configuration.overlap in alike))


def _by_sharding(configurations: Sequence[Configuration]) -> tuple[list[Configuration], list[Configuration]]:
    staged = [c for c in configurations if c.sharding == "ilp"]
    return [c for c in configurations if c.sharding != "ilp"], staged
