"""The search over several forms of a model: in go configurations of any policy of `recompute-activations` and any number of tensor ranks; out come
their figures and programs, each from the search of the model that is recomputed so, and decomposed for tensor ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.passes.decompose import DECOMPOSED, DecomposePass
from distir.passes.dtp_parallelize import prepare
from distir.passes.recompute_activations import RecomputeActivationsPass
from distir.passes.search.configurations import Configuration, Details, Outcome
from distir.passes.search.search import Search

Form = tuple[str, bool]
"""The policy of recomputation, and whether there are tensor ranks (`decompose`)."""


def _form(c: Configuration) -> Form:
    return c.recompute, c.tp > 1


def _by_form(configurations: Sequence[Configuration]) -> list[tuple[Form, list[Configuration]]]:
    """Configurations of one form together, in their order."""
    found: dict[Form, list[Configuration]] = {}
    for each in configurations:
        found.setdefault(_form(each), []).append(each)
    return list(found.items())


@dataclass
class RecomputedSearch(Search):
    """A search of the model as it is, and one for each form that differs from it. `machine_name` is the machine's name, or its path."""

    machine_name: str = ""
    _searches: dict[Form, Search] = field(default_factory=dict[Form, Search])
    _prepared: dict[int, ModuleOp] = field(default_factory=dict[int, ModuleOp])
    """The annotated program at the batch size that was asked for last."""

    def of(self, form: Form, batch: int) -> Search:
        """The search of the model in a form; at this batch size it is seen whether the form differs."""
        policy, has_tensor_ranks = form
        if (
            has_tensor_ranks
            and form not in self._searches
            and DECOMPOSED not in self._module("none", True, batch).attributes
        ):
            self._searches[form] = self.of((policy, False), batch)
        if form not in self._searches:
            given = self.machine, self.cost_model, self.memory_limit_bytes, self.batch, self.overlapped
            self._searches[form] = Search(partial(self._module, *form), *given, self.exhaustive, self.wanted)
        return self._searches[form]

    def _module(self, policy: str, has_tensor_ranks: bool, batch: int) -> ModuleOp:
        if batch not in self._prepared:
            self._prepared = {batch: self.bind(batch)}
            prepare(Context(), self._prepared[batch])
        module = self._prepared[batch].clone()
        if has_tensor_ranks:
            DecomposePass(self.batch).apply(Context(), module)
        if policy != "none":
            RecomputeActivationsPass(policy, self.machine_name, self.cost_model).apply(Context(), module)
        return module

    def base(self, batch: int) -> ModuleOp:
        return self.of(("none", False), batch).base(batch)

    def prepare(self, configurations: Sequence[Configuration]) -> None:
        for form, alike in _by_form(configurations):
            self.of(form, alike[0].batch).prepare(alike)

    def outcomes(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        """Those of each form, one form after the other."""
        for form, alike in _by_form(configurations):
            search = self.of(form, alike[0].batch)
            search.fastest = self.fastest
            yield from search.outcomes(alike)

    def one_by_one(self, configurations: Sequence[Configuration]) -> Iterator[Outcome]:
        for form, alike in _by_form(configurations):
            yield from self.of(form, alike[0].batch).one_by_one(alike)

    def evaluate(self, configuration: Configuration) -> Outcome:
        return self.of(_form(configuration), configuration.batch).evaluate(configuration)

    def program(self, configuration: Configuration) -> ModuleOp:
        return self.of(_form(configuration), configuration.batch).program(configuration)

    def details(self, c: Configuration) -> Details:
        return self.of(_form(c), c.batch).details(c)
