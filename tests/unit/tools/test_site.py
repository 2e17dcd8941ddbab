"""The documents build as a site, without network: every page is in the navigation and every link leads somewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parents[3]


def test_the_site_builds(tmp_path: Path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    start = (tmp_path / "index.html").read_text("utf-8")
    assert "Five minutes with a PyTorch model" in start
    assert "https://fonts." not in start
