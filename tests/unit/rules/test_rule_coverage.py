"""The table of `docs/rule_table.md` says what discovery finds, and Figure 3 of the MetaDist paper is in it."""

from pathlib import Path

import pytest

from benchmarks.rule_coverage import END, ROW, START, rule_text, table

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
