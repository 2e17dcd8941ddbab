"""Documents: their links lead somewhere, and the page of figures is made of the figures."""

import re
from pathlib import Path

import pytest

from benchmarks.figures.__main__ import page

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
