"""How fast a timeline opens where one looks: windows of a pipeline of 6 million operations, beside the op-by-op simulation of
an eighth of it.

    python benchmarks/trace.py
"""

import json
import time
from collections.abc import Callable
from typing import Any

from benchmarks.simulate import pipeline
from distir.interpreters.simulate import simulate
from distir.interpreters.simulate.critical import critical_path
from distir.interpreters.simulate.expansion import Expansion
from distir.interpreters.simulate.live_tensors import peak_of
from distir.interpreters.simulate.spans import trace_events
from distir.interpreters.simulate.summaries import open_program


def timed(what: str, run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = run()
    seconds = time.process_time() - start
    print(f"{what:44} {seconds * 1e3:9.1f} ms")
    return seconds, found


def main() -> None:
    small = pipeline(replicas=1, ranks=8, stages=2, microbatches=16, layers=96)
    reference, oracle = timed("op by op, D=1 T=8 P=2 K=16", lambda: simulate(small, "dgx-2"))
    module = pipeline(replicas=1, ranks=8, stages=2, microbatches=128, layers=96)
    _, program = timed("open, D=1 T=8 P=2 K=128", lambda: open_program(module, "dgx-2"))
    expansion = Expansion(program)
    _, summary = timed("summary", program.summary)
    end = summary.makespan_picoseconds
    timed("what is live at 16 peaks", lambda: [peak_of(expansion, d) for d in range(summary.devices)])
    timed("critical path", lambda: critical_path(expansion))
    for what, window, depth in (
        ("stages", None, 1),
        ("layers", None, 2),
        ("operations, 1/128 of the run", (end // 2, end // 2 + end // 128), None),
        ("operations, 1/5000 of the run", (end // 2, end // 2 + end // 5000), None),
    ):
        seconds, spans = timed(f"spans: {what}", lambda w=window, d=depth: list(expansion.spans(w, None, d)))
        print(
            f"{'':6}{len(spans)} slices, {reference / seconds:,.0f} times as fast as {len(oracle.steps)} operations one by one"
        )
    _, text = timed("as JSON", lambda: json.dumps(list(trace_events(spans, range(16), summary.clocks))))
    print(f"{'':6}{len(text):,} bytes")


if __name__ == "__main__":
    main()
