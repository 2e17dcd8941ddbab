"""How fast models come in: nodes per second, and the share of each step; text at two sizes, to see that it is linear.

    python benchmarks/onnx_import_speed.py [llama-7b] [gpt3-175b]      # needs pip install 'distir[models]'

Models are shapes only: exported from the meta device, their parameters as inputs. The export itself is torch's and is
not counted (half a minute for Llama-7B, some minutes for GPT-3 175B). Also printed: the memory that the import added.
"""

import argparse
import gc
import logging
import resource
import time
import warnings
from collections.abc import Callable
from io import StringIO
from typing import Any

import onnx
import torch
import transformers
from torch import Tensor, nn
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.func import Func
from xdsl.parser import Parser
from xdsl.printer import Printer

from distir.dialects.onnx import Onnx
from distir.frontends.onnx import _bind_inputs, _value_types, import_model
from distir.frontends.onnx.loading import load_model
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass


class Logits(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids, use_cache=False).logits


def llama(layers: int) -> nn.Module:
    config = transformers.LlamaConfig(num_hidden_layers=layers, attn_implementation="eager")  # the defaults are 7B's
    return transformers.LlamaForCausalLM(config)


def gpt3(layers: int) -> nn.Module:
    config = transformers.GPT2Config(
        n_layer=layers, n_embd=12288, n_head=96, n_positions=2048, attn_implementation="eager"
    )
    return transformers.GPT2LMHeadModel(config)


MODELS: dict[str, tuple[Callable[[int], nn.Module], int]] = {"llama-7b": (llama, 32), "gpt3-175b": (gpt3, 96)}


def exported(build: Callable[[int], nn.Module], layers: int) -> onnx.ModelProto:
    """The model with its parameters as inputs: no value of any is ever made."""
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = Logits(build(layers)).eval()
        ids = torch.zeros((1, 128), dtype=torch.int64)
        program: Any = torch.onnx.export(model, (ids,), dynamo=True, opset_version=18, optimize=False, verbose=False)
    graph = program.model.graph
    for value in [value for value in graph.initializers.values() if value.name.startswith("model.")]:
        value.const_value = None
        graph.initializers.pop(value.name)
        graph.inputs.append(value)
    return program.model_proto


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    gc.collect()
    start = time.process_time()
    result = action()
    return result, time.process_time() - start


def measure(name: str, build: Callable[[int], nn.Module], layers: int) -> float:
    proto = exported(build, layers)
    count = len(proto.graph.node)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    module, whole = timed(lambda: import_model(proto))
    loaded, loading = timed(lambda: load_model(proto))
    _bind_inputs(loaded, {})
    _, inference = timed(lambda: _value_types(loaded))
    _, fold = timed(lambda: OnnxFoldShapesPass().apply(Context(), module))
    added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    static = "?" not in str(module)
    stream = StringIO()
    _, printing = timed(lambda: Printer(stream).print_op(module))
    context = Context()
    for dialect in (Builtin, Func, Onnx):
        context.load_dialect(dialect)
    _, parsing = timed(lambda: Parser(context, stream.getvalue()).parse_module())
    total = whole + fold
    steps = {"load and convert": loading, "infer types": inference, "build": whole - loading - inference, "fold": fold}
    shares = ", ".join(f"{step} {seconds / total:.0%}" for step, seconds in steps.items())
    print(
        f"{name}, {layers} layers: {count} nodes in {total:.2f} s CPU, {count / total:.0f} nodes/s ({shares}); "
        f"{'all shapes static' if static else 'OPEN DIMENSIONS'}; {added:.0f} MB"
    )
    operations = sum(1 for _ in module.walk())
    print(
        f"    text: {operations} operations, printed at {printing / operations * 1e6:.0f} us each, "
        f"parsed at {parsing / operations * 1e6:.0f} us each",
        flush=True,
    )
    return (printing + parsing) / operations


def main() -> None:
    parser = argparse.ArgumentParser(description="speed of the ONNX importer")
    parser.add_argument("names", nargs="*", default=["llama-7b"], help=f"of {', '.join(MODELS)}")
    logging.disable(logging.WARNING)
    gc.set_threshold(200_000, 50, 50)  # as the tools have it
    for name in parser.parse_args().names:
        build, layers = MODELS[name]
        small, large = measure(name, build, layers // 8), measure(name, build, layers)
        print(f"    8 times the layers: {large / small:.2f} times the time per operation of text (1 is linear)")


if __name__ == "__main__":
    main()
