"""The rooms of the repository: each folder imports only from those above it in README's table, and from no other of its own kind in a circle."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = re.findall(r"^\| `(\w+)/` \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)


def imports(source: str) -> Iterator[tuple[int, str]]:
    """The modules that a source imports, with the line: at its top, inside functions, and for types alone."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, each.name) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{each.name}") for each in node.names)


def beyond(room: str, source: str) -> list[str]:
    """What a file of a room imports of the rooms after it."""
    later = ROOMS[ROOMS.index(room) + 1 :]
    return [f"{line}: {name}" for line, name in imports(source) if name.split(".")[:1] == ["distir"] if name.split(".")[1:2] and name.split(".")[1] in later]  # fmt: skip


def test_readme_lists_the_rooms():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(ROOMS) == packages - {"tests", "examples", "benchmarks"}
    assert ROOMS[0] == "dialects"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_those_before_it(room: str):
    found = {
        str(path.relative_to(ROOT)): wrong
        for path in sorted((ROOT / room).rglob("*.py"))
        if (wrong := beyond(room, path.read_text("utf-8")))
    }
    assert found == {}


def test_what_is_found():
    assert beyond("interpreters", "def f():\n    from distir.frontends import weights\n") == [
        "2: distir.frontends",
        "2: distir.frontends.weights",
    ]
    assert beyond("interpreters", "from distir import passes") == ["1: distir.passes"]
    assert beyond("tools", "import distir.dialects.dist, numpy") == []


SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_every_file_says_what_it_is_for(room: str):
    texts = {path: ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "" for path in (ROOT / room).rglob("*.py")}
    assert [str(path) for path, text in texts.items() if len(text.split()) < 5] == []


def test_every_module_is_used():
    """Imported, or named: by a registry (`distir.dialects.aten:Aten`), a command line, a page, or, of what ranks get as files, by the file's name."""
    texts = [path.read_text("utf-8") for path in SOURCES]
    named = {name for text in texts for _, name in imports(text)}
    pages = [
        path.read_text("utf-8")
        for path in (ROOT / "pyproject.toml", ROOT / ".ns/distir/__init__.py", *(ROOT / "docs").glob("*.md"))
    ]
    named.update(name for text in (*texts, *pages) for name in re.findall(r"distir(?:\.\w+)+", text))
    formed = {name for text in texts for name in re.findall(r"(distir(?:\.\w+)+)\.\{", text)}  # f"distir.passes.{name}"
    stems = set(re.findall(r"\w+", "".join(texts)))
    for path in SOURCES:
        module = ".".join(("distir", *path.relative_to(ROOT).with_suffix("").parts))
        is_named = (
            module in named
            or module.rpartition(".")[0] in formed
            or any(name.startswith(f"{module}.") for name in named)
        )
        assert is_named or path.name == "__init__.py" or ("portable" in path.parts and path.stem in stems), module


def folders_of_passes() -> dict[str, set[str]]:
    """The folders of `passes/`, each with those of which it imports something."""
    module_of = {path: ".".join(("distir", *path.relative_to(ROOT).with_suffix("").parts)) for path in PASSES}
    folder_of = {name: str(path.parent.relative_to(ROOT)) for path, name in module_of.items()}
    found: dict[str, set[str]] = {folder: set() for folder in folder_of.values()}
    for path, name in module_of.items():
        imported = {folder_of[other] for _, other in imports(path.read_text("utf-8")) if other in folder_of}
        found[folder_of[name]] |= imported - {folder_of[name]}
    return {folder: others - {"passes"} for folder, others in found.items() if folder != "passes"}


PASSES = sorted((ROOT / "passes").rglob("*.py"))


def test_folders_of_passes_import_each_other_in_no_circle():
    order = list(TopologicalSorter(folders_of_passes()).static_order())  # raises a CycleError that names the circle
    assert order.index("passes/solver") < order.index("passes/sharding") < order.index("passes/search")


def test_the_solver_knows_arrays_alone():
    found = {name for path in (ROOT / "passes" / "solver").glob("*.py") for _, name in imports(path.read_text("utf-8"))}
    own = {name for name in found if name.split(".")[0] in ("distir", "xdsl")}
    assert {name for name in own if not name.startswith("distir.passes.solver")} == set()
