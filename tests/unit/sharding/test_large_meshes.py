"""In meshes of many devices what can be cut evenly is: what devices do differently would be written for each of them."""

import pytest
from xdsl.context import Context

from distir.dialects.sharding import REPLICATED, Sharded
from distir.passes.dtp_parallelize import prepare
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.sharding.problem import Problem
from distir.passes.sharding.settings import build_problem
from tests.small_models import mlp


@pytest.mark.parametrize(("tensor_ranks", "has_uneven"), [(2, True), (16, False)])
def test_replicas_of_large_meshes_are_even(tensor_ranks: int, has_uneven: bool):
    """Weights of 12 and 10 on four replicas."""
    problem = posed(4, tensor_ranks, batch=16)
    found = {
        states[0]
        for options in problem.options.values()
        if any(_is_even(s[0]) for o in options for s in (*o.operands, *o.results))
        for option in options
        for states in (*option.operands, *option.results)
    }
    assert any(isinstance(s, Sharded) and not s.is_even(4) for s in found) == has_uneven


@pytest.mark.parametrize(("tensor_ranks", "has_uneven"), [(2, True), (16, False)])
def test_state_that_no_replicas_divide_stays_whole_in_large_meshes(tensor_ranks: int, has_uneven: bool):
    """Weights of 13 and 11 on four replicas, which cut the batch of 16."""
    problem = posed(4, tensor_ranks, batch=16, widths=(13, 11, 13))
    states = [s[0] for options in problem.arguments.values() for s in options]
    states += [s[0] for found in problem.options.values() for o in found for s in (*o.operands, *o.results)]
    assert any(isinstance(s, Sharded) and not s.is_even(4) for s in states) == has_uneven
    assert any(isinstance(s, Sharded) for s in states)


@pytest.mark.parametrize(("replicas", "has_uneven"), [(16, True), (64, False)])
def test_larger_ones_are_even_in_all_axes_together(replicas: int, has_uneven: bool):
    """Rows of which each of the replicas has six, on four tensor ranks: either axis alone divides them."""
    problem = posed(replicas, 4, batch=12 * replicas)
    options = [option for found in problem.options.values() for option in found]
    assert any(not option.price.is_uniform for option in options) == has_uneven
    assert any(states[0] != REPLICATED for option in options for states in option.results)


def posed(replicas: int, tensor_ranks: int, batch: int, widths: tuple[int, ...] = (12, 10, 12)) -> Problem:
    """An MLP in two microbatches."""
    module = mlp(widths, batch=batch).module.clone()
    prepare(Context(), module)
    for each in (PipelineStagesPass(1), MicrobatchPass(2)):
        each.apply(Context(), module)
    mesh = f"dp={replicas},tp={tensor_ranks}"
    problem, _ = build_problem(
        Context(), module, mesh, "dgx-a100", "analytic", "", "dp=batch", "any", "main", 60.0, "1f1b"
    )
    return problem


def _is_even(state: object) -> bool:
    return isinstance(state, Sharded) and state.is_even(4)
