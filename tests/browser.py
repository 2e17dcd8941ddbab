"""Pages looked at in a browser without a window: takes an HTML file and a width, gives a picture, or what a script says of the page.

A Chromium is found by `shutil.which`; where none is, `find_browser` returns None and tests of pages say so and are not run."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
NO_BROWSER = "no Chromium is installed"


def find_browser() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


def evaluate(page: Path, width: int, script: str, dark: bool = False) -> Any:
    """What the body of a function says of the page, once the page's own scripts have run. The page is a frame of this width: a window is never
    narrower than 500 pixels."""
    inner = _with_script(page, f"parent.document.title = JSON.stringify((() => {{ {script} }})());")
    frame = f'<iframe style="border: 0; width: {width}px; height: 1000px" srcdoc="{html.escape(inner)}"></iframe>'
    outer = f'<!doctype html><meta charset="utf-8"><title>{{}}</title><style>:root {{ color-scheme: light dark }}</style><body>{frame}</body>'
    (title,) = re.findall(
        "<title>(.*?)</title>", _browse(outer, max(width, 500) + 20, 1100, dark, "--dump-dom"), re.DOTALL
    )
    return json.loads(html.unescape(title))


def screenshot(
    page: Path, picture: Path, width: int, height: int | None = None, dark: bool = False, script: str = ""
) -> None:
    """A PNG of the page, of its whole height unless one is given, after `script` has run."""
    if height is None:
        height = evaluate(page, width, script + "; return document.documentElement.scrollHeight;", dark)
    _browse(_with_script(page, script), width, height, dark, f"--screenshot={picture}")


def _with_script(page: Path, script: str) -> str:
    return page.read_text(encoding="utf-8").replace("</body>", f"<script>{script}</script></body>")


def _browse(text: str, width: int, height: int, dark: bool, action: str) -> str:
    browser = find_browser()
    assert browser is not None
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(text, encoding="utf-8")
        command = [browser, *OPTIONS, f"--user-data-dir={folder}/profile", f"--window-size={width},{height}", action]
        if dark:
            command.append("--blink-settings=preferredColorScheme=0")
        return subprocess.run([*command, page.as_uri()], capture_output=True, text=True, check=True, timeout=60).stdout
