"""In meshes of many devices replicas cut evenly what can be: what they do differently would be written for each of them."""

import pytest
from xdsl.context import Context

from distir.dialects.sharding import Sharded
from distir.passes.dtp_parallelize import prepare
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.sharding.settings import build_problem
from tests.small_models import mlp


@pytest.mark.parametrize(("tensor_ranks", "has_uneven"), [(2, True), (16, False)])
def test_replicas_of_large_meshes_are_even(tensor_ranks: int, has_uneven: bool):
    """Weights of 12 and 10 on four replicas."""
    module = mlp((12, 10, 12), batch=16).module.clone()
    prepare(Context(), module)
    for each in (PipelineStagesPass(1), MicrobatchPass(2)):
        each.apply(Context(), module)
    problem, _ = build_problem(
        Context(),
        module,
        f"dp=4,tp={tensor_ranks}",
        "dgx-a100",
        "analytic",
        "",
        "dp=batch",
        "any",
        "main",
        60.0,
        "1f1b",
    )
    found = {
        states[0]
        for options in problem.options.values()
        if any(_is_even(s[0]) for o in options for s in (*o.operands, *o.results))
        for option in options
        for states in (*option.operands, *option.results)
    }
    assert any(isinstance(s, Sharded) and not s.is_even(4) for s in found) == has_uneven


def _is_even(state: object) -> bool:
    return isinstance(state, Sharded) and state.is_even(4)
