"""Staged programs: the loop over microbatches as a call that `microbatch` makes (`loop`, with sums from `accumulators`), and what becomes of it."""
