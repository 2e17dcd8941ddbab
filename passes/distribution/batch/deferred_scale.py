"""Divisions by a sum over the batch, moved after the microbatch loop. In go an entry with rules and its batch dims;
out comes the entry with each such scale behind the linear operations that follow it.

A mean over the samples that count (labels that are not ignored) divides the first gradient by their number, a sum over the
whole batch, which no microbatch knows. Everything that follows up to the gradients of parameters is linear in it, so it may be
multiplied by a number at its end as well as at its beginning. That an operation is linear in some operands is what its rule says
(`partial = [sum: 0 -> 0]`: additive, which over a prime field is linear); no operation is named.

Requires rules. Ensures equal semantics: the first gradient is not scaled, and each value that leaves the linear part is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
from xdsl.dialects.builtin import AnyFloat, ModuleOp, StringAttr, TensorType
from xdsl.dialects.func import CallOp, FuncOp, ReturnOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from distir.dialects.dist import CastOp
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import RuleAttr
from distir.interpreters.walk import values_read
from distir.passes.distribution.batch.batch_axis import is_zero
from distir.passes.distribution.options import RULE, rule_of
from distir.passes.structure import functions, is_constant, shape_of, unique_symbol

if TYPE_CHECKING:
    from distir.passes.shardcombine.discovery import Discovery

LARGEST_CONSTANT = 4096


def defer_scales(
    module: ModuleOp, entry: FuncOp, batch: Mapping[int, int], is_known: Callable[[Operation], bool] = lambda op: False
) -> None:
    """Moves every scale by a value of the batch in the entry through what is linear in it; but for values that an operation makes which `is_known`
    before the loop."""
    from distir.passes.shardcombine.cache import RuleCache
    from distir.passes.shardcombine.discovery import Discovery
    from distir.passes.shardcombine.domains import InterpreterDomains

    block = entry.body.block
    depends = _dependent(block, {block.args[i] for i in batch})
    others = _dependent(block, {argument for i, argument in enumerate(block.args) if i not in batch})
    scales = [
        op
        for op in block.ops
        if _is_scale(op, depends) and not is_known(_maker(op)) and _is_met(block, op, depends, depends & others)
    ]
    if not scales:
        return
    discovery = Discovery(InterpreterDomains(), RuleCache.on_disk())
    for op in scales:
        _Sinking(module, op, discovery).run(block)
    discovery.cache.save()


def _dependent(block: Block, sources: set[SSAValue]) -> set[SSAValue]:
    """What is computed from these values, and they themselves."""
    found = set(sources)
    for op in block.ops:
        if any(value in found for value in values_read(op)):
            found.update(op.results)
    return found


def _is_scale(op: Operation, depends: set[SSAValue]) -> bool:
    """Whether an operation multiplies a number that does not depend on the batch by a function of one that does."""
    if len(op.operands) != 2 or len(op.results) != 1 or not all(map(_is_number, (*op.operands, *op.results))):
        return False
    scaled, by = op.operands
    return by in depends and scaled not in depends and bool(_is_linear(op, {0})) and _is_uniform(op)


def _is_met(block: Block, scale: Operation, depends: set[SSAValue], computed: set[SSAValue]) -> bool:
    """Whether what is linear in a scale meets values of the batch, other than `computed` ones of which its number is made. What meets none (a
    step's size that follows from the gradient) runs when the number is known anyway."""
    made_of, lacking = {scale.operands[1]}, set(scale.results)
    for op in reversed(list(block.ops)):
        if any(result in made_of for result in op.results):
            made_of.update(values_read(op))
    met = depends - (made_of & computed)
    for op in block.ops:
        operands = {i for i, value in enumerate(op.operands) if value in lacking}
        if operands and not isinstance(op, ReturnOp):
            if any(value in met and value not in lacking for value in values_read(op)):
                return True
            lacking.update(op.results if isinstance(op, CallOp) else [op.results[r] for r in _is_linear(op, operands)])
    return False


def _maker(scale: Operation) -> Operation:
    """What makes the number that is scaled by; the scale itself if that is an argument."""
    by = scale.operands[1]
    return by.op if isinstance(by, OpResult) else scale


def _is_number(value: SSAValue) -> bool:
    type_ = value.type
    return isinstance(type_, TensorType) and isinstance(type_.element_type, AnyFloat) and shape_of(value) == ()


def _is_linear(op: Operation, operands: set[int]) -> set[int]:
    """The results that are additive in these operands together, the others fixed; empty if none is."""
    if isinstance(op, CastOp):
        return {0}  # but for rounding
    rule = rule_of(op)
    if rule is None:
        return set()
    for partial in rule.partials:
        if (
            partial.reduction is Reduction.SUM
            and partial.factor is None
            and operands <= (taken := set(partial.operands))
        ):
            if all([_is_zero(op.operands[i]) for i in taken - operands]):
                return set(partial.results)
    return set()


def _is_zero(value: SSAValue) -> bool:
    """Whether a value is a constant of zeros, which any factor leaves as it is."""
    if is_zero(value):
        return True
    if not isinstance(value, OpResult) or not is_constant(value.op) or np.prod(shape_of(value)) > LARGEST_CONSTANT:
        return False
    from distir.interpreters.reference import run_operator

    return not np.any(run_operator(value.op, [])[value.index])


def _is_uniform(op: Operation) -> bool:
    """Whether the operation, given a tensor for the number that it scales, multiplies each element like that number."""
    from distir.interpreters.reference import run_operator

    try:
        numbers = run_operator(op, [np.array(3.0), np.array(0.7)])[0]
        tensors = run_operator(op, [np.full((2, 3), 3.0), np.array(0.7)])[0]
    except Exception:
        return False
    return np.array_equal(np.full((2, 3), numbers), tensors)


@dataclass
class _Sinking:
    """Moves one scale down its block."""

    module: ModuleOp
    scale: Operation
    discovery: Discovery
    """Where the rules of copies of the scale come from."""
    unscaled: set[SSAValue] = field(default_factory=set[SSAValue])
    """Values that lack the factor now."""
    scaled: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """For values that lack it, the value that has it, where one was needed."""
    inside: dict[tuple[str, frozenset[int]], str] = field(default_factory=dict[tuple[str, frozenset[int]], str])
    """Functions and which of their arguments lack it -> the function that scales them."""
    linear: dict[tuple[str, frozenset[int]], set[int]] = field(
        default_factory=dict[tuple[str, frozenset[int]], set[int]]
    )
    """Functions and which of their arguments lack it -> their results that do then."""

    def run(self, block: Block) -> None:
        first, result = self.scale.operands[0], self.scale.results[0]
        replaced = {(use.operation, use.index) for use in result.uses}
        result.replace_uses_with_if(first, lambda use: True)
        self.scaled[first] = result
        for op in list(block.ops):
            lacking = {i for i, v in enumerate(op.operands) if v in self.unscaled or (op, i) in replaced}
            if lacking:
                self._meet(block, op, lacking)
        if result.first_use is None:
            block.erase_op(self.scale)

    def _meet(self, block: Block, op: Operation, lacking: set[int]) -> None:
        results = set[int]() if isinstance(op, ReturnOp) else self._lacking_results(op, lacking)
        if results:
            self.unscaled.update(op.results[r] for r in results)
            return
        if isinstance(op, CallOp) and all(self._is_for_one_use(op.operands[i]) for i in lacking):
            self._scale_inside(block, op, frozenset(lacking))
            return
        for i in lacking:
            op.operands[i] = self._with_factor(block, op.operands[i], op)

    def _lacking_results(self, op: Operation, operands: set[int]) -> set[int]:
        """`_is_linear`, through the body of a called function."""
        if not isinstance(op, CallOp):
            return _is_linear(op, operands)
        key = (op.callee.string_value(), frozenset(operands))
        if key not in self.linear:
            self.linear[key] = self._through(functions(self.module)[key[0]].body.block, operands)
        return self.linear[key]

    def _through(self, body: Block, operands: set[int]) -> set[int]:
        lacking: set[SSAValue] = {cast(SSAValue, body.args[i]) for i in operands}
        for inner in body.ops:
            met = {i for i, value in enumerate(inner.operands) if value in lacking}
            if isinstance(inner, ReturnOp):
                return met
            if met:
                if not (results := self._lacking_results(inner, met)):
                    return set()
                lacking.update(inner.results[r] for r in results)
        return set()

    def _is_for_one_use(self, value: SSAValue) -> bool:
        return value in self.unscaled and value not in self.scaled and value.has_one_use()

    def _scale_inside(self, block: Block, call: CallOp, lacking: frozenset[int]) -> None:
        """Replaces a call by one of a function that scales these arguments: as many calls as there are layers share it."""
        factor = self.scale.operands[1]
        name = call.callee.string_value()
        if (name, lacking) not in self.inside:
            function = functions(self.module)[name].clone()
            function.sym_name = StringAttr(unique_symbol(self.module, name))
            body = function.body.block
            by = body.insert_arg(factor.type, len(body.args))
            for i in sorted(lacking, reverse=True):
                argument = body.args[i]
                copy = self._copy(argument, by)
                argument.replace_uses_with_if(copy.results[0], lambda use, copy=copy: use.operation is not copy)
                assert body.first_op is not None
                body.insert_op_before(copy, body.first_op)
            function.update_function_type()
            self.module.body.block.add_op(function)
            self.inside[name, lacking] = function.sym_name.data
        new = CallOp(self.inside[name, lacking], [*call.operands, factor], [r.type for r in call.results])
        new.attributes.update(call.attributes)
        block.insert_op_before(new, call)
        for old, result in zip(call.results, new.results, strict=True):
            result.name_hint = old.name_hint
            old.replace_all_uses_with(result)
        block.erase_op(call)

    def _copy(self, value: SSAValue, by: SSAValue) -> Operation:
        """The scale, of another value."""
        copy = type(self.scale).create(
            operands=[value, by], result_types=[value.type], properties=dict(self.scale.properties)
        )
        copy.attributes[RULE] = RuleAttr(self.discovery.rule(copy))
        copy.results[0].name_hint = value.name_hint
        return copy

    def _with_factor(self, block: Block, value: SSAValue, before: Operation) -> SSAValue:
        if value not in self.scaled:
            copy = self._copy(value, self.scale.operands[1])
            block.insert_op_before(copy, before)
            self.scaled[value] = copy.results[0]
        return self.scaled[value]
