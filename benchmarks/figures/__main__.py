"""The page of measured figures. In go `index.toml` and the tables beside it, which the commands that it names print; out comes `docs/figures.md`.

python -m benchmarks.figures > docs/figures.md
"""

import csv
import sys
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent
HEAD = """\
# Figures

Made by `python -m benchmarks.figures` from the tables in `benchmarks/figures/`. Each names the command that measures it anew. Times are CPU seconds of
one core unless a column says otherwise, on two shared cores without a GPU."""


def page() -> str:
    parts = [HEAD]
    for figure in tomllib.loads((FOLDER / "index.toml").read_text("utf-8"))["figure"]:
        with open(FOLDER / f"{figure['table']}.csv", encoding="utf-8", newline="") as stream:
            header, *rows = csv.reader(stream)
        lines = [header, ["---"] * len(header), *rows]
        parts += [f"## {figure['title']}", f"`{figure['command']}`"]
        parts += [figure["note"]] if "note" in figure else []
        parts.append("\n".join(f"| {' | '.join(cell for cell in line)} |" for line in lines))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
