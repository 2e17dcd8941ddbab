"""Every operation of every dialect of distir's own has an example that is parsed, verified and printed again, and `docs/dialects.md` is what they say."""

from pathlib import Path

import pytest

from tests.dialect_reference import GENERATED, dialects, examples, parsed, programs, reference

DOCUMENT = Path(__file__).parents[3] / "docs" / "dialects.md"


@pytest.mark.parametrize("name", dialects())
def test_every_operation_says_what_it_is_and_has_an_example(name: str):
    if name not in GENERATED:
        operations = dialects()[name].operations
        assert {op.name for op in operations} == examples(name).keys()
        assert [op.name for op in operations if len(op.__doc__ or "") < 20] == []
    for _, text in programs(name):
        module = parsed(text)
        assert str(parsed(str(module))) == str(module)


def test_the_document_is_made_of_the_dialects():
    """If this fails: `python -m tests.dialect_reference > docs/dialects.md`."""
    assert DOCUMENT.read_text("utf-8") == reference()
