"""`docs/errors.md` is what the test of mistakes makes and sees."""

from pathlib import Path

from tests.error_reference import reference


def test_the_document_is_made_of_the_mistakes():
    """If this fails: `python -m tests.error_reference > docs/errors.md`."""
    document = Path(__file__).parents[3] / "docs" / "errors.md"
    assert document.read_text("utf-8") == reference()
