"""Documents: their links lead somewhere, the page of figures is made of the figures, and keys of files are those that are read."""

import re
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from benchmarks.figures.__main__ import page
from distir.dialects.errors import DistirError
from distir.interpreters.machines import BUILT_IN
from distir.interpreters.machines.reading import read_machine
from distir.tools.file_reference import MACHINE_TABLES, reference

ROOT = Path(__file__).parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text("utf-8"), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), anchor


def test_readme_leads_to_every_page():
    linked = set(re.findall(r"\]\(docs/([\w.]+)\)", DOCUMENTS[0].read_text("utf-8")))
    assert linked == {path.name for path in DOCUMENTS[1:]}


def test_figures_are_those_of_the_tables():
    """If this fails: `python -m benchmarks.figures > docs/figures.md`."""
    assert (ROOT / "docs" / "figures.md").read_text("utf-8") == page()


FOLDERS = "dialects|interpreters|frontends|passes|backends|tools|tests|examples|benchmarks|docs"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_paths_are_there(path: Path):
    """Files and folders of the repository that a page names."""
    named = re.findall(rf"(?<![\w/.])((?:{FOLDERS})/[\w/.]*\w)", path.read_text("utf-8"))
    gone = {name for name in named if not (ROOT / name).exists() and "my_" not in name}
    assert gone == set()


def test_the_page_of_files_is_made_of_what_they_are_read_into():
    """If this fails: `python -m distir.tools.file_reference > docs/files.md`."""
    assert (ROOT / "docs" / "files.md").read_text("utf-8") == reference()


def whole_machine() -> dict[str, Any]:
    """A machine file with every table."""
    machine = tomllib.loads((BUILT_IN / "dgx-h100.toml").read_text("utf-8"))
    machine["overlap"] = {"compute_slowdown": {"value": 0.1, "source": "test"}}
    return machine


def table_of(machine: dict[str, Any], title: str) -> dict[str, Any]:
    """The table of a title of the page: the first of those that it stands for, and the outermost level."""
    found: Any = machine
    for name in re.findall(r"\w+", title):
        found = next((v for v in found.values() if isinstance(v, dict)), None) if name.isupper() else found[name]
        found = found[-1 if title == "[[levels]]" else 0] if isinstance(found, list) else found
    return next(v for v in found.values() if isinstance(v, dict)) if "KIND" in title else found


@pytest.mark.parametrize("title", [title for title, _ in MACHINE_TABLES])
def test_keys_of_a_machine_file_are_required_as_the_page_says(title: str, tmp_path: Path):
    text = (ROOT / "docs" / "files.md").read_text("utf-8").partition(f"### `{title}`\n")[2].partition("\n##")[0]
    required = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|", text, re.MULTILINE))
    known = table_of(whole_machine(), title).keys() & required.keys()
    assert known
    for key in known:
        machine = whole_machine()
        del table_of(machine, title)[key]
        (tmp_path / "machine.toml").write_text(tomlkit.dumps(machine))
        expected = pytest.raises(DistirError) if required[key] == "required" else nullcontext()
        with expected:
            read_machine(tmp_path / "machine.toml")
