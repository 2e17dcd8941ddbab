"""README's examples print what README says."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEMO = runpy.run_path(str(ROOT / "examples" / "demo.py"))
MODULES = {"distir": "distir.tools.distir", "distir-opt": "distir.tools.distir_opt"}


def pattern(expected: str) -> str:
    """What matches the output: `...` is any text, and numbers that are measured or rounded are any numbers."""
    text = "\n".join(re.escape(line).replace(r"\.\.\.", ".*") for line in expected.splitlines())
    text = re.sub(r"\d(\\\.\d+)?e\\-\d+", r"\\S+", text)
    return re.sub(r"[\d\\.]+\\ [mu]?s,\\ the\\ median", r"\\S+ \\S+ the median", text)


def test_examples(tmp_path: Path):
    (tmp_path / "out").mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT / ".ns", ROOT)))}
    found = DEMO["examples"]((ROOT / "README.md").read_text("utf-8"))
    assert len(found) >= 8
    for command, expected in found:
        words = DEMO["words"](command)
        if words[0] in MODULES:
            words = [sys.executable, "-m", MODULES[words[0]], *words[1:]]
        process = subprocess.run(
            words, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.returncode == 0, process.stdout
        printed = "\n".join(line.rstrip() for line in process.stdout.splitlines())
        wanted = "\n".join(line.rstrip() for line in expected.splitlines())
        assert re.fullmatch(pattern(wanted), printed, re.DOTALL), f"$ {command}\n{printed}"


def test_quoted_code():
    """README's Python is lines of an example."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    sources = [path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py")]
    assert blocks
    for block in blocks:
        assert any(block in source for source in sources), block
