"""The table of `docs/rule_table.md` says what discovery finds, and Figure 3 of the MetaDist paper is in it; no operator cuts less than
`rule_record.txt` says."""

import warnings
from collections.abc import Collection
from pathlib import Path

import pytest

from benchmarks.rule_coverage import END, ROW, START, rule_text, table
from distir.passes.shardcombine.cache import parse_rule
from tests.unit.rule_record import compared, differences, parts, read

DOCUMENT = (Path(__file__).parents[3] / "docs" / "rule_table.md").read_text()
FIGURE_3 = {
    "MatMul": "[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}",
    "Elementwise-Add": "[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}",
    "LayerNorm": "[S1, _] -> {S1: gather(0)}",
}
CHEAP = (
    *FIGURE_3,
    "mm",
    "addmm",
    "linear (3-d)",
    "3x3, groups",
    "by its input, 3x3, padding",
    "by its weight, 3x3, padding",
    "group_norm",
    "embedding",
    "cross_entropy",
)


@pytest.mark.parametrize("name", CHEAP)
@pytest.mark.filterwarnings("ignore")
def test_the_table_is_true(name: str) -> None:
    (row,) = (row for row in ROW if row.name == name)
    rule = rule_text(row)
    assert f"| {name} | `{rule}` |" in DOCUMENT
    assert rule.startswith(FIGURE_3.get(name, ""))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_all_of_the_table_is_true() -> None:
    assert START + table() + END in DOCUMENT


# --- the record ---

RECORD = read()
SAMPLE = sorted(
    {
        *list(RECORD)[::900],
        *("aten.add.Tensor", "aten.cat", "aten.gather", "aten.mm", "aten.native_layer_norm", "aten.view"),
        *("onnx.Conv", "onnx.MatMul"),
    }
)


def check_record(names: Collection[str]) -> None:
    """Raises AssertionError where a rule of these operators has less than the record says; warns where one has more."""
    changes = compared(names)
    if changes.gained:
        warnings.warn(
            "rules have more than recorded: python -m tests.unit.rule_record\n" + "\n".join(changes.gained),
            stacklevel=2,
        )
    assert not changes.lost, "lost factors or partial operands:\n" + "\n".join(changes.lost)


@pytest.mark.filterwarnings("ignore", "default:rules have more")
def test_a_sample_of_the_record_is_not_lost() -> None:
    check_record(SAMPLE)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore", "default:rules have more")
def test_nothing_of_the_record_is_lost() -> None:
    check_record(RECORD)


def test_what_a_rule_has_lost_is_named() -> None:
    """By the dims that it divided, which do not depend on how many factors there are."""
    rule = parse_rule(
        "#dist.rule<[S1, S2], [S2, S3], [S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, "
        "partial = [sum: (0, 2) -> 0, sum: S2, 2 -> 0], found = exact>"
    )
    without = parse_rule("#dist.rule<[_, S1], [S1, S2], [S2] -> {S1: reduce(sum), S2: gather(1)}, found = exact>")
    assert parts(rule) == ["0.0", "0.1+1.0", "1.1+2.0", "sum(0,2)", "sum(2)@0.1+1.0"]
    texts = [" ".join(parts(each)) for each in (rule, without)]
    lost = differences({"gemm": texts[:1]}, [("gemm", texts[1:])])
    assert lost.lost == ["gemm, call 0: 0.0 sum(0,2) sum(2)@0.1+1.0 (now 0.1+1.0 1.1+2.0)"]
    assert not lost.gained
    assert not differences({"gemm": texts[1:]}, [("gemm", texts[:1])]).lost
    assert differences({"gemm": texts}, [("gemm", texts[:1])]).lost == ["gemm, call 1: 0.1+1.0 1.1+2.0 (now -)"]
