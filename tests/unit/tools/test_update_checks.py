"""Regenerated CHECK lines are those of tests that were written so, whatever stood there before."""

from pathlib import Path

import pytest

from distir.tools.update_checks import checks, main, updated

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


def test_a_file_that_is_refused_leaves_the_others_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    good, bad = tmp_path / "good.mlir", tmp_path / "bad.mlir"
    expected = (PASSES / "merge-functions" / "names_of_values_do_not_count.mlir").read_text("utf-8")
    good.write_text(expected.replace("[[", "[[OLD"))
    bad.write_text("// RUN: true\n")
    with pytest.raises(SystemExit, match="1"):
        main([str(bad), str(good)])
    assert capsys.readouterr().err.startswith(f"update_checks: {bad}: expected one line")
    assert (good.read_text("utf-8"), bad.read_text("utf-8")) == (expected, "// RUN: true\n")


def test_each_program_of_a_split_file_begins_anew():
    printed = """builtin.module {
  dist.mesh @a = <["x" = 2]>
}

// -----
builtin.module {
  dist.mesh @b = <["x" = 2]>
  "test.op"() : () -> ()
}
"""
    assert [line.partition(":")[0] for line in checks(printed)] == ["CHECK", "CHECK", "CHECK-NEXT"]
