"""Attention on some of the keys. In: an attention of the sequential program with its rule. Out: the rule by which it
runs on parts of the keys, and the results of `attention.combine` for two parts.

Results for parts are no partial sums: their template is one of its own, and they are in `Part`, which nothing else
takes. Weights over the keys say which a part has; a result that has each key once is that of the attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from xdsl.ir import Operation

from distir.dialects.attention import ForwardOp
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import InputDim, Reduce, Rule, Shift
from distir.interpreters.proof.indices import Mismatch
from distir.interpreters.proof.templates import KEYS, Template
from distir.interpreters.proof.terms import application
from distir.interpreters.proof.values import Part, Shard, Value, reduced, shard

KEY, VALUE, MASK = 1, 2, 3
"""Operands of the attention, which may be one value."""


def rule_of_parts(op: Operation, rule: Rule) -> Rule | None:
    """The rule with keys as a factor too; None for another operation, or if keys are in a factor of it."""
    if not isinstance(op, ForwardOp):
        return None
    inputs = [list(dims) for dims in rule.inputs]
    dims = [(KEY, -2), (VALUE, -2)]
    if op.mask is not None and op.mask.type.get_shape()[-1] != 1:  # pyright: ignore
        dims.append((MASK, -1))
    if op.draw:
        dims.append((len(op.operands) - 1, 0))
    for operand, dim in dims:
        if not inputs[operand] or inputs[operand][dim] != InputDim():
            return None
        inputs[operand][dim] = InputDim(KEYS)
    offsets = {} if op.diagonal is None else {KEYS: Shift("diagonal", 0, falls=True)}
    combine = Reduce(Reduction.SUM)
    return replace(
        rule,
        inputs=tuple(map(tuple, inputs)),
        combines={**rule.combines, KEYS: (combine, combine)},
        partials=(),
        offsets={**rule.offsets, **offsets},
    )


def combined(values: Sequence[Any]) -> tuple[Value, ...]:
    """The results for the keys of both parts: those of the attention where that is all keys."""
    if not all(isinstance(value, Part) for value in values):
        raise Mismatch("it combines what is no result for a part of the keys")
    output, logsumexp, other_output, other_logsumexp = (value.shard for value in values)
    template = _template(output, logsumexp)
    _template(other_output, other_logsumexp)
    found = [reduced(Reduction.SUM, pair) for pair in ((output, other_output), (logsumexp, other_logsumexp))]
    if any(each.addend is not None for each in found):
        return tuple(map(Part, found))
    assert template.whole is not None
    terms = application(template.whole, found[0].term.operands, template.results)
    return tuple([shard(term, each.indices) for term, each in zip(terms, found, strict=True)])


def _template(output: Shard, logsumexp: Shard) -> Template:
    """What gave both, of the same rows and keys."""
    template = output.term.head
    if not isinstance(template, Template) or template.whole is None or logsumexp.term.head is not template:
        raise Mismatch("results of two attentions are combined")
    is_one = output.term.operands == logsumexp.term.operands and (output.term.result, logsumexp.term.result) == (0, 1)
    if not is_one or output.addend is not logsumexp.addend or output.indices[:-1] != logsumexp.indices:
        raise Mismatch(f"{output} is combined by logarithms of other rows or keys: {logsumexp}")
    return template
