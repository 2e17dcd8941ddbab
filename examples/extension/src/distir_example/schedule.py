"""A pipeline schedule: which microbatch a stage works on, in order. `--schedules eager-1f1b`, `pipeline-schedule{schedule="eager-1f1b"}`."""

from __future__ import annotations

from distir.passes.distribution.pipeline.tasks import Task


def eager_1f1b(stage: int, stages: int, microbatches: int) -> list[Task]:
    """1F1B that warms up with twice as many forwards, so that a message has a step to arrive in (Zhuang et al., 2023, "On optimizing the
    communication of model parallelism")."""
    warm_up = min(2 * (stages - stage - 1), microbatches)
    tasks = [Task(stage, k) for k in range(warm_up)]
    for k in range(microbatches - warm_up):
        tasks += [Task(stage, warm_up + k), Task(stage, k, backward=True)]
    return tasks + [Task(stage, k, backward=True) for k in range(microbatches - warm_up, microbatches)]
