"""What a search says of a plan before it makes it, for plans of three models: bounds are no more than figures, and no plan that is pruned is among the
fastest."""

from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.frontends.pytorch import import_step
from distir.interpreters.machines import load_machine
from distir.passes.distribution.mesh import Mesh
from distir.passes.search.configurations import CUTS_LAYERS, Configuration, grid, ranked
from distir.passes.search.search import Search
from distir.passes.sharding.prices import prices_of
from distir.passes.sharding.search import TooSlow
from examples import mlp_pytorch
from tests.long_cases import also_long
from tests.slow_machine import written
from tests.small_models import mlp, residual_step

BATCH = 16
MODELS: dict[str, Callable[[], ModuleOp]] = {
    "mlp": lambda: mlp(batch=BATCH).module,
    "residual": lambda: residual_step(batch=BATCH).module,
    "adamw": lambda: import_step(mlp_pytorch.step()),
}
PLANS = grid(4, [BATCH], (2, 4, 8), ["1f1b", "gpipe", "zb-h1"], policies=("none", "full"))


@cache
def machine() -> str:
    return written(Path(mkdtemp()))


@cache
def model(name: str) -> ModuleOp:
    return MODELS[name]()


def search(name: str, wanted: int = 0, limit: int = 1 << 30) -> Search:
    return Search(lambda _: model(name).clone(), machine(), "analytic", limit, wanted=wanted)


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(MODELS)), c=st.sampled_from(PLANS), share=st.sampled_from([0.5, 0.9, 0.99]))
def test_a_bound_is_no_more_than_the_time(name: str, c: Configuration, share: float) -> None:
    """That of the stages, and that with which the integer program says that a plan is too slow."""
    figures = search(name).evaluate(c).figures
    if figures is None:
        return
    bounding = search(name, wanted=1)
    least = [*bounding.bounds.of(c)]
    assert least == sorted(least)
    assert 0 < least[-1] <= figures.latency_seconds
    assert bounding.bounds.least_bytes(c) <= figures.peak_memory_bytes
    with suppress(TooSlow), noting(least):
        assert search(name).evaluate(c, share * figures.latency_seconds).figures == figures
    assert least[-1] <= figures.latency_seconds


@pytest.mark.parametrize("name", sorted(MODELS))
def test_what_tensor_ranks_send_counts(name: str) -> None:
    """It is found of each number of ranks and microbatches, and says something of plans with more."""
    bounding = search(name, wanted=1).bounds
    c, more = (Configuration(BATCH, 2, 2, 1, k, "1f1b") for k in (2, 4))
    _, computed, sent = bounding.of(c)
    assert sent > 1.15 * computed
    assert bounding.known(more) > bounding.least_seconds(more)


@contextmanager
def noting(least: list[float]) -> Generator[None]:
    """Notes what a plan that is too slow takes at least."""
    try:
        yield
    except TooSlow as error:
        least.append(error.least_seconds)
        raise


@pytest.mark.parametrize("name", also_long(sorted(MODELS), ["mlp"]))
def test_the_fastest_are_those_of_all(name: str) -> None:
    plans = [c for c in PLANS if c.schedule == "1f1b" and c.microbatches <= 2]
    every = ranked(search(name).outcomes(plans))
    found = ranked(search(name, wanted=3).outcomes(plans))
    assert [o.throughput for o in found[:3]] == [o.throughput for o in every[:3]]


def test_what_is_known_decides_when_time_is_over() -> None:
    """Plans that fit no device need not be made, nor those of more stages than the model has layers."""
    plans = [c for c in PLANS if c.microbatches <= 2]
    bounding = search("mlp", wanted=1, limit=1)
    for c in plans:
        with suppress(DistirError):
            bounding.bounds.least_bytes(c)
    bounding.seconds = 0.0
    dropped = [o.dropped or "" for o in bounding.outcomes(plans)]
    assert len(dropped) == len(plans)
    assert all(why.startswith(("needs at least", CUTS_LAYERS)) for why in dropped)


def test_prices_are_kept_by_mesh() -> None:
    """And by how many stages there are: collectives of other devices may take longer."""
    (two, four), on = (Mesh((("dp", 1), ("tp", n))) for n in (2, 4)), load_machine(machine())
    assert prices_of(two, on) is prices_of(two, load_machine(machine()))
    assert len({id(prices_of(*of)) for of in ((two, on), (four, on), (two, on, "analytic", 2))}) == 3


def test_what_is_sent_beside_computation_is_not_waited_for() -> None:
    """Replicas add up gradients; what fits no device whole is gathered in each microbatch."""
    plan = Configuration(BATCH, 2, 1, 1, 2, "1f1b")

    def likely(limit: int, overlapped: int) -> float:
        found = search("mlp", limit=limit)
        found.overlapped = overlapped
        return found.bounds.likely(plan)

    [waiting, gathering], [beside, _] = ([likely(limit, n) for limit in (1 << 40, 1)] for n in (0, 1))
    assert beside < waiting < gathering
