"""A value gets from any sharding over a mesh to any other: executed, the parts make the whole again."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import Builtin, ModuleOp, TensorType, f32
from xdsl.parser import Parser

from distir.dialects.dist import Dist
from distir.dialects.dist.communication import CommunicationOp
from distir.dialects.errors import DistirError
from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Anchor, Partial, Sharded, ShardingAttr, State, Steps, Windowed
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.interpreters.module_check import check_module
from distir.interpreters.reference import run
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.distribution.conversions import shard_extent
from distir.passes.distribution.mesh import AxisStates, Mesh
from distir.passes.distribution.reshard_plans import ReshardPlans, reshard_plan
from distir.passes.sharding.prices import Prices

SHAPE = (24, 8)
ODD_SHAPE = (13, 11)
AXES = (("a", 2), ("b", 2), ("c", 2))
SUM = Partial(Reduction.SUM)


def identity(
    axes: tuple[tuple[str, int], ...],
    source: dict[str, State],
    target: dict[str, State],
    shape: tuple[int, int] = SHAPE,
) -> ModuleOp:
    """A program that only says how its argument arrives and leaves, distributed."""
    type_ = f"tensor<{shape[0]}x{shape[1]}xf32>"
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(func.Func)
    context.load_dialect(Dist)
    sizes = ", ".join(f'"{axis}" = {size}' for axis, size in axes)
    shardings = [ShardingAttr.of("mesh", len(SHAPE), states) for states in (source, target)]
    module = Parser(
        context,
        f"""dist.mesh @mesh = <[{sizes}]>
        func.func @main(%x: {type_} {{dist.name = "x", dist.role = "input", dist.sharding = {shardings[0]}}})
            -> ({type_} {{dist.name = "y", dist.sharding = {shardings[1]}}}) {{
          func.return %x : {type_}
        }}""",
    ).parse_module()
    ApplyShardingPass().apply(context, module)
    module.verify()
    check_module(module)
    return module


def collectives(module: ModuleOp) -> list[str]:
    return [op.name for op in entry_function(module).body.block.ops if isinstance(op, CommunicationOp)]


def states(is_target: bool, cuts: Sequence[State]) -> st.SearchStrategy[dict[str, State]]:
    options: list[State] = [REPLICATED, *cuts] + ([SUM] if is_target else [])
    return st.fixed_dictionaries({axis: st.sampled_from(options) for axis, _ in AXES})


CUTS = (Sharded(0, (24,)), Sharded(1, (8,)), Sharded(0, (8, 16)), Sharded(0, (4,) * 6), Sharded(0, (6,) * 4))
ROWS, COLUMNS, _, _, IN_ROWS = CUTS


@given(states(False, CUTS), states(True, CUTS))
@example({"a": ROWS, "b": IN_ROWS, "c": COLUMNS}, {"a": COLUMNS, "b": IN_ROWS, "c": REPLICATED})
@example({"a": IN_ROWS, "b": ROWS, "c": ROWS}, {"a": IN_ROWS, "b": SUM, "c": SUM})
@example({"a": REPLICATED, "b": IN_ROWS, "c": REPLICATED}, {"a": ROWS, "b": IN_ROWS, "c": ROWS})
@settings(max_examples=40)
def test_any_sharding_reaches_any_other(source: dict[str, State], target: dict[str, State]):
    mesh = Mesh(AXES)
    assume(mesh.conflict(tuple(source.values())) is None and mesh.conflict(tuple(target.values())) is None)
    assume(SUM not in target.values() or REPLICATED not in target.values())  # a replica of a sum would be added again
    x = np.arange(24 * 8, dtype=np.float32).reshape(SHAPE)
    np.testing.assert_array_equal(run(identity(AXES, source, target), {"x": x})["y"], x)


ODD_CUTS = (Sharded(0, (13,)), Sharded(1, (11,)), Sharded(0, (8, 5)))


@given(states(False, ODD_CUTS), states(True, ODD_CUTS))
@settings(max_examples=40)
def test_any_uneven_sharding_reaches_any_other(source: dict[str, State], target: dict[str, State]):
    axes = (("a", 2), ("b", 3), ("c", 2))
    mesh = Mesh(axes, uneven=True)
    assume(all(mesh.conflict(tuple(states[axis] for axis, _ in axes)) is None for states in (source, target)))
    assume(SUM not in target.values() or REPLICATED not in target.values())
    x = np.arange(13 * 11, dtype=np.float32).reshape(ODD_SHAPE)
    np.testing.assert_array_equal(run(identity(axes, source, target, ODD_SHAPE), {"x": x})["y"], x)


WHOLE_CUT, OTHER_CUT = Sharded(0, (24,)), Sharded(1, (8,))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        # A dim cut by both axes: the inner axis is gathered before the outer one.
        ({"a": WHOLE_CUT, "b": WHOLE_CUT}, {}, ["allgather"] * 4),
        # The outer axis leaves: the inner one has to let go of the dim, and takes it again locally.
        ({"a": WHOLE_CUT, "b": WHOLE_CUT}, {"b": WHOLE_CUT}, ["allgather"] * 4),
        ({"a": WHOLE_CUT}, {"a": OTHER_CUT}, ["alltoall"] * 2),
        # Two axes exchange their dims: the inner one lets go, the outer one exchanges, the inner one cuts.
        ({"a": WHOLE_CUT, "b": OTHER_CUT}, {"a": OTHER_CUT, "b": WHOLE_CUT}, ["allgather"] * 2 + ["alltoall"] * 2),
        ({}, {"a": WHOLE_CUT, "b": OTHER_CUT}, []),
    ],
)
def test_hops(source: dict[str, State], target: dict[str, State], expected: list[str]):
    """By hand, on a 2 x 2 mesh: two groups along each axis."""
    assert collectives(identity((("a", 2), ("b", 2)), source, target)) == [f"dist.{kind}" for kind in expected]


STATES = (REPLICATED, SUM, Partial(Reduction.MEAN), *CUTS, Windowed(0, 24, 1, Steps(24, (Anchor(24, 1, 1, 1),))))


@given(
    st.lists(st.tuples(*[st.sampled_from(STATES)] * 2), min_size=2, max_size=12, unique=True),
    st.sampled_from([1 << 4, 1 << 20, 1 << 28]),
    st.booleans(),
)
@settings(max_examples=40)
def test_routes_of_all_pairs_are_those_of_each(states: list[AxisStates], elements: int, uneven: bool):
    mesh = Mesh((("a", 2), ("b", 4)), uneven)
    states = [each for each in states if mesh.conflict(each) is None]
    pairs = [(i, j) for i in range(len(states)) for j in range(len(states))]
    assume(pairs)
    reshard_plans = ReshardPlans(mesh, states)
    found = reshard_plans.between(elements, *np.array(pairs).T)
    for (i, j), code in zip(pairs, map(int, found), strict=True):
        try:
            reshard_steps = reshard_plan(mesh, elements, states[i], states[j])
        except DistirError:
            assert code == -1
            continue
        here = list(states[i])
        for (axis, state), (same_axis, _) in zip(reshard_steps, reshard_plans.reshard_steps(code), strict=True):
            assert axis == same_axis
            assert here[axis] != state
            here[axis] = state
            assert mesh.conflict(tuple(here)) is None
        assert tuple(here) == states[j]


@given(
    st.lists(st.tuples(*[st.sampled_from(STATES)] * 2), min_size=2, max_size=12, unique=True),
    st.sampled_from(["dgx-a100", "dgx-2"]),
)
@settings(max_examples=40, deadline=None)
def test_conversions_priced_together_are_as_dear_as_each(states: list[AxisStates], machine: str):
    mesh = Mesh((("a", 2), ("b", 4)))
    states = [each for each in states if mesh.conflict(each) is None]
    assume(states)
    together, alone = (Prices(mesh, load_machine(machine)) for _ in range(2))
    type_ = TensorType(f32, SHAPE)
    sources = [each for each in states if not any(isinstance(s, Windowed) for s in each)]
    found = together.between(type_, states, sources)
    for i, source in enumerate(states):
        if source not in sources:
            continue
        for j, target in enumerate(states):
            price = alone.conversion(type_, source, target)
            assert found[i, j] == (np.inf if price is None else price.picoseconds)


def test_no_rows_are_cut_into_no_rows():
    assert [shard_extent(Sharded(0, (0,)), shard, 2) for shard in range(2)] == [0, 0]
    assert [shard_extent(Sharded(0, (4, 0)), shard, 2) for shard in range(2)] == [2, 2]
