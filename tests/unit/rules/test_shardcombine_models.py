"""Every rule of every operator of the example models holds: the op run whole against the op run in even shards, on the
values that it meets in the model, in float64. The rules are read by `instantiate`, as lowering reads them."""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import Partial, Replicated, Rule, Sharded, State
from distir.frontends.onnx import import_model
from distir.interpreters.reference import run_operator
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass
from distir.passes.shardcombine.discovery import Discovery
from distir.passes.shardcombine.domains import InterpreterDomains
from distir.passes.shardcombine.instances import Instance, instantiate, partial_instance
from distir.passes.shardcombine.probe_op import operand_name
from distir.passes.shardcombine_annotate import is_operator

EXAMPLES = Path(__file__).parents[3] / "examples"
REDUCE = {Reduction.SUM: np.add, Reduction.MAX: np.maximum, Reduction.MIN: np.minimum, Reduction.PROD: np.multiply}


def indices(pieces: Sequence[int], shards: int, shard: int) -> list[int]:
    found: list[int] = []
    for i, piece in enumerate(pieces):
        start, width = sum(pieces[:i]), piece // shards
        found += range(start + shard * width, start + (shard + 1) * width)
    return found


def local(value: Any, state: State, shards: int, rng: np.random.Generator) -> list[Any]:
    """What each shard holds of a value in this state."""
    match state:
        case Sharded(dim, pieces):
            return [np.take(value, indices(pieces, shards, shard), dim) for shard in range(shards)]
        case Partial(Reduction.SUM):
            noise = [rng.standard_normal(np.shape(value)) for _ in range(shards - 1)]
            return [*noise, value - sum(noise)]
        case Partial(Reduction.MAX | Reduction.MIN as reduction):
            sign = -1 if reduction is Reduction.MAX else 1
            worse = value + sign * np.abs(rng.standard_normal((shards, *np.shape(value))))
            owner = rng.integers(0, shards, np.shape(value))
            return [np.where(owner == shard, value, worse[shard]) for shard in range(shards)]
        case _:
            return [value] * shards


def agrees(whole: Any, parts: Sequence[Any], state: State, mean: bool) -> bool:
    shards = len(parts)
    match state:
        case Sharded(dim, pieces):
            expected = [np.take(whole, indices(pieces, shards, shard), dim) for shard in range(shards)]
        case Partial(reduction):
            expected, parts = [whole], [REDUCE[reduction].reduce(list(parts)) / (shards if mean else 1)]
        case Replicated():
            expected = [whole] * shards
    return all(
        e.shape == p.shape and np.allclose(e, p, rtol=1e-9, atol=1e-9) for e, p in zip(expected, parts, strict=True)
    )


def sizes_of_shard(op: Operation, rule: Rule, factor: str | None, values: Sequence[Any], shards: int) -> list[Any]:
    """The operands with the sizes that the factor rewrites; sizes in properties do not occur in these models."""
    result = list(values)
    for (name, position), carried in rule.sizes.items():
        if factor in carried:
            (index,) = [i for i in range(len(op.operands)) if operand_name(op, i) == name]
            result[index] = np.array(result[index])
            assert result[index].reshape(-1)[position] % shards == 0
            result[index].reshape(-1)[position] //= shards
    return result


def holds(
    op: Operation, rule: Rule, instance: Instance, factor: str | None, values: Sequence[Any], results: Sequence[Any]
) -> bool:
    shards, rng = 2, np.random.default_rng(0)
    values = sizes_of_shard(op, rule, factor, values, shards)
    split: dict[SSAValue, list[Any]] = {}
    for value, array, state in zip(op.operands, values, instance.operands, strict=True):
        if value not in split:
            split[value] = local(array, state, shards, rng)
    parts = [run_operator(op, [split[value][shard] for value in op.operands]) for shard in range(shards)]
    return all(
        whole is None or agrees(whole, [part[r] for part in parts], instance.results[r], r in instance.means)
        for r, whole in enumerate(results)
    )


def shape(value: SSAValue) -> tuple[int, ...]:
    return value.type.get_shape() if isinstance(value.type, TensorType) else ()


def check(module: ModuleOp, inputs: Mapping[str, Any]) -> tuple[int, int]:
    """How many ways to run an op on shards, and how many of them by a factor, were tried; all of them must hold."""
    discovery, rng = Discovery(InterpreterDomains()), np.random.default_rng(1)
    (function,) = (f for f in module.ops if isinstance(f, FuncOp))
    values: dict[SSAValue, Any] = {}
    for argument, attributes in zip(function.args, function.arg_attrs or (), strict=True):
        name = attributes.data["dist.name"].data  # pyright: ignore
        values[argument] = inputs.get(name, rng.standard_normal(shape(argument)))
    factors = partials = 0
    for op in function.body.block.ops:
        if isinstance(op, ReturnOp):
            break
        operands = [values[value] for value in op.operands]
        results = run_operator(op, operands)
        values.update(zip(op.results, results, strict=True))
        if not is_operator(op):
            continue
        rule = discovery.rule(op)
        shapes = [shape(v) for v in op.operands], [shape(v) for v in op.results]
        for factor in rule.factors:
            if (instance := instantiate(rule, factor, *shapes, shards=2)) is not None:
                assert holds(op, rule, instance, factor, operands, results), (op, rule, factor)
                factors += 1
        for index in range(len(rule.partials)):
            if (instance := partial_instance(rule, index, len(op.results))) is not None:
                assert holds(op, rule, instance, None, operands, results), (op, rule, index)
                partials += 1
    return factors, partials


@pytest.mark.filterwarnings("ignore")
def test_gpt2():
    build = runpy.run_path(str(EXAMPLES / "gpt2_onnx.py"))["build"]
    module = import_model(build(n_layer=1, d_model=24, n_head=4, vocab=32, n_ctx=16))
    OnnxFoldShapesPass(shape="input1=2,1,8").apply(Context(), module)
    factors, partials = check(module, {"input1": np.arange(16).reshape(2, 1, 8)})
    assert factors > 100
    assert partials > 40


@pytest.mark.filterwarnings("ignore")
def test_mlp_training_step():
    build = runpy.run_path(str(EXAMPLES / "mlp_onnx.py"))["build"]
    module = import_model(build([6, 8, 4], batch=10))
    OnnxFoldShapesPass().apply(Context(), module)
    factors, partials = check(module, {"n": np.array(10.0)})
    assert factors > 20
    assert partials > 10
