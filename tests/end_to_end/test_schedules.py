"""Each schedule, and each way to recompute, on real processes: after three steps, the parameters of one process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distir.interpreters.inputs import draw_inputs
from distir.interpreters.reference import run
from tests.small_models import residual_step

TABLE = "0F0,0F1,3F0,3I0,0F2,3F1,3B1,0I0,0W0,3W0,0B1,3F2,3B2,0B2\n1F0,2F0,1F1,2F1,2I0,2B1,1B0,1F2,2W0,2F2,1B1,2B2,1B2\n"
"""Of three microbatches, in a V."""

SCHEDULES = (
    "gpipe",
    "1f1b",
    "interleaved",
    "looped-bfs",
    "zb-h1",
    "zbv",
    "dualpipev",
    "pipedream",
    "1f1b-eager",
    "table.csv",
)


POLICIES = ("full", "selective", "full:2/0", "aten.tanh")


@pytest.mark.long
@pytest.mark.parametrize(
    ("schedule", "more"),
    [
        *((schedule, {}) for schedule in SCHEDULES),
        *(("1f1b", {"recompute": policy, "overlap": True}) for policy in POLICIES),
        ("zb-h1", {"recompute": "full", "zero": 3}),
    ],
    ids=str,
)
def test_four_processes_train_three_steps(schedule: str, more: dict[str, Any], tmp_path: Path) -> None:
    """Two replicas of two ranks."""
    from distir.backends.torch import execute

    count = 4
    if schedule.endswith(".csv"):
        count, path = 3, tmp_path / schedule
        path.write_text(TABLE)
        schedule = str(path)
    model = residual_step(batch=24)
    distributed = model.distributed(
        dp=2, pp=2, microbatches=count, schedule=schedule, sharding="ilp", restrict="dp=batch", time_limit=20, **more
    )
    batches = [{name: draw_inputs(model.module, seed)[name] for name in ("input", "label")} for seed in (1, 2, 3)]
    alone = dict(model.inputs)
    for batch in batches:
        alone |= run(model.module, alone | batch)
    together = execute(distributed, model.inputs | batches[0], following=batches[1:]).outputs
    assert len(together) > 40
    for name, value in together.items():
        np.testing.assert_allclose(value, alone[name], rtol=1e-5, atol=1e-6, err_msg=name)
