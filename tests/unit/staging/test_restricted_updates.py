"""An axis that may cut the batch alone still cuts what has no rows of it: updates of state, where there is no loop over microbatches too."""

import pytest
from xdsl.context import Context

from distir.dialects.sharding import Sharded
from distir.frontends.pytorch import import_step
from distir.passes.dtp_parallelize import prepare
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.sharding.settings import build_problem
from examples import mlp_pytorch


@pytest.mark.parametrize("count", [1, 2])
def test_state_may_be_cut_over_replicas(count: int):
    module, context = import_step(mlp_pytorch.step()), Context()
    prepare(context, module)
    PipelineStagesPass(1, microbatches=count).apply(context, module)
    problem, _ = build_problem(context, module, "dp=2", "dgx-a100", "analytic", "", "dp=batch", "any", "main")
    updates = [op for op in problem.options if op.name == "aten.lerp.Scalar"]
    assert updates
    for op in updates:
        assert any(isinstance(state, Sharded) for option in problem.options[op] for (state,) in option.results)
