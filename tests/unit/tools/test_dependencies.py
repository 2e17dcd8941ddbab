"""What `pyproject.toml` declares is what the rooms import: nothing else is imported, and nothing is declared for no reason."""

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("dialects", "interpreters", "frontends", "passes", "backends", "tools")
OPTIONAL = {"pandas", "yaml", "datasets", "lit"}
"""Asked for where a user has them, with a message where not."""
CARRIED = {"google": "onnx"}
"""Libraries that come with another."""
UNSEEN = {"highspy", "jax"}
"""pulp runs one; the other is imported by name (`dialects/jax/library`)."""


def imported() -> set[str]:
    found: set[str] = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
                found.update(name.partition(".")[0] for name in names)
    emitted = {name for name in found if name.startswith("distir")}  # and distir itself
    return found - set(sys.stdlib_module_names) - emitted


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *extras["onnx"], *extras["torch"], *extras["jax"]]
    return {re.split(r"[\[<>=!~; ]", text)[0] for text in texts}


def test_what_is_imported_is_declared():
    assert {CARRIED.get(name, name) for name in imported() - OPTIONAL} - declared() == set()


def test_what_is_declared_is_imported():
    assert declared() - imported() == UNSEEN
