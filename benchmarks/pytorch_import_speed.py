"""Import of GPT-3 175B's training step (forward, backward, AdamW) without a weight: seconds, memory, operations.

    python -m benchmarks.pytorch_import_speed [--layers 96]        # needs pip install 'distir[models]'

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
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    with torch.device("meta"):
        config = transformers.GPT2Config(
            n_layer=args.layers, n_embd=12288, n_head=96, n_positions=2048, use_cache=False, attn_implementation="eager"
        )
        model = transformers.GPT2LMHeadModel(config).eval()
        tokens = torch.ones(8, 2048, dtype=torch.long)
    step = training_step(
        model,
        lambda output, label: cross_entropy(output.logits.flatten(0, 1), label.flatten()),
        torch.optim.AdamW(model.parameters(), lr=1e-4),
    )
    traced = [0.0]
    trace = tracing._traced

    def timed(*arguments):  # type: ignore[no-untyped-def]
        start = time.perf_counter()
        graph = trace(*arguments)
        traced[0] += time.perf_counter() - start
        return graph

    tracing._traced = timed  # type: ignore[assignment]
    start, cpu = time.perf_counter(), time.process_time()
    module = import_step(step, (tokens, tokens))
    seconds = time.perf_counter() - start
    operations = sum(1 for _ in module.walk())
    cpu = time.process_time() - cpu
    print(
        f"import   {seconds:6.1f} s, {seconds / traced[0]:.2f} of tracing alone ({traced[0]:.1f} s), {operations} operations"
    )
    start = time.perf_counter()
    OutlineRepeatsPass().apply(Context(), module)
    print(f"outline  {time.perf_counter() - start:6.1f} s, {sum(1 for _ in module.walk())} operations left")
    print(f"memory   {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:6.2f} GiB at most")


if __name__ == "__main__":
    main()
