"""The choice of the tensor axis: which factors of which operations are cut over the ranks of a group, with repeated layers
alike or alternating."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

from xdsl.dialects.builtin import IntAttr, ModuleOp
from xdsl.ir import Operation

from distir.dialects.errors import DistirError
from distir.dialects.sharding import Choice, Sharded, UseFactor
from distir.interpreters.entry import entry_function
from distir.interpreters.held import NeedsArguments
from distir.interpreters.machines import Machine
from distir.interpreters.walk import values_read
from distir.passes.distribution.lower import SITE
from distir.passes.distribution.options import Option
from distir.passes.distribution.pipeline.layout import Layout
from distir.passes.distribution.pipeline.local_program import LocalProgram, cut_into_stages, localize
from distir.passes.distribution.pipeline.stages import Cuts
from distir.passes.distribution.space import TensorSpace, is_contraction
from distir.passes.distribution.tensor.choices import PlanByPosition, TensorChoices
from distir.passes.distribution.tensor.holding import (
    held_of_entry,
    holding,
    own_parameters,
    site_numbers,
    without_addends,
)
from distir.passes.distribution.tensor.ilp import solve
from distir.passes.distribution.tensor.tensor_network import Plan, choose
from distir.passes.distribution.tensor.variants import alternate
from distir.passes.structure import shape_of

SAME = 1e-6
"""Plans whose communication differs by less than this fraction communicate alike."""


def choose_tensors(
    program: LocalProgram,
    tp: int,
    machine: Machine,
    choices: Mapping[int, Choice] | None = None,
) -> Plan:
    """The tensor axis of `tp` > 1 devices. Raises DistirError if nothing can be cut. With `choices`, by site, only
    conversions are left to choose."""
    if choices is not None:
        ops = [op for f in program.functions for op in f.body.block.ops]
        fixed = {op: choices[_site(op)] for op in ops if SITE in op.attributes and _site(op) in choices}
        space = TensorSpace(program.module, program.local, tp, lambda: program.reach, fixed)
        space.byte_seconds = 1 / machine.device.memory_bandwidth_bytes_per_second
        return solve(space, program.rows, program.cut, collective_seconds(machine, tp))
    space = TensorSpace(program.module, program.local, tp, lambda: program.reach)
    space.byte_seconds = 1 / machine.device.memory_bandwidth_bytes_per_second
    contractions = [op for op in space.options if is_contraction(op)]
    if contractions and not any(isinstance(o.choice, UseFactor) for op in contractions for o in space.options[op]):
        op = contractions[0]
        raise DistirError(
            f"tp = {tp}: no contraction can be cut into {tp} parts; {op.name} of {[list(shape_of(v)) for v in op.operands if v not in program.cut]} "
            f"has the rule {op.attributes['dist.rule']}: choose a tp that divides its parameters' dims"
        )
    seconds = collective_seconds(machine, tp)
    best = choose(space, program.rows, program.cut, seconds)
    if best is not None:
        space.options = {op: [best[op]] for op in space.options}
    return solve(space, program.rows, program.cut, seconds)


@dataclass
class Variants:
    """An annotated module cut into stages with all repeated layers alike, and with layers that alternate (`variants`): what
    the tensor axis is chosen on, and what is lowered, for any number of ranks."""

    module: ModuleOp
    batch: Mapping[int, int]
    shards: int
    stages: int
    machine: Machine
    whole_layers: bool = False
    cuts: Cuts = field(default_factory=Cuts)
    used_once: bool = False
    """What is lowered is what was cut into stages, not a copy of it."""
    _narrow: dict[tuple[bool, frozenset[tuple[str, frozenset[int]]]], LocalProgram] = field(
        default_factory=dict[tuple[bool, frozenset[tuple[str, frozenset[int]]]], LocalProgram]
    )

    @cached_property
    def alike(self) -> LocalProgram:
        """All layers cut alike."""
        return self._staged(self.module.clone())

    @cached_property
    def _alternated(self) -> ModuleOp | None:
        """The module, with layers that alternate; None if nothing is repeated."""
        module = self.module.clone()
        return module if alternate(module, entry_function(module), 2) else None

    @cached_property
    def alternating(self) -> LocalProgram | None:
        """Layers alternate; None if nothing is repeated."""
        return None if self._alternated is None else self._staged(self._alternated.clone())

    def narrow(self, tp: int, choices: TensorChoices) -> LocalProgram | None:
        """The variant that was chosen, with functions that hold parameters; None if there are no such. Raises NeedsArguments if stages
        begin inside them."""
        module = self._alternated if choices.alternating.get(tp) else self.module
        assert module is not None
        if (held := choices.held.get(tp)) is None:
            own = self._own if module is self.module else own_parameters(module)
            held = choices.held[tp] = without_addends(module, own, choices.by_site.get(tp, {}))
        return self._holding(module, held)

    @cached_property
    def _own(self) -> dict[str, list[int]]:
        """What functions of the module can hold."""
        return own_parameters(self.module)

    def _holding(self, module: ModuleOp, held: Mapping[str, frozenset[int]]) -> LocalProgram | None:
        if not held:
            return None
        key = module is self.module, frozenset(held.items())
        if key not in self._narrow:
            self._narrow[key] = self._staged_holding(holding(module, held), module, held)
        return self._narrow[key]

    def _staged(self, module: ModuleOp, batch: Mapping[int, int] | None = None) -> LocalProgram:
        batch = self.batch if batch is None else batch
        return staged_at_sites(module, batch, self.shards, self.stages, self.machine, self.cuts, self.whole_layers)

    def _staged_holding(self, narrow: ModuleOp, module: ModuleOp, held: Mapping[str, frozenset[int]]) -> LocalProgram:
        """What was made of a module, with functions that hold parameters: other arguments of the entry have moved up."""
        gone = held_of_entry(entry_function(module), held)
        batch = {i - sum(before < i for before in gone): dim for i, dim in self.batch.items()}
        return replace(self._staged(narrow, batch), holds=True)

    def copy(self, layout: Layout, choices: TensorChoices) -> tuple[LocalProgram, Plan | None]:
        """A copy of the variant that was chosen, to be lowered, and how it is cut (None: it is one rank); what the solver is
        asked for is added to the choices."""
        choices.cuts[layout.tp, self.stages, self.shards > 1] = self.cuts
        with suppress(NeedsArguments):
            if (program := self.narrow(layout.tp, choices)) is not None:
                return self._copied(program, layout, choices)
        program = self.alternating if choices.alternating.get(layout.tp) else self.alike
        assert program is not None
        return self._copied(program, layout, choices)

    def _copied(
        self, program: LocalProgram, layout: Layout, choices: TensorChoices
    ) -> tuple[LocalProgram, Plan | None]:
        if self.used_once:
            self._forget()
            return program, known_or_chosen(program, layout, self.machine, choices)
        copy = program.copy()
        return copy, known_or_chosen(copy, layout, self.machine, choices, program)

    def _forget(self) -> None:
        """Cuts the module into stages anew when it is next asked for."""
        self._narrow.clear()
        for name in ("alike", "alternating", "_candidates"):
            self.__dict__.pop(name, None)

    def choose(self, tp: int, known: TensorChoices) -> None:
        """Finds the variant that communicates less on `tp` ranks, and how it is cut."""
        plans = [choose_tensors(program, tp, self.machine) for program in self._candidates]
        better = len(plans) > 1 and plans[1].seconds < plans[0].seconds * (1 - SAME)
        self._note(tp, better, self._candidates[better], plans[better], known)

    def _note(self, tp: int, alternating: bool, program: LocalProgram, plan: Plan, known: TensorChoices) -> None:
        known.alternating[tp] = alternating
        known.cuts[tp, self.stages, self.shards > 1] = self.cuts
        known.by_site[tp] = {_site(op): option.choice for op, option in plan.options.items() if SITE in op.attributes}
        if any(_grows(program, op, option) for op, option in plan.options.items()):
            known.rows[tp] = program.rows
        if not program.holds or self.narrow(tp, known) is program:
            known.plans[tp, self.stages, self.shards > 1, program.holds] = PlanByPosition.of(
                plan, program.functions, program.rows
            )

    @cached_property
    def _candidates(self) -> list[LocalProgram]:
        """Both variants, with functions that hold what parameters they can, or else with all of them as arguments."""
        with suppress(NeedsArguments):
            held = without_addends(self.module, self._own, {})
            if (alike := self._holding(self.module, held)) is not None:
                narrow = holding(self.module, held)
                is_repeated = alternate(narrow, entry_function(narrow), 2)
                return [alike, self._staged_holding(narrow, self.module, held)] if is_repeated else [alike]
        return [program for program in (self.alike, self.alternating) if program is not None]


def staged_at_sites(
    module: ModuleOp,
    batch: Mapping[int, int],
    shards: int,
    stages: int,
    machine: Machine,
    cuts: Cuts,
    whole_layers: bool = False,
) -> LocalProgram:
    """Stages and parts of the batch; operations with rules are numbered before, so that their copies are recognised."""
    for op, site in site_numbers(module).items():
        op.attributes[SITE] = IntAttr(site)
    known = cut_into_stages(module, batch, shards, stages, machine, whole_layers, cuts).propagation
    return localize(module, batch, shards, known)


def known_or_chosen(
    program: LocalProgram,
    layout: Layout,
    machine: Machine,
    choices: TensorChoices,
    original: LocalProgram | None = None,
) -> Plan | None:
    """The tensor axis, as far as known without asking the solver; None if it is one device. What the solver says is added to
    the choices; of a copy, it is asked about the original, of which it may know the reach already."""
    if layout.tp == 1:
        return None
    key = (layout.tp, layout.pp, program.shards > 1, program.holds)
    if key in choices.plans and (plan := choices.plans[key].on(program.functions, program.rows)) is not None:
        return plan
    asked = original or program
    plan = choose_tensors(asked, layout.tp, machine, choices.sites(layout.tp, program.rows))
    known = choices.plans[key] = PlanByPosition.of(plan, asked.functions, program.rows)
    if asked is not program:
        plan = known.on(program.functions, program.rows)
        assert plan is not None, "a copy is what it is a copy of"
    return plan


def collective_seconds(machine: Machine, devices: int) -> Callable[[str, int], float]:
    """The time of a collective among the first devices of a machine, as its analytic cost model has it."""
    from distir.interpreters.cost_models import make_cost_model

    model = make_cost_model("analytic", machine)
    group = list(range(devices))
    return lambda kind, bytes_: model.collective_seconds(kind, bytes_, group)


def _grows(program: LocalProgram, op: Operation, option: Option) -> bool:
    """Whether the option cuts a dim that grows with the batch: it is one inside each row."""
    states = (*zip(values_read(op), option.operands, strict=True), *zip(op.results, option.results, strict=True))
    return any(isinstance(state, Sharded) and program.reach.is_batch(value, state.dim) for value, state in states)


def _site(op: Operation) -> int:
    return cast(IntAttr, op.attributes[SITE]).data
