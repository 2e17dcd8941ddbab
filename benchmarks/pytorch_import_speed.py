"""Import of GPT-3 175B's training step (forward, backward, AdamW) without a weight: CPU seconds (and, in brackets, seconds of the clock),
memory, operations.

    python -m benchmarks.pytorch_import_speed [--layers 96] [--dropout]        # needs pip install 'distir[models]'

The ratio is to tracing alone (make_fx of the same step), measured in the same run. Shapes of GPT-3: Brown et al., 2020, table
2.1; a batch of 8 sequences of 2048 tokens.
"""

import argparse
import resource
import time
import warnings

import torch
import transformers
from torch.nn.functional import cross_entropy
from xdsl.context import Context

from distir.frontends.pytorch import import_step, tracing, training_step
from distir.passes.outline_repeats import OutlineRepeatsPass


def main() -> None:
    parser = argparse.ArgumentParser(description="Import of GPT-3 175B's training step.")
    parser.add_argument("--layers", type=int, default=96)
    parser.add_argument("--dropout", action="store_true", help="in training mode, with GPT-2's dropout of 0.1")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    with torch.device("meta"):
        config = transformers.GPT2Config(
            n_layer=args.layers, n_embd=12288, n_head=96, n_positions=2048, use_cache=False, attn_implementation="eager"
        )
        model = transformers.GPT2LMHeadModel(config).train(args.dropout)
        tokens = torch.ones(8, 2048, dtype=torch.long)
    step = training_step(
        model,
        lambda output, label: cross_entropy(output.logits.flatten(0, 1), label.flatten()),
        torch.optim.AdamW(model.parameters(), lr=1e-4),
    )
    traced = 0.0
    trace = tracing._traced

    def timed(*arguments):  # type: ignore[no-untyped-def]
        nonlocal traced
        start = time.process_time()
        graph = trace(*arguments)
        traced += time.process_time() - start
        return graph

    tracing._traced = timed  # type: ignore[assignment]
    start, cpu = time.perf_counter(), time.process_time()
    module = import_step(step, (tokens, tokens))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(
        f"import   {cpu:6.1f} CPU-s ({seconds:.1f} s), {cpu / traced:.2f} of tracing alone ({traced:.1f} CPU-s), "
        f"{sum(1 for _ in module.walk())} operations"
    )
    start, cpu = time.perf_counter(), time.process_time()
    OutlineRepeatsPass().apply(Context(), module)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"outline  {cpu:6.1f} CPU-s ({seconds:.1f} s), {sum(1 for _ in module.walk())} operations left")
    print(f"memory   {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:6.2f} GiB at most")


if __name__ == "__main__":
    main()
