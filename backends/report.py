"""A search as one self-contained HTML page: every plan's throughput against its memory, and the ranked table.

No script, no network: the plot is inline SVG, and the page opens from a file anywhere."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distir.passes.distribution.search import Outcome

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; color: #222 }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #ddd }
td.bar { width: 14rem; padding: .3rem 0 } td.bar span { display: inline-block; height: .9rem }
.compute { background: #4878a8 } .communication { background: #e49444 } .waiting { background: #ddd }
tr.dropped { color: #999 }
"""


def search_report(title: str, outcomes: Sequence[Outcome], best: Sequence[Outcome], memory_limit_bytes: int) -> str:
    """The page. `best` is ranked; the other outcomes follow with the reason why they are out."""
    dropped = [o for o in outcomes if o.dropped is not None]
    rows = [_row(str(rank), o) for rank, o in enumerate(best, 1)] + [_row("", o) for o in dropped]
    columns = "rank,batch,D,T,P,K,schedule,samples/s,latency,peak memory,time of the devices".split(",")
    header = "".join(f"<th>{column}</th>" for column in columns)
    keys = " ".join(f'<span class="{k}">&nbsp;&nbsp;&nbsp;</span> {k}' for k in ("compute", "communication", "waiting"))
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title><style>{STYLE}</style>"
        f"<h1>{html.escape(title)}</h1><p>{len(outcomes)} plans simulated, {len(best)} fit in "
        f"{memory_limit_bytes / 1e9:.1f} GB per device.</p>{_plot(outcomes, memory_limit_bytes)}<p>{keys}</p>"
        f"<table><thead><tr>{header}</tr></thead><tbody>{''.join(rows)}</tbody></table></html>\n"
    )


def _row(rank: str, outcome: Outcome) -> str:
    c, f = outcome.configuration, outcome.figures
    cells = [rank, *map(str, (c.batch, c.dp, c.tp, c.pp, c.microbatches)), c.schedule if c.pp > 1 else "-"]
    if f is None:
        return f'<tr class=dropped>{_cells(cells)}<td colspan=4 style="text-align:left">{html.escape(str(outcome.dropped))}</td></tr>'
    figures = [f"{outcome.throughput:,.1f}", f"{f.latency_seconds * 1e3:.3f} ms", f"{f.peak_memory_bytes / 1e9:.3f} GB"]
    shares = {"compute": f.compute_share, "communication": f.communication_share, "waiting": f.idle_share}
    bars = "".join(f'<span class="{kind}" style="width:{share:.1%}"></span>' for kind, share in shares.items())
    why = html.escape(outcome.dropped or f.limit)
    kind = " class=dropped" if outcome.dropped else ""
    return f'<tr{kind} title="{why}">{_cells([*cells, *figures])}<td class=bar>{bars}</td></tr>'


def _cells(texts: Sequence[str]) -> str:
    return "".join(f"<td>{html.escape(text)}</td>" for text in texts)


def _plot(outcomes: Sequence[Outcome], memory_limit_bytes: int) -> str:
    """Throughput against peak memory, one colour per kind of parallelism, the Pareto front joined."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes: Any = figure.add_subplot()
    points: dict[str, list[tuple[float, float]]] = {}
    for o in outcomes:
        if o.figures is not None:
            c = o.configuration
            kinds = [name for name, degree in (("D", c.dp), ("T", c.tp), ("P", c.pp)) if degree > 1]
            points.setdefault("/".join(kinds) or "one device", []).append(
                (o.figures.peak_memory_bytes / 1e9, o.throughput)
            )
    for kind, found in sorted(points.items()):
        axes.scatter(*zip(*found, strict=True), s=16, label=kind)
    front = _pareto([point for found in points.values() for point in found])
    if front:
        axes.step(*zip(*front, strict=True), where="post", color="#888", linewidth=1, zorder=0)
    highest = max((memory for memory, _ in front), default=0.0)
    if memory_limit_bytes / 1e9 <= 2 * highest:
        axes.axvline(memory_limit_bytes / 1e9, color="#c44", linewidth=1, linestyle="--")
    axes.set(xlabel="peak memory per device, GB", ylabel="samples per second")
    if points:
        axes.legend()
    text = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "distir"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both memory and throughput, by memory."""
    front: list[tuple[float, float]] = []
    for memory, throughput in sorted(points, key=lambda p: (p[0], -p[1])):
        if not front or throughput > front[-1][1]:
            front.append((memory, throughput))
    return front
