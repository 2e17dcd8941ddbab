"""Which dims of about 240 operators their rules cut, and which a plain oracle says could be cut: one line for each operator.

    python -m benchmarks.rule_dims [PREFIX]

The oracle cuts every dim of one extent in two, with the sizes that say as much, runs both parts, and looks whether results concatenate, add
up, or reduce otherwise. `MISS` names extents that it can cut and the rule cannot, `open` dims that neither can, or that need a halo, the
start of their positions, or a decomposition. Seconds are CPU seconds of discovery, forks included."""

from __future__ import annotations

import argparse
import json
import resource
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation

from benchmarks.operator_instances import Arrays, instances
from distir.dialects.sharding import Rule
from distir.interpreters.isolation import NoAnswer, answers
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine.probe_op import ProbeOp

Array = np.ndarray[Any, Any]


def cut_by_halves(op: Operation, operands: Sequence[Array]) -> dict[int, list[str]]:
    """By extent that can be cut in two, how each result is made of those of the parts."""
    probe_op = ProbeOp(op, InterpreterDomains())
    given = {i: operands[i] for i in probe_op.tensors}
    wholes = probe_op.evaluate(probe_op.point, given)
    found: dict[int, list[str]] = {}
    both = list(zip(probe_op.slots, probe_op.point, strict=True))
    for extent in sorted({value for slot, value in both if not slot.is_size}):
        dims = [i for i, (slot, value) in enumerate(both) if value == extent and not slot.is_size]
        sizes = [i for i, (slot, value) in enumerate(both) if value == extent and slot.is_size]
        for members in ([*dims, *sizes], dims):
            if extent not in found and (made := _made(probe_op, given, wholes, extent, dims, members)) is not None:
                found[extent] = made
    return found


def _made(
    probe_op: ProbeOp,
    given: Mapping[int, Array],
    wholes: Sequence[Array | None],
    extent: int,
    dims: Sequence[int],
    members: Sequence[int],
) -> list[str] | None:
    first = max(1, extent // 3)
    parts: list[list[Array | None]] = []
    try:
        for low, high in ((0, first), (first, extent)):
            point = tuple(high - low if i in members else n for i, n in enumerate(probe_op.point))
            arrays = dict(given)
            for i in dims:
                owner = probe_op.slots[i].owner
                assert isinstance(owner, int)
                arrays[owner] = np.take(arrays[owner], range(low, high), probe_op.slots[i].position)
            parts.append(probe_op.evaluate(point, arrays))
    except Exception:  # what the operator raises on a part
        return None
    kinds = [
        _kind(whole, one, other, first / extent)
        for whole, one, other in zip(wholes, *parts, strict=True)
        if whole is not None and one is not None and other is not None
    ]
    known = [kind for kind in kinds if kind is not None]
    return known if len(known) == len(kinds) and any(kind != "identity" for kind in known) else None


def _kind(whole: Array, one: Array, other: Array, share: float) -> str | None:
    """How two results make the whole one, if they do."""

    def equal(made: Array) -> bool:
        return made.shape == whole.shape and bool(np.allclose(made, whole, 1e-5, 1e-6, equal_nan=True))

    for dim in range(whole.ndim):
        beside = [n for d, n in enumerate(one.shape) if d != dim] == [n for d, n in enumerate(other.shape) if d != dim]
        if one.ndim == other.ndim == whole.ndim and beside and equal(np.concatenate([one, other], dim)):
            return f"gather({dim})"
    if one.shape != whole.shape or other.shape != whole.shape:
        return None
    if equal(one) and equal(other):
        return "identity"
    if whole.dtype == np.bool_:
        return "or" if equal(one | other) else "and" if equal(one & other) else None
    made = {"sum": one + other, "max": np.maximum(one, other), "min": np.minimum(one, other)}
    made |= {"mean": share * one + (1 - share) * other} if whole.dtype.kind in "fc" else {}
    return next((kind for kind, array in made.items() if equal(array)), None)


def _asked(op: Operation, operands: Arrays) -> dict[int, list[str]]:
    """The same in a fork, which it may crash."""
    (found,) = answers([lambda: json.dumps(list(cut_by_halves(op, operands).items()))])
    return {} if isinstance(found, NoAnswer) else dict(json.loads(found))


def open_dims(op: Operation, rule: Rule) -> list[tuple[int, int, int]]:
    """The operand, the dim and the extent of what no factor divides."""
    shapes = [value.type.get_shape() if isinstance(value.type, TensorType) else () for value in op.operands]
    return [
        (i, d, shapes[i][d])
        for i, dims in enumerate(rule.inputs)
        for d, dim in enumerate(dims)
        if not dim.factors and shapes[i][d] > 1
    ]


def _cpu_seconds() -> float:
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    parser = argparse.ArgumentParser(description="which dims the rules of operators cut")
    parser.add_argument("prefix", nargs="?", default="")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts = dict.fromkeys(("full", "open", "MISS"), 0)
    for instance in instances(options.prefix):
        op, operands = instance.make()
        possible, start = _asked(op, operands), _cpu_seconds()
        rule = Discovery(InterpreterDomains()).rule(op)
        left, seconds = open_dims(op, rule), _cpu_seconds() - start
        missed = {extent: possible[extent] for _, _, extent in left if extent in possible}
        state = "MISS" if missed else "open" if left else "full"
        counts[state] += 1
        print(f"{state} {instance.name}: {rule} {missed or left or ''} [{seconds:.1f} s]", flush=True)
    print(counts)


if __name__ == "__main__":
    main()
