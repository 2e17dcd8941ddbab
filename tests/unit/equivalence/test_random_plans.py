"""Random programs under random plans: whatever is distributed is valid, computes the same, is proven, and takes what was said.

`python -m benchmarks.random_plans` draws more of them, `--layers` those of equal layers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from xdsl.context import Context

from distir.dialects.dist.communication import CollectiveOp
from tests.random_plans import Case, check, draw, draw_layers

QUICK = (6, 7, 11, 12, 29, 34)
"""Plans that are found in a second or two."""
MANY = [*(range(first, first + 12) for first in (2, 27, 69)), (96044, 700081, 700096, 700104, 700125)]
"""The last ones gather zeros on some devices only, and exchange dims that are not next to each other."""


def run(numbers: Iterable[int], folder: Path) -> Counter[str]:
    found = Counter[str]()
    for number in numbers:
        case = draw(number, folder)
        outcome = check(case)
        found.update(outcome.counts)
        found["refused" if outcome.refused else "distributed"] += 1
    return found


@pytest.mark.parametrize("numbers", [QUICK, *(pytest.param(many, marks=pytest.mark.long) for many in MANY)])
def test_plans_keep_what_a_program_computes_and_take_what_was_said(numbers: Sequence[int], tmp_path: Path) -> None:
    found = run(numbers, tmp_path)
    assert found["distributed"] > 3, found


@pytest.mark.parametrize(
    "number", [79, *(pytest.param(each, marks=pytest.mark.long) for each in (74, 303, 326, 357, 370))]
)
def test_equal_layers_with_messages_on_streams(number: int, tmp_path: Path) -> None:
    """Gradients that are reduced in every microbatch are added up beside computation."""
    found = check(draw_layers(number, tmp_path))
    assert found.counts["proven"], found
    assert found.counts["sums on streams"]


@pytest.mark.parametrize(("number", "bucket"), [(30, 600), pytest.param(42, 600, marks=pytest.mark.long), (48, 0)])
def test_overlap_in_groups_of_devices(number: int, bucket: int, tmp_path: Path) -> None:
    """Buckets of groups, and what functions return on a stream, on whichever stage they run."""
    case = draw(number, tmp_path)
    devices = {"dp": 2, "tp": 2} if case.options.dp * case.options.tp == 1 else {}
    options = replace(case.options, overlap=True, grouped=True, sharding="ilp", zero=2, bucket=bucket, **devices)
    found = check(replace(case, options=options, expand=False, backend="", tight=None))
    assert not found.refused
    assert found.counts["proven"]


@pytest.mark.parametrize(("number", "chunks"), [pytest.param(2022, 3, marks=pytest.mark.long), (2039, 2)])
def test_collectives_in_chunks(number: int, chunks: int, tmp_path: Path) -> None:
    """Sums beside what makes them, and gathers beside what uses them."""
    case = draw(number, tmp_path)
    options = replace(case.options, overlap=True, tp=2, chunks=chunks, sharding="ilp", restrict="", bucket=0)
    whole, cut = (
        replace(case, options=replace(options, chunks=n), expand=False, backend="", tight=None) for n in (1, chunks)
    )
    assert len(collectives_of(cut)) > len(collectives_of(whole))
    assert check(cut).counts["proven"]


def collectives_of(case: Case) -> list[CollectiveOp]:
    module = case.sequential.clone()
    case.options.apply(Context(), module)
    return [op for op in module.walk() if isinstance(op, CollectiveOp)]


@pytest.mark.long
def test_sums_of_which_a_device_has_zeros_only(tmp_path: Path) -> None:
    """A loop over microbatches passes them on; they are made on whichever stage needs them."""
    found = check(replace(draw(385, tmp_path), expand=False, backend=""))
    assert found.counts["proven"]


@pytest.mark.long
def test_many_plans(tmp_path: Path) -> None:
    found = run(range(100, 190), tmp_path)
    assert found["distributed"] > 50, found
    assert found["proven"] > 0.9 * found["distributed"], found
