"""A conversion costs the same whether dims that it does not change are merged or not."""

from itertools import product
from pathlib import Path

import pytest
from xdsl.dialects.builtin import TensorType, f32

from distir.dialects.reductions import Reduction
from distir.dialects.sharding import REPLICATED, Anchor, Partial, Sharded, State, Steps, Windowed
from distir.interpreters.cost_models import make_cost_model
from distir.interpreters.machines import load_machine
from distir.passes.distribution.mesh import Mesh
from distir.passes.sharding import prices
from distir.passes.sharding.prices import Prices
from tests.slow_machine import written

SHAPES = [(4, 8, 12), (1, 8, 12), (4, 1, 12), (2, 4, 1, 6), (1, 12), (3, 5, 7), (2, 3, 4, 6)]


def states_of(shape: tuple[int, ...]) -> list[State]:
    """Whole, addends, and cut along each dim, in two pieces too."""
    cut: list[State] = [Sharded(dim, (extent,)) for dim, extent in enumerate(shape)]
    pieces: list[State] = [Sharded(dim, (n // 2, n // 2)) for dim, n in enumerate(shape) if n % 4 == 0]
    return [REPLICATED, Partial(Reduction.SUM), *cut, *pieces]


def needed(shape: tuple[int, ...]) -> list[State]:
    """These and windows, with rows of other shards or zeros around a shard's own."""
    steps = [(dim, n, Steps(n, (Anchor(n, 1, 1, 1),))) for dim, n in enumerate(shape) if n >= 4]
    return [*states_of(shape), *(Windowed(dim, n, 1, run, filled) for dim, n, run in steps for filled in (False, True))]


@pytest.mark.parametrize("axes", [(("a", 2),), pytest.param((("a", 2), ("b", 3)), marks=pytest.mark.long)])
def test_merged_dims_cost_the_same(
    axes: tuple[tuple[str, int], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh, machine, seen = Mesh(axes, uneven=True), load_machine(written(tmp_path)), 0
    merged = Prices(mesh, machine)
    model = type(make_cost_model("analytic", machine))
    looking = type("Looking", (model,), {"operation_seconds": lambda *_: None})
    monkeypatch.setattr(prices, "make_cost_model", lambda _, machine: looking(machine))  # for it nothing is merged
    whole = Prices(mesh, machine)
    for shape in SHAPES:
        type_ = TensorType(f32, shape)
        sources, targets = (product(states, repeat=len(axes)) for states in (states_of(shape), needed(shape)))
        for source, target in product(sources, targets):
            if mesh.conflict(source) or mesh.conflict(target):
                continue
            expected = whole.conversion(type_, source, target)
            assert merged.conversion(type_, source, target) == expected, (shape, source, target)
            seen += expected is not None
    assert seen > 100
