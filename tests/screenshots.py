"""The pictures of reports in README: searches two models, takes the reports to a browser, writes `docs/images/*.png`.

    python -m tests.screenshots [FOLDER] [--all]        # --all: whole pages, light and dark, at four widths

The models are GPT-2 175B on 16 GPUs and the training step of an eight-layer GPT-3 on 16 GPUs; half a minute each."""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import chdir
from pathlib import Path

from PIL import Image

from benchmarks.gpt2_175b import level1
from distir.tools.distir import main
from tests.browser import NO_BROWSER, find_browser, screenshot

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WIDTHS = 390, 768, 1200, 1600
SEARCHES = {
    "inference": "search gpt2_175b.mlir --machine dgx-2 --set device.memory_capacity_bytes=80GB --devices 16 --batch-sizes 64..256",
    "training": "search gpt3_8_layers.mlir --machine dgx-a100 --devices 16 --pp 4 --microbatches 8",
}
COLOURS = 128
"""Of a picture in README, which makes it a third as large."""


def reports(folder: Path) -> dict[str, Path]:
    """The reports of the two searches."""
    import distir
    from examples import gpt3_pytorch

    with chdir(folder):
        Path("gpt2_175b.mlir").write_text(str(level1()), encoding="utf-8")
        Path("gpt3_8_layers.mlir").write_text(str(distir.import_model(gpt3_pytorch.step(8, 64))), encoding="utf-8")
        for name, command in SEARCHES.items():
            assert main([*command.split(), "--report", f"{name}.html"]) == 0
    return {name: folder / f"{name}.html" for name in SEARCHES}


def for_readme(pages: dict[str, Path], folder: Path) -> None:
    """The plans of the one, in light; the timeline and memory of the other, in dark."""
    begin = "document.querySelectorAll('section').forEach(s => {{ if (!{keep}.some(t => s.firstChild.textContent.startsWith(t))) s.remove(); }});"
    shown = (
        begin.format(keep='["All plans"]'),
        begin.format(keep='["Timeline", "Memory"]') + "document.querySelector('.tiles').remove();",
    )
    for name, script, dark in zip(SEARCHES, shown, (False, True), strict=True):
        picture = folder / f"report_{name}.png"
        screenshot(pages[name], picture, 1100, dark=dark, script=script)
        Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)
        print(f"{picture}: {os.path.getsize(picture):,} bytes")


def whole_pages(pages: dict[str, Path], folder: Path) -> None:
    for name, page in pages.items():
        for width in WIDTHS:
            for dark in (False, True):
                screenshot(page, folder / f"{name}_{width}{'_dark' * dark}.png", width, dark=dark)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Pictures of reports.")
    parser.add_argument("folder", nargs="?", type=Path, default=IMAGES)
    parser.add_argument("--all", action="store_true", help="whole pages, light and dark, 390 to 1,600 pixels wide")
    arguments = parser.parse_args()
    if find_browser() is None:
        parser.exit(1, f"{NO_BROWSER}\n")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        (whole_pages if arguments.all else for_readme)(reports(Path(work)), arguments.folder.resolve())
