"""Regenerated CHECK lines are those of tests that were written so, whatever stood there before."""

from pathlib import Path

import pytest

from tests.update_checks import updated

PASSES = Path(__file__).parents[2] / "filecheck" / "passes"


@pytest.mark.parametrize(
    "name",
    [
        "outline-repeats/parameters_are_arguments",
        "merge-functions/names_of_values_do_not_count",
        "expand-ranks/lines_of_a_mesh",
    ],
)
def test_lines_are_regenerated(name: str, tmp_path: Path):
    path = PASSES / f"{name}.mlir"
    stale = tmp_path / path.name
    stale.write_text(path.read_text("utf-8").replace("[[", "[[OLD"))
    assert updated(stale) == path.read_text("utf-8")


def test_other_run_lines_are_refused():
    with pytest.raises(ValueError, match="expected one line"):
        updated(PASSES / "overlap-communication" / "buckets.mlir")
