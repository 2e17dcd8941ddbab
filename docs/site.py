"""What mkdocs asks for when it builds the site. In go README and the pages of this folder; out come README as the first page, and links to files outside
this folder as the files' names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: Any) -> Files:
    """Adds README as the first page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "index.md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A file of the repository that is no page is named."""
    return re.sub(r"\[`?([^\]`]*)`?\]\(\.\./([^)]*)\)", r"\1 (`\2`)", markdown)
