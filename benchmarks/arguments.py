"""Arguments that benchmarks have in common."""

import argparse
from collections.abc import Callable, Collection


def one_of(known: Collection[str]) -> Callable[[str], str]:
    """An argparse type: one of these names."""

    def parse(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(f"unknown {text!r}: expected one of {', '.join(known)}")
        return text

    return parse


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """An argparse type: names of these, separated by commas."""
    name = one_of(known)
    return lambda text: [name(each) for each in text.split(",")]
