"""The source of plans. In goes a search that is over, with its model; out come, for any of its configurations, the
program, the work of the model, and the details of its memory and communication, each made when it is asked for."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

    from distir.interpreters.model_work import ModelWork
    from distir.passes.search.configurations import Configuration, Details, Figures
    from distir.passes.search.search import Search
    from distir.passes.search.shared_search import SharedSearch


@dataclass
class PlanSource:
    """A search and the model that it is for."""

    search: Search | SharedSearch
    model: ModuleOp
    args: Namespace = field(default_factory=Namespace)
    """The options that it was asked for with."""
    _works: dict[int, ModelWork] = field(default_factory=dict[int, "ModelWork"])

    def program(self, configuration: Configuration) -> ModuleOp:
        """The program of a plan, with the values that the model came with."""
        from distir.interpreters.weights import attach, weights_of

        program = self.search.program(configuration)
        attach(program, weights_of(self.model))
        return program

    def work(self, batch: int) -> ModelWork:
        """What the model asks of any machine at a batch size."""
        from distir.interpreters.entry import entry_function
        from distir.interpreters.model_work import model_work
        from distir.passes.distribution.batch.batch_axis import parse_batch

        if batch not in self._works:
            base = self.search.base(batch)
            self._works[batch] = model_work(base, parse_batch(self.search.batch, entry_function(base)))
        return self._works[batch]

    def assumed(self, batch: int) -> dict[str, float]:
        """The model's operators of which nothing says what they do, each with its share of what the model takes on one device."""
        from distir.interpreters.cost_models import make_cost_model
        from distir.interpreters.costs import Costs

        costs = Costs(make_cost_model(self.search.cost_model, self.search.machine))
        executed = self.work(batch).executed
        if not any(map(costs.assumed, executed)):
            return {}
        times = {op: count * costs.of(op, (0,)).picoseconds for op, count in executed.items()}
        total, found = max(sum(times.values()), 1), Counter[str]()
        for op, picoseconds in times.items():
            for name in costs.assumed(op):
                found[name] += picoseconds
        return {name: picoseconds / total for name, picoseconds in found.most_common()}

    def details(self, configuration: Configuration, figures: Figures) -> Details:
        """What a plan's memory and communication are."""
        return figures.details or self.search.details(configuration)
