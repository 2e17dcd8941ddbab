"""Benchmarks name what is there: nothing else in the tests runs them all."""

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OPTIONAL = {"transformers", "timm", "torchvision", "onnxruntime", "onnxscript", "numba"}
"""Packages that not every installation has."""
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "benchmarks").rglob("*.py")
    if not path.stem.startswith("__")
)


@pytest.mark.parametrize("name", MODULES)
def test_it_is_imported(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OPTIONAL:
            raise
