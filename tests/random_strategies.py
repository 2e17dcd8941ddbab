"""Annotated modules in which every operation does anything that its rule allows, for tests of whoever carries a plan out."""

import random

from xdsl.dialects.builtin import ModuleOp

from distir.dialects.sharding import MeshOp, StrategyAttr
from distir.passes.distribution.mesh import Mesh
from distir.passes.distribution.options import options
from distir.passes.structure import functions

TRIES = 20


def with_random_strategies(module: ModuleOp, axes: dict[str, int], rng: random.Random) -> ModuleOp:
    """A copy of a module with rules: a random strategy on every operation that has a rule; partial values, pieces and
    several axes on one dim among them. Values never conflict on the mesh."""
    module = module.clone()
    assert module.body.block.first_op is not None
    module.body.block.insert_op_before(MeshOp("mesh", axes), module.body.block.first_op)
    mesh = Mesh(tuple(axes.items()))
    for function in functions(module).values():
        for op in function.body.block.ops:
            for _ in range(TRIES if "dist.rule" in op.attributes else 0):
                picked = [rng.choice(options(op, size)) for size in axes.values()]
                states = [tuple(o.operands[i] for o in picked) for i in range(len(op.operands))]
                states += [tuple(o.results[i] for o in picked) for i in range(len(op.results))]
                if all(mesh.conflict(s) is None for s in states):
                    choices = {axis: option.choice for axis, option in zip(axes, picked, strict=True)}
                    op.attributes["dist.strategy"] = StrategyAttr.of("mesh", choices)
                    break
    return module
