"""Real exports: models of `transformers` with random weights, exported by torch.onnx with an open batch, through distir.

    python benchmarks/onnx_models.py [--no-plans] [NAME ...]        # needs pip install 'distir[models]'

For each: nodes, whether every shape is static after `onnx-fold-shapes`, the largest difference between the reference
executor and torch (relative to the largest output), and of `dtp-parallelize` with D=2 x T=2 (and P=2 where layers
repeat) either the largest difference to the sequential program in float64 or why it refuses.
"""

import argparse
import logging
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from distir.dialects.errors import DistirError
from distir.frontends.onnx import import_model
from distir.interpreters.reference import run
from distir.interpreters.weights import attach, weights_of
from distir.passes.dtp_parallelize import DtpParallelizePass
from distir.passes.onnx_fold_shapes import OnnxFoldShapesPass

BATCH, LENGTH, VOCABULARY = 4, 6, 64


class Logits(nn.Module):
    """The model as a function of tensors to one tensor."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        super().__init__()
        self.model, self.options = model, options

    def forward(self, *inputs: Tensor) -> Tensor:
        result = self.model(*inputs, **self.options)
        return result.logits if hasattr(result, "logits") else result.last_hidden_state


class Translation(nn.Module):
    """An encoder-decoder as a function of two sequences."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.model(input_ids=source, decoder_input_ids=target, use_cache=False).logits


def tokens() -> Tensor:
    return torch.randint(0, VOCABULARY, (BATCH, LENGTH))


def gpt2() -> tuple[nn.Module, list[Tensor]]:
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=4, vocab_size=VOCABULARY, n_positions=32, attn_implementation="eager"
    )
    return Logits(transformers.GPT2LMHeadModel(config), use_cache=False), [tokens()]


def llama() -> tuple[nn.Module, list[Tensor]]:
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=32,
        attn_implementation="eager",
    )
    return Logits(transformers.LlamaForCausalLM(config), use_cache=False), [tokens()]


def bert() -> tuple[nn.Module, list[Tensor]]:
    config = transformers.BertConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=VOCABULARY,
        max_position_embeddings=32,
        attn_implementation="eager",
    )
    return Logits(transformers.BertForMaskedLM(config)), [tokens()]


def vit() -> tuple[nn.Module, list[Tensor]]:
    config = transformers.ViTConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=16,
        patch_size=4,
        attn_implementation="eager",
    )
    return Logits(transformers.ViTForImageClassification(config)), [torch.randn(BATCH, 3, 16, 16)]


def t5() -> tuple[nn.Module, list[Tensor]]:
    config = transformers.T5Config(
        d_model=32,
        d_ff=64,
        d_kv=8,
        num_layers=2,
        num_heads=4,
        vocab_size=VOCABULARY,
        decoder_start_token_id=0,
        attn_implementation="eager",
    )
    return Translation(transformers.T5ForConditionalGeneration(config)), [tokens(), tokens()]


def mixtral() -> tuple[nn.Module, list[Tensor]]:
    config = transformers.MixtralConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        vocab_size=VOCABULARY,
        max_position_embeddings=32,
        attn_implementation="eager",
        experts_implementation="batched_mm",
    )
    return Logits(transformers.MixtralForCausalLM(config), use_cache=False), [tokens()]


def resnet() -> tuple[nn.Module, list[Tensor]]:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=10
    )
    return Logits(transformers.ResNetForImageClassification(config)), [torch.randn(BATCH, 3, 32, 32)]


MODELS: dict[str, Callable[[], tuple[nn.Module, list[Tensor]]]] = {
    "gpt2": gpt2,
    "llama": llama,
    "bert": bert,
    "vit": vit,
    "t5": t5,
    "mixtral": mixtral,
    "resnet": resnet,
}
REPEATS = frozenset({"gpt2", "llama", "bert", "vit", "mixtral"})
"""Models of one stack of equal layers: they can be cut into pipeline stages."""


@dataclass
class Outcome:
    """What became of one model."""

    nodes: int
    seconds: float
    """Import and folding."""
    is_static: bool
    difference: float
    """Between the reference executor and torch, relative to the largest output."""
    plans: dict[str, float | str] = field(default_factory=dict[str, "float | str"])
    """By plan (`dp=2 tp=2`), the difference to the sequential program in float64, or why there is none."""


def exported(model: nn.Module, inputs: list[Tensor]) -> Any:
    """The model with an open batch: an exporter that knows it makes constants (masks) of the batch's size."""
    batch = {0: torch.export.Dim("batch", min=2)}
    shapes = tuple(batch for _ in inputs)
    dynamic = shapes if isinstance(model, Translation) else (shapes,)
    program = torch.onnx.export(
        model, tuple(inputs), dynamo=True, opset_version=18, verbose=False, dynamic_shapes=dynamic
    )
    assert program is not None
    return program.model_proto


def relative(actual: Any, expected: Any) -> float:
    return float(np.abs(np.asarray(actual) - expected).max() / max(1.0, float(np.abs(expected).max())))


def examine(name: str, plans: Sequence[dict[str, int]] | None = None) -> Outcome:
    """Export, import, fold, run and distribute one model."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        expected = model(*inputs).numpy()
        proto = exported(model, inputs)
    start = time.perf_counter()
    module = import_model(proto, {v.name: tuple(x.shape) for v, x in zip(proto.graph.input, inputs, strict=True)})
    OnnxFoldShapesPass().apply(Context(), module)
    seconds = time.perf_counter() - start
    module.verify()
    feeds = {v.name: x.numpy() for v, x in zip(proto.graph.input, inputs, strict=True)}
    (actual,) = run(module, feeds).values()
    outcome = Outcome(len(proto.graph.node), seconds, "?" not in str(module), relative(actual, expected))
    if plans is None:
        plans = [{"dp": 2, "tp": 2}] + [{"dp": 2, "tp": 2, "pp": 2}] * (name in REPEATS)
    (exact,) = run(module, feeds, dtype=np.float64).values()
    for plan in plans:
        label = " ".join(f"{axis}={size}" for axis, size in plan.items())
        outcome.plans[label] = distributed(module, plan, feeds, exact)
    return outcome


def distributed(module: ModuleOp, plan: dict[str, int], feeds: dict[str, Any], exact: Any) -> float | str:
    copy = module.clone()
    attach(copy, weights_of(module))
    try:
        DtpParallelizePass(**plan).apply(Context(), copy)
        copy.verify()
        (actual,) = run(copy, feeds, dtype=np.float64).values()
    except DistirError as error:
        return str(error)
    return relative(actual, exact)


def main() -> None:
    parser = argparse.ArgumentParser(description="real exports through distir")
    parser.add_argument("names", nargs="*", default=list(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--no-plans", action="store_true", help="import and run only")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    for name in options.names:
        outcome = examine(name, [] if options.no_plans else None)
        rate = outcome.nodes / outcome.seconds
        static = "static" if outcome.is_static else "OPEN DIMENSIONS"
        print(
            f"{name:8} {outcome.nodes:4} nodes  {rate:6.0f} nodes/s  {static}  against torch {outcome.difference:.1e}",
            flush=True,
        )
        for plan, result in outcome.plans.items():
            print(f"         {plan}: {f'equal to {result:.1e}' if isinstance(result, float) else result}", flush=True)


if __name__ == "__main__":
    main()
