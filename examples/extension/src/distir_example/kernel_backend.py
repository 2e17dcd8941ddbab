"""A compiler that runs a chain of elementwise operations as one kernel, also past a reduction over rows: no two chains are put together."""

from distir.passes.kernels.grouping import Backend

ROWS = Backend(after_reductions=True, siblings=False, inlines=False, adds_to_sums=False)
