"""Passes describe themselves: every one has a summary and every option a help, and `docs/passes.md` is what they say."""

from pathlib import Path

import pytest

from distir.passes.registry import PASSES
from distir.tools.pass_reference import described, help_text, own_passes, reference

DOCUMENT = Path(__file__).parents[3] / "docs" / "passes.md"


@pytest.mark.parametrize("name", sorted(PASSES))
def test_a_pass_says_what_it_is(name: str):
    found = described(PASSES[name])
    assert found.name == name
    assert 10 < len(found.summary) < 250
    assert [option.name for option in found.options if not option.help] == []


def test_the_document_is_made_of_the_passes():
    """If this fails: `python -m distir.tools.pass_reference > docs/passes.md`."""
    assert DOCUMENT.read_text("utf-8") == reference(own_passes(with_plugins=False))


def test_help_is_as_wide_as_it_may_be():
    text = help_text(own_passes(), 78)
    assert max(map(len, text.splitlines())) <= 78
    assert "ilp-shard: the fastest sharding over a mesh" in " ".join(text.split())
