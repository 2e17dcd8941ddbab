"""The examples of README, the tutorial and the how-to pages print what the pages say."""

import gc
import re
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from distir.tools import distir, distir_opt
from tests.long_cases import also_long

ROOT = Path(__file__).parents[2]
DEMO = runpy.run_path(str(ROOT / "examples" / "demo.py"))
COMMANDS = {"distir": distir.main, "distir-opt": distir_opt.main}


def pattern(expected: str) -> str:
    """What matches the output: `...` is any text, and numbers that are measured or rounded are any numbers."""
    text = "\n".join(re.escape(line).replace(r"\.\.\.", ".*") for line in expected.splitlines())
    text = re.sub(r"\d(\\\.\d+)?e\\-\d+", r"\\S+", text)
    return re.sub(r"[\d\\.]+\\ [mu]?s,\\ the\\ median", r"\\S+ \\S+ the median", text)


def printed_by(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command prints, in this process, which has torch imported."""
    gc.enable()  # a command may leave it off
    with redirect_stdout(StringIO()) as printed, redirect_stderr(printed):
        if words[0] in COMMANDS:
            assert not COMMANDS[words[0]](words[1:]), printed.getvalue()
        else:
            monkeypatch.setattr(sys, "argv", words[1:])
            runpy.run_path(words[1], run_name="__main__")
    return printed.getvalue()


PAGES = {"README.md": 8, "docs/tutorial.md": 4, "docs/does_not_fit.md": 4, "docs/megatron_plan.md": 5}
"""Pages whose commands follow each other, with how many there are at least."""
LONG = "docs/tutorial.md", "docs/does_not_fit.md", "docs/megatron_plan.md"
"""Those that search for minutes."""


@pytest.mark.parametrize("page", also_long(PAGES, [page for page in PAGES if page not in LONG]))
def test_examples(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text("utf-8")
    for name, code in re.findall(r"`(my_\w+\.py)`:\n\n```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        Path(name).write_text(code, "utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    found = DEMO["examples"](text)
    assert len(found) >= PAGES[page]
    for command, expected in found:
        output = printed_by(DEMO["words"](command), monkeypatch)
        printed = "\n".join(line.rstrip() for line in output.splitlines())
        wanted = "\n".join(line.rstrip() for line in expected.splitlines())
        assert re.fullmatch(pattern(wanted), printed, re.DOTALL), f"$ {command}\n{printed}"


def test_quoted_code():
    """README's Python is lines of an example."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    sources = [path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py")]
    assert blocks
    for block in blocks:
        assert any(block in source for source in sources), block
