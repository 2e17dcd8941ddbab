"""What is predicted of a published run stays near what was measured: sharded data parallelism over many devices, in time and in memory."""

import pytest

from benchmarks.published.runs import predict, runs
from tests.long_cases import also_long

RUNS = [
    "megatron-2020 1B DGX-2 V100-32GB T=1 D=1",
    "torchtitan-2024 8B compiled D=8",
    "torchtitan-2024 8B compiled D=128",
]


@pytest.mark.parametrize("name", also_long(RUNS, RUNS[:1]))
def test_a_published_run(name: str) -> None:
    """Bounds are those that are asked of a whole set, with its rows 5 % apart."""
    (run,) = [each for each in runs() if each.name == name]
    found = predict(run)
    assert found.seconds == pytest.approx(run.seconds, rel=0.1)
    if run.bytes is not None:
        assert found.reserved == pytest.approx(run.bytes, rel=0.1)
