"""Steps of a schedule that recur are functions where a plan is simulated; what they say is what the whole program does."""

import pytest

from distir.frontends.onnx import import_model
from distir.interpreters.machines import load_machine
from distir.passes.distribution.pipeline.recurring import FEWEST, RecurringSteps
from distir.passes.distribution.pipeline.tasks import Task, recurring, steps
from distir.passes.search.configurations import Configuration
from distir.passes.search.search import Search
from examples import gpt2_onnx
from tests.small_models import mlp

DGX2 = load_machine("dgx-2")
SCHEDULES = ("1f1b", "gpipe", "pipedream")


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_parts_are_the_schedule(schedule: str, training: bool) -> None:
    for stages in (1, 2, 3, 8):
        for microbatches in (1, 2, 7, 30):
            parts = recurring(schedule, stages, microbatches, training, FEWEST)
            found = [
                [Task(task.stage, task.microbatch + time * part.shift, task.backward) for task in step]
                for part in parts
                for time in range(part.times)
                for step in part.steps
            ]
            assert found == [list(step) for step in steps(schedule, stages, microbatches, training)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_deep_loop_is_short(schedule: str) -> None:
    """From some number of microbatches on, more of them are not more to write."""
    lengths = [sum(len(part.steps) for part in recurring(schedule, 4, n, True, FEWEST)) for n in (64, 256)]
    assert lengths[0] == lengths[1] < 40


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("dp", "tp", "pp"), [(1, 1, 2), (2, 2, 2), (1, 1, 4)])
def test_training_has_the_figures_of_the_whole(
    schedule: str, dp: int, tp: int, pp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mlp((12,) * 5, 64)
    functions = _functions_counted(monkeypatch)
    search = Search(lambda _: model.module.clone(), DGX2, "analytic", 1 << 50)
    for microbatches in (16, 32 // dp):
        configuration = Configuration(64, dp, tp, pp, microbatches, schedule)
        assert search.evaluate(configuration).figures == search.evaluate_whole(configuration).figures
    assert sum(functions) > 0 or (schedule == "pipedream" and pp == 4)


def test_inference_has_the_figures_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every microbatch leaves a result, and positions are sliced of what all stages hold."""
    built = gpt2_onnx.build(n_layer=4, d_model=16, n_head=4, vocab=24, n_ctx=8)
    functions = _functions_counted(monkeypatch)
    search = Search(lambda _: import_model(built, {"input1": (32, 1, 4)}), DGX2, "analytic", 1 << 50)
    for layout in ((1, 1, 2, 16), (1, 2, 4, 32), (2, 1, 2, 16)):
        configuration = Configuration(32, *layout, "1f1b")
        assert search.evaluate(configuration).figures == search.evaluate_whole(configuration).figures
    assert all(functions)


def _functions_counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many functions each loop has that is written from now on."""
    counts: list[int] = []
    write = RecurringSteps.write

    def counted(self: RecurringSteps) -> list[object]:
        found = write(self)
        counts.append(len(found))
        return [*found]

    monkeypatch.setattr(RecurringSteps, "write", counted)
    return counts
