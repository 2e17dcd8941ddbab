"""Writes a report's HTML. In goes a simulation or a search; out comes the text of the file. Texts from models are
data: JSON inside a script element that no browser runs, with `<` escaped. The script shows them as text nodes; a
policy in the page forbids every connection."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distir.backends.report.plans import plans_data
from distir.backends.report.run import bytes_text, run_data, run_tiles, time_text

if TYPE_CHECKING:
    from distir.interpreters.simulate.analysis import Analysis
    from distir.passes.search.configurations import Outcome

FOLDER = Path(__file__).parent
NOTHING: Mapping[str, str] = {}
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


def simulation_report(
    title: str,
    analysis: Analysis,
    batch: int | None,
    explanation: Sequence[str] = (),
    facts: Mapping[str, str] = NOTHING,
) -> str:
    """A program's simulation; `batch` is the samples of one run, if it has that; `explanation` the lines that say why its sharding
    was chosen; `facts` where the figures come from."""
    data = {"tiles": run_tiles(analysis, batch), "run": run_data(analysis), "explanation": list(explanation)}
    data["facts"] = [[name, text] for name, text in facts.items() if text]
    return _page(title, f"{analysis.machine.name}, {analysis.summary.devices} devices", data)


def search_report(
    title: str,
    outcomes: Sequence[Outcome],
    best: Sequence[Outcome],
    memory_limit_bytes: int,
    analysis: Analysis | None = None,
    facts: Mapping[str, str] = NOTHING,
    more: Sequence[Mapping[str, Any]] = (),
) -> str:
    """A search: all plans, and where one fits, the simulation of the best. `best` is ranked; the other outcomes follow with
    the reason why they are out. `more` has other figures of the ranked ones (`plans_data`)."""
    about = f"{len(outcomes)} plans looked at, {len(best)} fit in {bytes_text(memory_limit_bytes)} per device"
    data: dict[str, Any] = {"tiles": [], "search": plans_data(outcomes, best, memory_limit_bytes, more)}
    data["facts"] = [[name, text] for name, text in facts.items() if text]
    if best:
        c = best[0].configuration
        data["tiles"].append(
            ["the best plan", c.degrees_text, f"batch {c.batch}" + (f", {c.schedule}" if c.pp > 1 else ""), False]
        )
        if len(best) > 1:
            margin = best[0].throughput / best[1].throughput - 1
            o = best[1].configuration
            data["tiles"].append(
                [
                    "faster than the next by",
                    f"{margin:.1%}",
                    f"{o.degrees_text}, batch {o.batch}",
                    False,
                ]
            )
        if analysis is None and best[0].figures is not None:
            data["tiles"].append(["latency", time_text(best[0].figures.latency_seconds), "", False])
    if analysis is not None:
        data["tiles"] += run_tiles(analysis, best[0].configuration.batch)
        data["run"] = run_data(analysis)
    return _page(title, about, data)


def _page(title: str, about: str, data: dict[str, Any]) -> str:
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    style, script = ((FOLDER / f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" '
        f'content="{POLICY}">\n<meta name="viewport" content="width=device-width">\n<title>{html.escape(title)}</title>\n'
        f"<style>\n{style}</style>\n<body>\n<h1>{html.escape(title)}</h1>\n"
        f'<p class="soft">{html.escape(about)}</p>\n<script type="application/json" id="data">{text}</script>\n'
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )
