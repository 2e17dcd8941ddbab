"""Into how many microbatches a batch is cut unless told."""

from distir.passes.search.configurations import PAPER_MICROBATCHES, grid, usual_microbatches


def test_microbatches_are_of_few_rows() -> None:
    assert usual_microbatches(96) == [3, 6, 12, 24, 48, 96]
    assert usual_microbatches(25) == [25]
    assert usual_microbatches(1) == []
    assert usual_microbatches(1536) == [3, 6, 12, 24, 48, 96]


def test_of_powers_of_two_they_are_the_papers() -> None:
    told, usual = (grid(16, [128, 4096], k, ["1f1b"]) for k in (PAPER_MICROBATCHES, ()))
    assert set(told) == set(usual)
