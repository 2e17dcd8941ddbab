"""The table of architectures and what became of them: `architectures.csv` (written by hand) and `results.json` (written by a sweep) go in;
the summary in `README.md` comes out."""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.models.examine import PLANS, Architecture, State

FOLDER = Path(__file__).parent
ARCHITECTURES, RESULTS, SUMMARY = FOLDER / "architectures.csv", FOLDER / "results.json", FOLDER / "README.md"
START, END = "<!-- table: python -m benchmarks.models -->\n", "<!-- end of table -->\n"
STEPS = ("export", "import", "static", "equal", "rules", *PLANS)
PASSES = ("ok", "verified")
KINDS = {"onnx": "exported to ONNX", "file": "ONNX files that packages ship", "step": "PyTorch training steps"}

Results = dict[str, dict[str, State]]
"""By name of the architecture, by step."""


def architectures() -> list[Architecture]:
    """Those of the table, in its order."""
    with ARCHITECTURES.open() as file:
        rows = list(csv.DictReader(file))
    return [Architecture(row["kind"], row["source"], json.loads(row["options"] or "{}")) for row in rows]


def read_results(path: Path = RESULTS) -> Results:
    return json.loads(path.read_text()) if path.exists() else {}


def write_results(results: Results, path: Path = RESULTS) -> None:
    """One line for each architecture, in the order of the table."""
    order = {architecture.name: index for index, architecture in enumerate(architectures())}
    names = sorted(results, key=lambda name: (order.get(name, len(order)), name))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(results[name])}" for name in names)
    write(path, f"{{\n{lines}\n}}\n")


def write(path: Path, text: str) -> None:
    """All of it or nothing."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def summary(results: Results) -> str:
    """The counts of each kind, then the models of which a step fails, by reason."""
    lines = ["| | " + " | ".join(KINDS.values()) + " |", "|---|" + "---|" * len(KINDS)]
    of_kind = {kind: _measured(results, kind) for kind in KINDS}
    lines.append("| listed | " + " | ".join(str(sum(a.kind == kind for a in architectures())) for kind in KINDS) + " |")
    lines.append("| tried so far | " + " | ".join(str(len(rows)) for rows in of_kind.values()) + " |")
    for step in STEPS:
        lines.append(f"| {step} | " + " | ".join(_count(rows, step) for rows in of_kind.values()) + " |")
    for plan in ("dp=2 tp=2", "dp=2 pp=2"):
        said = f"| of these, at most 0.6 of the parameters on a device ({plan}) | "
        lines.append(said + " | ".join(_halved(rows, plan) for rows in of_kind.values()) + " |")
    lines.append("| CPU seconds, median and most | " + " | ".join(_seconds(rows) for rows in of_kind.values()) + " |")
    lines += ["", "What does not pass, and what is said:", "", "| model | step | state | why |", "|---|---|---|---|"]
    for architecture in architectures():
        for step, state in results.get(architecture.name, {}).items():
            if state["state"] not in PASSES and not (step == "ilp-shard" and state["state"] == "nothing cut"):
                lines.append(f"| {architecture.name} | {step} | {state['state']} | {_short(state.get('why', ''))} |")
    return "\n".join(lines) + "\n"


def _measured(results: Results, kind: str) -> list[Mapping[str, State]]:
    """What there is of a kind, without what is not installed, or cannot be exported, which is not ours."""
    names = [a.name for a in architectures() if a.kind == kind and a.name in results]
    return [results[name] for name in names if results[name].get("export", {}).get("state") != "missing"]


def _count(rows: Sequence[Mapping[str, State]], step: str) -> str:
    """How many pass, of those that were exported (of `export`, of all)."""
    tried = rows if step == "export" else [row for row in rows if passes(row, "export")]
    good = sum(passes(row, step) or (step == "ilp-shard" and _state(row, step) == "nothing cut") for row in tried)
    return f"{good} of {len(tried)}"


def passes(row: Mapping[str, State], step: str) -> bool:
    return _state(row, step) in PASSES


def _state(row: Mapping[str, State], step: str) -> str:
    return str(row.get(step, {}).get("state", ""))


def _halved(rows: Sequence[Mapping[str, State]], plan: str) -> str:
    good = [row[plan] for row in rows if passes(row, plan)]
    return f"{sum(state['parameters'] <= 0.6 for state in good)} of {len(good)}"


def _seconds(rows: Sequence[Mapping[str, State]]) -> str:
    """Of all steps but the export, by model."""
    spent = sorted(total_seconds(row) for row in rows)
    return f"{spent[len(spent) // 2]:.0f}, {spent[-1]:.0f}" if spent else ""


def total_seconds(row: Mapping[str, State]) -> float:
    return sum(float(state.get("seconds", 0.0)) for step, state in row.items() if step != "export")


def _short(text: str) -> str:
    text = re.sub(r"\s+", " ", text).replace("|", "/").replace("<", "(").replace(">", ")")
    return text if len(text) <= 160 else f"{text[:157]}..."


def states(rows: Iterable[Mapping[str, State]], step: str) -> Counter[str]:
    return Counter(_state(row, step) for row in rows)


def write_summary(results: Results) -> None:
    """Replaces the table in README.md."""
    before, _, rest = SUMMARY.read_text().partition(START)
    write(SUMMARY, f"{before}{START}{summary(results)}{END}{rest.partition(END)[2]}")
