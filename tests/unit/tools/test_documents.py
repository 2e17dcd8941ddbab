"""Documents: their links lead somewhere, the page of figures is made of the figures, and keys of files are those that are read."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.figures.__main__ import page
from distir.interpreters.machines.description import (
    AttentionEfficiency,
    Device,
    FittedCollective,
    Level,
    Memory,
    Overlap,
    Tiles,
)
from distir.interpreters.machines.reading import COLLECTIVES, KEYS
from distir.tools.plan_files import SETTINGS

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


def section(page: str, heading: str) -> str:
    """The text below a heading, to the next one of its level."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_page_names_every_key_of_a_machine_file():
    """And no other: keys are the fields of what a file is read into, but for the tables that hold several."""
    parts = (Device, Tiles, AttentionEfficiency, Level, FittedCollective, Memory, Overlap)
    keys = {*KEYS, *COLLECTIVES, "count", "source", "f32", *(field.name for part in parts for field in fields(part))}
    table = "\n".join(line for line in section("cost_models.md", "Machines").splitlines() if line.startswith("|"))
    named = {name for text in re.findall(r"`([^`]*)`", table) for name in re.findall(r"[a-z0-9_]+", text)}
    assert keys - named - {*COLLECTIVES} == set()
    assert named - keys == set()


def test_the_page_names_every_setting_of_a_plan_with_its_default():
    words = {False: "false", True: "true", None: "null"}
    text = " ".join(section("plans.md", "Schema, version 1").partition("Settings, with their defaults:")[2].split())
    lists = text.partition(" Settings without")[0].split(" * ")
    found = {}
    for line in lists:
        names = re.findall(r"`([a-z_]+)`", line)
        found |= dict.fromkeys(filter(SETTINGS.__contains__, names), line)
    assert found.keys() == SETTINGS.keys()
    for name, (default, _) in SETTINGS.items():
        shown = (
            words.get(default, f'"{default}"') if default is None or isinstance(default, bool | str) else str(default)
        )
        assert shown in found[name] or name in ("batch_size", "memory_limit_bytes"), name  # the model's, the machine's
