"""D/T/P programs compute what the sequential program computes: the program of all devices, and all ranks' programs together."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
import pytest

from distir.interpreters.reference import run, run_ranks
from distir.passes.project_to_rank import project
from tests.long_cases import also_long
from tests.small_models import Model, gpt2, mlp

TOLERANCES = {np.float64: 1e-10, np.float32: 1e-5}


@dataclass(frozen=True)
class Degrees:
    dp: int
    tp: int
    pp: int
    microbatches: int
    schedule: str

    def __str__(self) -> str:
        return f"{self.dp}-{self.tp}-{self.pp}-{self.microbatches}-{self.schedule}"


GRID = [Degrees(*degrees) for degrees in product((1, 2), (1, 2), (1, 2), (1, 2, 4), ("gpipe", "1f1b"))]
SAMPLE = [
    Degrees(2, 1, 1, 2, "1f1b"),
    Degrees(1, 2, 1, 1, "1f1b"),
    Degrees(1, 1, 2, 4, "gpipe"),
    Degrees(2, 2, 1, 4, "gpipe"),
    Degrees(1, 1, 2, 4, "pipedream"),
    Degrees(2, 1, 2, 1, "1f1b"),
    Degrees(2, 2, 2, 2, "1f1b"),
]
THIRDS = [Degrees(3, 3, 3, 3, "1f1b"), Degrees(3, 1, 3, 1, "gpipe"), Degrees(1, 3, 2, 3, "gpipe")]
"""For a batch of 9 rows."""


def assert_agree(expected: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray], tolerance: float) -> None:
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        assert got[name].shape == value.shape
        np.testing.assert_allclose(
            got[name], value, rtol=0, atol=tolerance * max(1.0, np.abs(value).max()), err_msg=name
        )


def check(model: Model, degrees: Degrees, **options: bool) -> None:
    distributed = model.distributed(**asdict(degrees), **options)
    ranks = [project(distributed, rank) for rank in range(degrees.dp * degrees.tp * degrees.pp)]
    for dtype, tolerance in TOLERANCES.items():
        expected = model.sequential(dtype)
        assert_agree(expected, run(distributed, model.inputs, dtype=dtype), tolerance)
        assert_agree(expected, run_ranks(ranks, model.inputs, dtype=dtype), tolerance)


@pytest.mark.parametrize("degrees", SAMPLE, ids=str)
def test_gpt2(degrees: Degrees):
    check(gpt2(batch=8), degrees)


@pytest.mark.parametrize("degrees", SAMPLE, ids=str)
def test_mlp_training_step(degrees: Degrees):
    check(mlp(batch=8), degrees)


@pytest.mark.parametrize("degrees", [Degrees(2, 2, 2, 4, "1f1b"), Degrees(2, 1, 3, 2, "gpipe")], ids=str)
@pytest.mark.parametrize("model", also_long([gpt2, mlp], [mlp]))
def test_streams_of_their_own(model, degrees: Degrees):
    """Messages beside computation change when values are made, not which."""
    check(model(batch=8), degrees, overlap=True)


@pytest.mark.parametrize("degrees", THIRDS, ids=str)
@pytest.mark.parametrize("model", also_long([gpt2, mlp], [mlp]))
def test_degrees_that_are_no_powers_of_two(model, degrees: Degrees):
    check(model(batch=9), degrees)


def test_layers_of_other_widths():
    """No layer repeats: nothing is outlined, and every stage and layer has its own function."""
    check(mlp((10, 12, 18, 24, 6), batch=8), Degrees(2, 2, 2, 2, "1f1b"))


@pytest.mark.long
@pytest.mark.parametrize("degrees", [d for d in GRID if d not in SAMPLE], ids=str)
@pytest.mark.parametrize("model", [gpt2, mlp])
def test_the_whole_grid(model, degrees: Degrees):
    check(model(batch=8), degrees)


@pytest.mark.long
@pytest.mark.parametrize("degrees", [Degrees(3, 3, 3, 9, "1f1b"), Degrees(9, 3, 1, 3, "gpipe")], ids=str)
@pytest.mark.parametrize("model", [gpt2, mlp])
def test_a_row_per_microbatch(model, degrees: Degrees):
    check(model(batch=27), degrees)


# --- the inputs tell distributions apart ---


@pytest.mark.parametrize("name", ["h.1.attn.c_attn.weight", "h.2.attn.c_attn.bias", "h.3.ln_1.bias", "wpe.weight"])
def test_attention_matters(name: str):
    """Four columns (a head's, in attention) swapped with the next four: the output moves by a hundred times the tolerance."""
    model = gpt2(batch=8)
    expected = model.sequential(np.float64)["output1"]
    value = model.inputs[name]
    moved = np.concatenate([value[..., 4:8], value[..., :4], value[..., 8:]], axis=-1)
    got = run(model.module, {**model.inputs, name: moved}, dtype=np.float64)["output1"]
    assert np.abs(got - expected).max() > 1e-3 * np.abs(expected).max()
