"""Traces code for an accelerator on the CPU. In goes a step's code; while it runs, `torch.autocast` of any device is
that of the CPU, in the same type, and casts as accelerators do (`autocast`). Numbers drawn by Python or numpy, which
a program would repeat for ever, are refused."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.amp.autocast_mode import autocast

from distir.dialects.errors import DistirError
from distir.frontends.pytorch.autocast import as_accelerators_cast


@contextmanager
def autocast_on_cpu() -> Generator[None]:
    """`torch.autocast` of any device is that of the CPU meanwhile, which casts what an accelerator's does."""
    init = autocast.__init__

    def on_cpu(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if dtype is None and device_type != "cpu":
            dtype = torch.get_autocast_dtype(device_type)
        # make_fx switches the cache off, and then a parameter is cast at every use.
        init(self, "cpu", dtype, enabled, cache_enabled is not False)

    autocast.__init__ = on_cpu
    try:
        with as_accelerators_cast():
            yield
    finally:
        autocast.__init__ = init


@contextmanager
def without_draws_of_python(name: str) -> Generator[None]:
    """Raises DistirError if Python's or numpy's generator was used meanwhile; both are as before."""
    python, legacy = random.getstate(), np.random.get_state()
    try:
        yield
        used = "random" if random.getstate() != python else None
        if str(np.random.get_state()) != str(legacy):
            used = "numpy.random"
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
    if used:
        raise DistirError(
            f"{name} draws numbers by {used}, which would be the same in every step of a program: draw them with torch.rand"
        )
