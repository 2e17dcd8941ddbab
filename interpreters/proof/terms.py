"""The sequential program as terms. In: its module. Out: templates of its operations, the term of every value, and
terms of operations on other terms. Numbers that scale a value stand outermost: a linear operation may be scaled
before or after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, cast

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, PythonValues, impl, register_impls
from xdsl.ir import Operation
from xdsl.traits import Pure

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Rule
from distir.interpreters.proof.templates import Form, Forms, Kinds, Template, rule_of
from distir.interpreters.proof.values import Kind, Term, constant, is_hole, is_zero, term_of, unified
from distir.interpreters.reference import run_operator
from distir.interpreters.walk import Enter, Walk

LARGEST_CONSTANT = 1 << 24
"""Elements: larger constants are not computed."""

RuleOf = Callable[[Operation], Rule | None]


@dataclass
class Library:
    """All that is known of operations: their forms, and templates by name."""

    rules: RuleOf = rule_of
    kinds: Kinds = field(default_factory=Kinds)
    templates: dict[str, list[Template]] = field(default_factory=dict[str, list[Template]])
    scales: dict[Any, bool] = field(default_factory=dict[Any, bool])
    values: dict[Any, list[Term]] = field(default_factory=dict[Any, list[Term]])
    """The values of the sequential program that each template gives."""

    def __post_init__(self) -> None:
        self.forms = Forms(self.kinds)
        self._known: dict[Any, Template] = {}
        self._constants: dict[tuple[Form, tuple[Term, ...]], list[Term] | None] = {}

    def template(self, op: Operation, operands: Sequence[Term]) -> Template:
        """The template of an operation of the sequential program."""
        form = self.forms(op)
        constants = tuple([t.plain if t.plain.array is not None else None for t in operands])
        alike = tuple([operands.index(t) for t in operands])
        key = form, tuple([t.kind for t in operands]), constants, alike
        if (found := self._known.get(key)) is None:
            rule = self.rules(op)
            found = self._known[key] = Template(form, key[1], constants, alike, rule)
            found.scale = self.scale_of(op, form, rule)
            self.templates.setdefault(op.name, []).append(found)
            self._add_parts(op, found)
            if operands and None not in constants:
                found.evaluated = self.evaluated(op, [t.plain for t in operands])
        elif found.rule is None and (rule := self.rules(op)) is not None:
            found.rule, found.scale = rule, self.scale_of(op, form, rule)
            found.__post_init__()
            self._add_parts(op, found)
        return found

    def _add_parts(self, op: Operation, whole: Template) -> None:
        """The template of an attention on some of the keys."""
        from distir.interpreters.proof.parts import rule_of_parts

        if whole.rule is not None and (rule := rule_of_parts(op, whole.rule)) is not None:
            parts = Template(whole.form, whole.kinds, whole.constants, whole.alike, rule, whole)
            self.templates[op.name].append(parts)

    def evaluated(self, op: Operation, operands: Sequence[Term]) -> list[Term] | None:
        """The constants that an operation on constants gives; None if it is none, or too large. Each is computed once, however many
        layers make it."""
        if any(t.array is None for t in operands):
            return None
        form = self.forms(op)
        key = form, tuple(operands)
        if key not in self._constants:
            self._constants[key] = _evaluated(op, form, operands)
        return self._constants[key]

    def has(self, term: Term) -> bool:
        """Whether it is a value of the sequential program, but for numbers that scale it, and for what zeros stand for."""
        plain = term.plain
        return plain.is_sequential or any(
            unified(plain, each.plain) is each.plain for each in self.values.get(term.head, ())
        )

    def scale_of(self, op: Operation, form: Form, rule: Rule | None) -> Any:
        """What names a scale: an operation that multiplies each element of its first operand by the same function of the second, a
        number. None for others."""
        if len(op.operands) != 2 or len(form.results) != 1:
            return None
        key = form.name, tuple(sorted(form.properties.items(), key=lambda e: e[0]))
        if key not in self.scales:
            if rule is None:
                return None
            linear = any(
                p.reduction is Reduction.SUM and p.factor is None and 0 in p.operands and p.operands == (0,)
                for p in rule.partials
            )
            self.scales[key] = linear and _is_uniform(op)
        return key if self.scales[key] else None


def _is_uniform(op: Operation) -> bool:
    try:
        numbers = run_operator(op, [np.array(3.0), np.array(0.7)])[0]
        tensors = run_operator(op, [np.full((2, 3), 3.0), np.array(0.7)])[0]
        twice = run_operator(op, [np.array(6.0), np.array(0.7)])[0]
    except Exception:
        return False
    return np.array_equal(np.full((2, 3), numbers), tensors) and np.array_equal(2 * numbers, twice)


def is_number(kind: Kind) -> bool:
    """Whether a value is one floating number."""
    return kind.shape == () and is_floating(kind)


def is_floating(kind: Kind) -> bool:
    """Whether elements are floating numbers."""
    return kind.element.startswith(("f", "bf"))


def scaled_by(term: Term, scale: Any, by: Term) -> Term:
    """The term with one more number by which it is scaled."""
    factors = tuple(sorted((*term.factors, (scale, by)), key=lambda each: (hash(each[0]), id(each[1]))))
    return term_of(term.kind, term.head, term.operands, term.result, factors)


def with_factors(term: Term, factors: Any) -> Term:
    """The term without the numbers that scale it, scaled by these."""
    return term_of(term.kind, term.head, term.operands, term.result, factors)


def application(
    template: Template, operands: Sequence[Term], kinds: Sequence[Kind], library: Library | None = None
) -> list[Term]:
    """The terms of the results of a template on these terms. What a hole stands for is scaled as what is beside it, unless only the other is
    of the sequential program."""
    if template.scale is not None and _is_scale_of(operands):
        return [scaled_by(operands[0], template.scale, operands[1])]
    pulled = _pulled(template, operands)
    if pulled is None:
        return [term_of(kind, template, tuple(operands), r) for r, kind in enumerate(kinds)]
    if library is not None and any(map(is_hole, operands)):
        found = application(template, operands, kinds)
        within = [term_of(kind, template, tuple(operands), r) for r, kind in enumerate(kinds)]
        return within if all(map(library.has, within)) and not all(map(library.has, found)) else found
    factors, through, results = pulled
    plain = tuple([t.plain if i in through else t for i, t in enumerate(operands)])
    if template.evaluated is not None and plain == template.constants:
        values = enumerate(template.evaluated)
        return [with_factors(value, factors if r in results else ()) for r, value in values]
    return [term_of(kind, template, plain, r, factors if r in results else ()) for r, kind in enumerate(kinds)]


def replayed(term: Term, known: dict[Term, Term], library: Library) -> Term:
    """A term of arguments that a function was not told, with what they are: the same operations on them. `known` has the arguments, and
    keeps what is found."""
    pending = [term]
    while pending:
        each = pending[-1]
        if each in known:
            pending.pop()
            continue
        needed = [each.plain, *(by for _, by in each.factors)] if each.factors else [*each.operands]
        needed += [] if each.otherwise is None else [each.otherwise]
        if missing := [o for o in needed if o.is_open and o not in known]:
            pending += missing
            continue
        of = [known[o] if o.is_open else o for o in needed]
        if each.factors:
            found = of[0]
            for (scale, _), by in zip(each.factors, of[1 : 1 + len(each.factors)], strict=True):
                found = scaled_by(found, scale, by)
        else:
            template = cast("Template", each.head)
            found = application(template, of[: len(each.operands)], template.results, library)[each.result]
        if each.otherwise is not None and found.is_open:
            found.otherwise = of[-1]
        elif each.otherwise is not None and not found.plain.is_sequential:
            found = of[-1]
        found.origin = found.origin or ("" if found.is_sequential else each.origin)
        known[each] = found
    return known[term]


def _pulled(template: Template, operands: Sequence[Term]) -> tuple[Any, set[int], tuple[int, ...]] | None:
    """The numbers by which operands are scaled in which the operation is linear, these operands, and the results that are then."""
    lacking = {i for i, t in enumerate(operands) if t.factors}
    if not lacking or template.rule is None:
        return None
    factors = operands[min(lacking)].factors
    if any(operands[i].factors != factors for i in lacking):
        return None
    for partial in template.rule.partials:
        taken = set(partial.operands)
        if partial.reduction is Reduction.SUM and partial.factor is None and lacking <= taken:
            if all(is_zero(operands[i]) or is_hole(operands[i]) for i in taken - lacking):
                return factors, lacking, partial.results
    return None


def _evaluated(op: Operation, form: Form, operands: Sequence[Term]) -> list[Term] | None:
    kinds = form.results
    if op.regions or not op.has_trait(Pure):
        return None
    if any(k.shape is None or any(n < 0 for n in k.shape) or prod(k.shape) > LARGEST_CONSTANT for k in kinds):
        return None
    try:
        with np.errstate(all="ignore"):
            arrays = run_operator(op, [t.array for t in operands])
    except Exception:
        return None
    if len(arrays) != len(kinds) or any(np.shape(a) != k.shape for a, k in zip(arrays, kinds, strict=True)):
        return None
    return [constant(np.asarray(array), kind) for array, kind in zip(arrays, kinds, strict=True)]


@register_impls
class _Calls(InterpreterFunctions):
    @impl(func.CallOp)
    def call(self, interpreter: Interpreter, op: func.CallOp, args: PythonValues) -> PythonValues:
        return (Enter(op.callee.string_value(), args),)


def terms_of(module: ModuleOp, entry: str, arguments: Sequence[Term], library: Library) -> list[Term]:
    """The terms of the entry's results, of these terms of its arguments."""

    def run(op: Operation, operands: PythonValues) -> PythonValues:
        found = sequential_results(op, cast("Sequence[Term]", operands), library)
        for term in found:
            if not term.is_sequential:
                library.values.setdefault(term.head, []).append(term)
            term.is_sequential = term.plain.is_sequential = True
        return tuple(found)

    walk = Walk(module, default=run)
    walk.register([_Calls()])
    for term in arguments:
        term.is_sequential = True
    return list(walk.call(entry, tuple(arguments)))


def sequential_results(op: Operation, operands: Sequence[Term], library: Library) -> list[Term]:
    """The terms of an operation of the sequential program."""
    form = library.forms(op)
    if not op.has_trait(Pure):
        return [term_of(kind, (op.name, object()), tuple(operands), r) for r, kind in enumerate(form.results)]
    if (constants := library.evaluated(op, operands)) is not None:
        return constants
    return application(library.template(op, operands), operands, form.results)


def _is_scale_of(operands: Sequence[Term]) -> bool:
    """Whether an operation that may scale does: a constant, or what is scaled already, by a number that is none. Other numbers stay where they
    are; a program that scales later scales what this gave."""
    value, by = operands
    is_start = value.array is not None or bool(value.factors)
    return is_start and is_floating(value.kind) and is_number(by.kind) and by.array is None
