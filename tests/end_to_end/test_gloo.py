"""D/T/P programs on real processes, over gloo, against the sequential program. Starting a process costs seconds of importing
torch, so there are few runs, of many things each."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context

from distir.backends.torch import run
from distir.passes.apply_sharding import ApplyShardingPass
from distir.passes.ilp_shard import IlpShardPass
from tests.small_models import Model, gpt2, mlp


@pytest.mark.parametrize(
    ("build", "degrees"),
    [
        (partial(gpt2, layers=2), {"dp": 2, "tp": 2}),
        (mlp, {"dp": 2, "tp": 2, "overlap": True, "chunks": 2, "chunk_all": True}),
        (partial(gpt2, layers=2), {"pp": 2, "microbatches": 4, "schedule": "gpipe"}),
        (mlp, {"pp": 2, "microbatches": 4, "schedule": "1f1b"}),
        (mlp, {"dp": 2, "pp": 2, "microbatches": 2, "overlap": True}),
    ],
    ids=["gpt2-dp-tp", "mlp-dp-tp-chunks", "gpt2-pp", "mlp-pp", "mlp-overlap"],
)
def test_processes_compute_what_the_model_computes(build: Callable[[], Model], degrees: dict[str, Any]):
    model = build()
    expected = model.sequential(np.float32)
    got = run(model.distributed(**degrees), model.inputs)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        assert got[name].dtype == value.dtype
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-5 * max(1.0, np.abs(value).max()), err_msg=name)


def test_processes_compute_what_was_searched_for():
    """A training step sharded over a 2 x 2 mesh within less memory than it needs whole (7108 bytes): four processes."""
    model = mlp()
    module = model.module.clone()
    IlpShardPass(mesh="dp=2,tp=2", machine="dgx-2", restrict="dp=batch,tp=model", memory_limit="6000B").apply(
        Context(), module
    )
    ApplyShardingPass().apply(Context(), module)
    got, expected = run(module, model.inputs), model.sequential(np.float32)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-5 * max(1.0, np.abs(value).max()), err_msg=name)
