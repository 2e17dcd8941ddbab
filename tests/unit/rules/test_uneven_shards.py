"""Shards of unequal extents: a program with odd dims, every operation cut in any way that its rule allows, computes what
the whole program does, on all devices together and rank by rank."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, Builtin, DictionaryAttr, ModuleOp
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.onnx import Onnx
from distir.dialects.sharding import REPLICATED, MeshOp, Sharded, ShardingAttr, State, StrategyAttr
from distir.interpreters.entry import entry_function
from distir.interpreters.module_check import check_module
from distir.interpreters.reference import run, run_ranks
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.lower import canonical_options
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.options import options
from distir.passes.project_to_rank import project
from distir.passes.shardcombine_annotate import ShardcombineAnnotatePass
from distir.passes.structure import argument_attributes, shape_of
from tests.unit.random_models import Program, models

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck), "phases": [Phase.explicit, Phase.generate]}


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, func.Func, Dist, Onnx):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def with_any_strategy(module: ModuleOp, axes: dict[str, int], rng: random.Random) -> ModuleOp:
    """Annotates a module: each operation does anything whose shards exist, pieces and two axes on one dim among it;
    arguments are whole or cut."""
    ShardcombineAnnotatePass().apply(Context(), module)
    function = entry_function(module)
    module.body.block.insert_op_before(MeshOp("mesh", axes), function)
    mesh = Mesh(tuple(axes.items()), uneven=True)
    for op in function.body.block.ops:
        for _ in range(10 if "dist.rule" in op.attributes else 0):
            pieces = [(3, 4), (2, 3), (5, 10)]
            picked = [rng.choice(options(op, size, pieces, uneven=True)) for size in axes.values()]
            states = canonical_options(picked, mesh)
            values = [*zip(*(o.operands for o in states), strict=True), *zip(*(o.results for o in states), strict=True)]
            if all(mesh.conflict(value) is None for value in values):
                choices = {axis: option.choice for axis, option in zip(axes, picked, strict=True)}
                op.attributes["dist.strategy"] = StrategyAttr.of("mesh", choices)
                break
    attributes = [dict(known) for known in argument_attributes(function)]
    for argument, known in zip(function.body.block.args, attributes, strict=True):
        shape = shape_of(argument)
        cuts: list[State] = [REPLICATED, *(Sharded(d, (n,)) for d, n in enumerate(shape))]
        states = [rng.choice(cuts) for _ in axes]
        if mesh.conflict(tuple(states)) is None:
            known["dist.sharding"] = ShardingAttr.of("mesh", len(shape), dict(zip(axes, states, strict=True)))
    function.arg_attrs = ArrayAttr([DictionaryAttr(known) for known in attributes])
    return module


def check(program: Program, axes: dict[str, int], seed: int, seen: Counter[str]) -> None:
    module = parse(program.text)
    inputs = program.draw_inputs()
    expected = run(module, inputs, dtype=np.float64)
    with_any_strategy(module, axes, random.Random(seed))
    ApplyShardingPass().apply(Context(), module)
    module.verify()
    check_module(module)
    ops = list(entry_function(module).body.block.ops)
    seen.update({op.name for op in ops if op.name.startswith("dist.")})
    seen["uneven"] += any(len({r.type.get_shape() for r in op.results}) > 1 for op in ops if op.name == "dist.alltoall")  # type: ignore[attr-defined]
    ranks = [project(module, rank) for rank in range(Mesh(tuple(axes.items())).devices)]
    for got in (run(module, inputs, dtype=np.float64), run_ranks(ranks, inputs, dtype=np.float64)):
        assert expected.keys() == got.keys()
        for name, value in expected.items():
            tolerance = 1e-10 * max(1.0, float(np.abs(value).max()))
            np.testing.assert_allclose(got[name], value, rtol=0, atol=tolerance, err_msg=name)


MESHES = st.sampled_from([{"a": 2}, {"a": 3}, {"a": 2, "b": 2}, {"a": 3, "b": 2}])


def run_programs(count: int, largest: int) -> Counter[str]:
    seen: Counter[str] = Counter()

    @settings(max_examples=count, **QUIET)
    @given(models(largest, batch=7, extents=(5, 15)), MESHES, st.integers(0, 1 << 20))
    def examples(program: Program, axes: dict[str, int], seed: int) -> None:
        check(program, axes, seed, seen)

    examples()
    return seen


def test_any_strategy_of_odd_dims_leaves_what_a_program_computes():
    seen = run_programs(20, largest=6)
    assert seen["dist.allgather"] > 10


@pytest.mark.long
def test_many_programs():
    seen = run_programs(600, largest=10)
    kinds = ("allreduce", "allgather", "reducescatter", "alltoall", "zeros", "scale", "slice")
    assert min(seen[f"dist.{kind}"] for kind in kinds) > 20, seen
    assert seen["uneven"] > 20
