"""From ops to their rules. In go ops; out come rules, from the cache where it knows them. Other rules are found at
the stand-in of the op's class, in a fork of this process, and checked on the op itself."""

from __future__ import annotations

import gc
import json
import math
import sys
import warnings
from collections.abc import Generator, Hashable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from itertools import groupby
from time import process_time
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from distir.dialects.errors import DistirError
from distir.dialects.plugins import of_plugin
from distir.dialects.sharding import Gather, Rule
from distir.interpreters.isolation import CPU_SECONDS, NoAnswer, answers
from distir.interpreters.operator_dialects import MEANINGS
from distir.interpreters.shared import Shared
from distir.passes.shardcombine.cache import RuleCache, fits, parse_rule, rule_text
from distir.passes.shardcombine.class_rules import discover
from distir.passes.shardcombine.classes import stand_in, stands_for
from distir.passes.shardcombine.domains import Domains
from distir.passes.shardcombine.last_check import LastCheck
from distir.passes.shardcombine.probe_op import Failure, ProbeOp
from distir.passes.shardcombine.rule_forms import rule_without_factors
from distir.passes.shardcombine.standins import StandIn
from distir.passes.shardcombine.time_limits import OutOfTime, limited_time
from distir.passes.shardcombine.window_stand_ins import own_numbers

_OF_DISCOVERY, _OF_CHECK = 0.55, 0.35
"""The shares of a question's time after which a search ends with what it has found, and a check with what it has seen to hold."""
_OF_ALL = 0.9
"""The share of it that all searches and checks together may take, so that there is an answer."""
_LEAST_SECONDS = 0.01
"""That a timer can be set to."""
_imported: list[str] = []
"""Modules that forks have imported and this process has not."""


@dataclass(frozen=True)
class _Unknown:
    """An op of which the cache knows no rule."""

    form: Hashable
    probe_op: ProbeOp
    text: str

    def __str__(self) -> str:
        op = self.probe_op.op
        types = ", ".join(str(value.type) for value in op.operands if isinstance(value.type, TensorType))
        return f"{op.name} on {types}"


@dataclass
class Discovery:
    """Finds rules; each class is probed once, whatever the number of ops."""

    domains: Domains
    cache: RuleCache = field(default_factory=RuleCache.in_memory)
    probed: int = 0
    """Classes probed so far, those that the cache knew not counted."""

    _rules: dict[Hashable, Rule] = field(default_factory=dict[Hashable, Rule])
    _shared: Shared = field(default_factory=Shared)
    _stand_ins: dict[str, list[StandIn]] = field(default_factory=dict[str, list[StandIn]])
    """Of ops that differ in numbers only."""
    _last_check: LastCheck = field(default_factory=LastCheck)
    _failures: dict[Hashable, Failure] = field(default_factory=dict[Hashable, Failure])
    """Of ops that could not be asked, or of which every trial failed."""
    _noted: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    _cut_short: set[Hashable] = field(default_factory=set[Hashable])
    """Ops of which a search ended at its limit of time, with what was found and checked until then."""

    def rule(self, op: Operation) -> Rule:
        """The rule of an op with tensor operands and results; one without factors if nothing was found."""
        return self.rules([op])[0]

    def why_unknown(self, op: Operation) -> str:
        """Why an op that was asked has no rule: it crashes or takes too long, or every trial of it failed as the first did; empty if it has one, and
        if it ran and nothing was found."""
        failure = self._failures.get(self._key(op))
        return "" if failure is None else failure.says

    def rules(self, ops: Sequence[Operation]) -> list[Rule]:
        """The rule of each op. Where an op has none because asking it crashes or takes too long, or because every trial of it fails, a note on
        stderr says so; not where its meaning refuses its operands by a DistirError."""
        forms = [self._key(op) for op in ops]
        with warnings.catch_warnings(), np.errstate(all="ignore"), one_thread(), no_collection():
            warnings.simplefilter("ignore")
            new = {form: op for form, op in zip(forms, ops, strict=True) if form not in self._rules}
            unknown = [each for form, op in new.items() if (each := self._unknown(form, op)) is not None]
            for is_forked, group in groupby(unknown, lambda each: self.domains.is_forked(each.probe_op.op)):
                self._find([*group], is_forked)
        return [self._rules[form] for form in forms]

    def _key(self, op: Operation) -> Hashable:
        return op if op.regions else self._form(op)

    def _form(self, op: Operation) -> Hashable:
        """Equal for ops of one class with equal properties and types, wired alike, of which constants are equal."""
        number, first = self._shared.number, {value: i for i, value in reversed(list(enumerate(op.operands)))}
        form: list[Hashable] = [type(op), *(number(result.type) for result in op.results)]
        form += [(name, number(each)) for name, each in op.properties.items()]
        for value in op.operands:
            form += [first[value], number(value.type)]
            owner = value.owner
            if isinstance(owner, Operation) and not owner.operands:
                form.append((type(owner), *((name, number(each)) for name, each in owner.properties.items())))
        return tuple(form)

    def _unknown(self, form: Hashable, op: Operation) -> _Unknown | None:
        """What has to be asked of the op; None if its rule is known, which is kept by its form."""
        try:
            probe_op = ProbeOp(op, self.domains)
        except Exception:  # a value that is no tensor, or a constant that does not evaluate
            self._rules[form] = rule_without_factors(op)
            return None
        text = probe_op.text(probe_op.point)
        if (known := self.cache.get(op, text)) is None or not fits(known, op):
            return _Unknown(form, probe_op, text)
        self._rules[form] = known
        return None

    def _find(self, unknown: Sequence[_Unknown], is_forked: bool) -> None:
        if not is_forked:
            for each in unknown:
                try:
                    with limited_time(CPU_SECONDS, of_system_too=True):
                        self._rules[each.form] = self._rule(each)
                except OutOfTime:
                    self._has_no_answer(each, f"takes more than {CPU_SECONDS:.0f} s")
                self._note(each)
            return
        for name in _imported:  # what a fork imports, the next would again
            with suppress(Exception):
                import_module(name)
        _imported.clear()
        questions = [partial(self._told, each) for each in unknown]
        for each, found in zip(unknown, answers(questions), strict=True):
            if isinstance(found, NoAnswer) and found.crashed and (domains := self.domains.checking(each.probe_op.op)):
                (found,) = answers([partial(self._told, replace(each, probe_op=ProbeOp(each.probe_op.op, domains)))])
            if isinstance(found, NoAnswer):
                self._has_no_answer(each, found.reason)
            else:
                self._take(each, json.loads(found))
            self._note(each)

    def _has_no_answer(self, unknown: _Unknown, reason: str) -> None:
        self._rules[unknown.form] = rule_without_factors(unknown.probe_op.op)
        self._failures[unknown.form] = Failure(f"asked for its rule, it {reason}")

    def _take(self, unknown: _Unknown, told: dict[str, Any]) -> None:
        """What a fork has told."""
        self._rules[unknown.form] = parse_rule(told["rule"])
        self.cache.add(told["entries"])
        self.probed += told["probed"]
        if told["failure"]:
            self._failures[unknown.form] = Failure(*told["failure"])
        if told["cut_short"]:
            self._cut_short.add(unknown.form)
        _imported.extend(told["modules"])

    def _note(self, unknown: _Unknown) -> None:
        """On stderr, once for ops of one name that fail in one way. Raises DistirError where a library is missing."""
        failure, name = self._failures.get(unknown.form), unknown.probe_op.op.name
        if failure is not None and failure.is_missing:
            raise DistirError(f"{name}: {failure.says}")
        if failure is not None and not failure.is_refusal and (name, failure.says) not in self._noted:
            self._noted.add((name, failure.says))
            print(f"distir: note: {unknown} is cut nowhere: {failure.says}", file=sys.stderr)
        if unknown.form in self._cut_short:
            print(
                f"distir: note: {unknown} may be cut in more ways: what was found in {CPU_SECONDS:.0f} s is kept",
                file=sys.stderr,
            )

    def _told(self, unknown: _Unknown) -> str:
        """The rule of an op, and what finding it adds to the cache and to what is counted, as text."""
        before, modules, probed = set(self.cache.new), set(sys.modules), self.probed
        rule = rule_text(self._rule(unknown))
        entries = {key: entry for key, entry in self.cache.new.items() if key not in before}
        new = [name for name in sys.modules if name not in modules]
        told = {"rule": rule, "entries": entries, "modules": new, "probed": self.probed - probed}
        failure, is_cut_short = self._failures.get(unknown.form), unknown.form in self._cut_short
        return json.dumps({**told, "failure": failure, "cut_short": is_cut_short})

    def _rule(self, unknown: _Unknown) -> Rule:
        """Of the op on any operands and of the op as it is, the rule of more factors: what cuts a constant or one use of a value is a
        rule of the first alone. The other is not asked, which may be large, where all dims of results are cut, or where what is special about it
        is, as any operand is. It has what time the first has left."""
        best, complete, asked = rule_without_factors(unknown.probe_op.op), True, False
        failure: Failure | None = None
        end = process_time() + _OF_ALL * CPU_SECONDS
        for probe_op in (unknown.probe_op.general(), unknown.probe_op):
            if probe_op is None or (asked and _is_all_cut(best, probe_op)):
                continue
            try:
                with limited_time(max(_LEAST_SECONDS, end - process_time()) if asked else math.inf):
                    small = self._small(probe_op)
            except OutOfTime:
                complete = False
                break
            if small is None:
                failure = probe_op.failure or failure
                continue
            (found, is_complete), asked = self._rule_at(probe_op, small, end), True
            best = max(_of_whole_values(found, unknown.probe_op), best, key=lambda rule: len(rule.combines))
            complete &= is_complete
        if complete and asked:
            self.cache.put(unknown.probe_op.op, unknown.text, best)
        elif asked:
            self._cut_short.add(unknown.form)
        if failure is not None and failure.is_missing:
            self._failures[unknown.form] = failure
        elif failure is not None and not asked:
            says = f"every trial of it fails: {failure.says}{_whose(unknown.probe_op.op)}"
            self._failures[unknown.form] = failure._replace(says=says)
        return best

    def _rule_at(self, probe_op: ProbeOp, small: StandIn, end: float) -> tuple[Rule, bool]:
        """The rule of a class, as far as it holds for this op, and whether all of it was looked for, until this time of the process."""

        def seconds(share: float) -> float:
            return min(share * CPU_SECONDS, max(_LEAST_SECONDS, end - process_time()))

        op, stated = probe_op.op, own_numbers(probe_op, small)
        own = [f"{i}={probe_op.point[i]}" for i in sorted(stated)]
        key = " ".join(["class:", probe_op.text(small.point), *map(str, sorted(small.altered)), *own])
        rule = self.cache.get(op, key)
        complete = True
        if rule is None or not fits(rule, op):
            self.probed += 1
            found = discover(probe_op, small, stated, seconds(_OF_DISCOVERY))
            rule, complete = found.rule, found.is_complete
            if found.is_of_class:
                self.cache.put(op, key, rule)
        rule, is_checked = self._last_check.holding(probe_op, rule, seconds(_OF_CHECK))
        return rule, complete and is_checked

    def _small(self, probe_op: ProbeOp) -> StandIn | None:
        """The stand-in of the probe op's class; None if none runs."""
        alike = self._stand_ins.setdefault(probe_op.text((0,) * len(probe_op.point)), [])
        if (known := next((each for each in alike if stands_for(probe_op, each)), None)) is not None:
            return known
        small = stand_in(probe_op)
        if small is not None:
            alike.append(small)
        return small


def _whose(op: Operation) -> str:
    """Where an op has its meaning from, if that is a plug-in."""
    meaning = MEANINGS.get(op.dialect_name())
    whose = "" if meaning is None else of_plugin(meaning.reference)
    return f" (the meaning{whose})" if whose else ""


def _of_whole_values(rule: Rule, probe_op: ProbeOp) -> Rule:
    """Without the partial operands of which the op takes one value as a whole too, cut alike: the value is one."""

    def is_mixed(operands: Sequence[int]) -> bool:
        others = set(probe_op.uses([probe_op.source[i] for i in operands])) - set(operands)
        return any(
            probe_op.source[i] == probe_op.source[j] and rule.inputs[i] == rule.inputs[j]
            for i in operands
            for j in others
        )

    return replace(rule, partials=tuple(each for each in rule.partials if not is_mixed(each.operands)))


def _is_all_cut(rule: Rule, probe_op: ProbeOp) -> bool:
    """Whether all dims of results are cut, or all dims of operands that are not any of their types."""
    special = [dim for i in probe_op.special for dim in rule.inputs[i]]
    if special and all(dim.factors for dim in special):
        return True
    shapes = [type_.get_shape() if isinstance(type_, TensorType) else () for type_ in probe_op.op.result_types]
    dims = [(i, dim) for i, shape in enumerate(shapes) for dim, n in enumerate(shape) if n > 1]
    return all(any(combines[i] == Gather(dim) for combines in rule.combines.values()) for i, dim in dims)


@contextmanager
def one_thread() -> Generator[None]:
    """Torch on one thread, if it is loaded: what is probed is small, and threads that wait take more time than the work."""
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def no_collection() -> Generator[None]:
    """Python's collector of garbage paused: probing makes many small objects, and looking through all of a program for each few
    hundred of them takes a sixth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
