"""CPU seconds of the search over the grid of the DistIR paper (section 5.1): 16 devices, all degrees in powers of two, 2 to 128
microbatches where there is a pipeline, batches of 128 to 1,048,576: 1035 configurations of GPT-2 175B, shapes only.

    python -m benchmarks.search_grid [--batch B]

Prints what the file takes to read (it is written to a temporary folder first), what one program per plan takes, and beside it, of
the same run, one program per configuration, by another search that knows nothing, and the program of all devices, which is what is
written: estimated from a few of one batch size. All figures must be equal. The published search took 138 minutes on 56 cores
(Table 1). Measured on two cores without other work: 1.94 to 2.05 s with a program per plan (median of ten processes 1.97), 10.1 s with
one per configuration, about 220 s with that of all devices; the targets are 2 s and 15 s. (A quarter of the 1.97 s chooses the tensor
axis for four degrees, a fifth cuts and lowers stages, the rest writes and simulates 75 entries.) `distir search` of the same grid
looks for the ten fastest (32 of 1035 plans simulated, the others bounded): 4.4 s with the start, reading the file and rules that are
known; its target is 10 s.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xdsl.context import Context

from benchmarks.gpt2_175b import level1
from distir.interpreters.entry import entry_function
from distir.interpreters.machines import load_machine
from distir.passes.distribution.batch.batch_axis import parse_batch
from distir.passes.dtp_parallelize import prepare
from distir.passes.search.configurations import PAPER_MICROBATCHES, Outcome, grid
from distir.passes.search.search import Search, leave_collector_off
from distir.tools.commands.model import load_model
from distir.tools.commands.search import _binder  # pyright: ignore[reportPrivateUsage]

BATCHES = [2**i for i in range(7, 21)]


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds, and the result."""
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description="The 1035-configuration grid of GPT-2 175B.")
    parser.add_argument(
        "--batch", type=int, default=4096, choices=BATCHES, help="of which some are built for all devices"
    )
    batch = parser.parse_args().batch
    leave_collector_off()  # as the command does
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "gpt2_175b.mlir"
        path.write_text(str(level1()))
        read, model = timed(lambda: load_model(str(path)))
    print(f"file to level 1 program                   {read:8.2f} s")
    bind = _binder(model, "GPT-2 175B", {}, parse_batch("", entry_function(model)))
    prepared, base = timed(lambda: _prepared(bind))
    print(f"level 1 to annotated program, once        {prepared:8.2f} s")

    def new_search() -> Search:
        return Search(lambda _: base.clone(), load_machine("dgx-2"), "analytic", 10**15)

    search = new_search()
    configurations = grid(16, BATCHES, PAPER_MICROBATCHES, ["1f1b"])
    seconds, outcomes = timed(lambda: list(search.outcomes(configurations)))
    plans = len({(c.layout, c.schedule) for c in configurations})
    print(f"{len(configurations)} configurations, {plans} programs        {seconds:8.2f} s")
    each, found = timed(lambda: list(new_search().one_by_one(configurations)))
    assert sorted(found, key=by_configuration) == sorted(outcomes, key=by_configuration), "others have other figures"
    print(f"a program each                            {each:8.2f} s (figures equal)")
    few = [o for o in outcomes if o.configuration.batch == batch][::8]
    whole, found = timed(lambda: [search.evaluate_whole(o.configuration) for o in few])
    assert found == few, "the program of all devices has other figures"
    whole *= len(configurations) / len(few)
    print(f"the program of all devices for each       {whole:8.2f} s (from {len(few)}; figures equal)")
    print(f"ratios to a program per plan              {each / seconds:8.1f}, {whole / seconds:.1f}")


def by_configuration(outcome: Outcome) -> str:
    return str(outcome.configuration)


def _prepared(bind: Callable[[int], Any]) -> Any:
    module = bind(BATCHES[0])
    prepare(Context(), module)
    return module


if __name__ == "__main__":
    main()
