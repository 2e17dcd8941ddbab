"""Hypothesis on shared machines: no deadlines, and the same examples in every run of `make test`.

`make check-long` draws new examples (`HYPOTHESIS_PROFILE=explore`): a failure there is news of an old fault, and must not
look like one of the change at hand.
"""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores Ctrl-C for what it starts in the background, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Commands that end their process may leave the garbage collector off; tests call them within one."""
    yield
    gc.enable()


@pytest.fixture(scope="session")
def mlp_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training step of `examples/mlp_pytorch.py`, imported."""
    from distir.frontends.pytorch import import_step
    from examples import mlp_pytorch

    path = tmp_path_factory.mktemp("model") / "step.mlir"
    path.write_text(str(import_step(mlp_pytorch.step())))
    return path
