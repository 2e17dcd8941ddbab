"""A search ends once no plan can be as fast as asked for."""

from itertools import product
from pathlib import Path

import pytest
from xdsl.context import Context

from distir.dialects.errors import DistirError
from distir.passes.ilp_shard import IlpShardPass
from distir.passes.microbatch import MicrobatchPass
from distir.passes.pipeline_stages import PipelineStagesPass
from distir.passes.sharding.search import TooSlow
from tests.long_cases import also_long
from tests.slow_machine import written
from tests.small_models import mlp


@pytest.mark.parametrize("stages", [1, 2])
def test_a_plan_that_takes_longer_is_not_sought(stages: int, tmp_path: Path):
    machine, module = written(tmp_path), mlp(widths=(12, 24, 24, 12)).module.clone()
    for each in (PipelineStagesPass(stages, machine=machine, microbatches=2), MicrobatchPass(2)):
        each.apply(Context(), module)
    search = IlpShardPass(mesh="dp=2", machine=machine)
    fastest = module.clone()
    search.apply(Context(), fastest)
    seconds = fastest.body.block.first_op.attributes["dist.seconds"].value.data  # pyright: ignore
    with pytest.raises(TooSlow) as refused:
        IlpShardPass(mesh="dp=2", machine=machine, cutoff=seconds / 2).apply(Context(), module.clone())
    assert seconds / 2 < refused.value.least_seconds <= seconds
    IlpShardPass(mesh="dp=2", machine=machine, cutoff=seconds).apply(Context(), module)
    with pytest.raises(DistirError, match="cutoff: expected more than 0 seconds, got -1"):
        IlpShardPass(mesh="dp=2", machine=machine, cutoff=-1.0).apply(Context(), module)


def test_a_plan_is_found_again_among_its_own_pins(tmp_path: Path):
    """What a search wrote into a staged program, the number of the microbatch too, pins the next one."""
    machine, module = written(tmp_path), mlp(widths=(12, 24, 12)).module.clone()
    for each in (PipelineStagesPass(1, machine=machine, microbatches=2), MicrobatchPass(2)):
        each.apply(Context(), module)
    search = IlpShardPass(mesh="dp=2", machine=machine)
    search.apply(Context(), module)
    first = str(module)
    search.apply(Context(), module)
    assert str(module) == first


@pytest.mark.parametrize(
    ("stages", "gap"), also_long(product([1, 2], [0.02, 0.3]), [(1, 0.02), (2, 0.3)], several=True)
)
def test_a_plan_will_do_that_is_near_enough(stages: int, gap: float, tmp_path: Path):
    """Within limits of memory, its time is at most so much above that of the fastest, and it says how much may be missing."""
    machine, module = written(tmp_path), mlp(widths=(12, 24, 24, 12)).module.clone()
    for each in (PipelineStagesPass(stages, machine=machine, microbatches=2), MicrobatchPass(2)):
        each.apply(Context(), module)
    found: list[tuple[float, float]] = []
    free = IlpShardPass(mesh="dp=2,tp=2", machine=machine)
    free.apply(Context(), unlimited := module.clone())
    limit = int(unlimited.body.block.first_op.attributes["dist.peak_memory_bytes"].value.data * 0.95)  # pyright: ignore
    for share in (0.0, gap):
        one = module.clone()
        IlpShardPass(mesh="dp=2,tp=2", machine=machine, memory_limit=str(limit), gap=share).apply(Context(), one)
        said = one.body.block.first_op.attributes  # pyright: ignore
        found.append((said["dist.seconds"].value.data, said["dist.gap"].value.data))  # pyright: ignore
        assert said["dist.peak_memory_bytes"].value.data <= limit  # pyright: ignore
    (fastest, _), (near, missing) = found
    assert fastest <= near <= fastest / (1 - gap)
    assert missing <= gap + 1e-9
    with pytest.raises(DistirError, match="gap: expected a share from 0 to less than 1, got 1"):
        IlpShardPass(mesh="dp=2", machine=machine, gap=1.0).apply(Context(), module)
