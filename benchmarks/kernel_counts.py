"""How many kernels `fuse-kernels{backend=inductor}` makes of a transformer block's forward and backward part, beside those that torch.compile's scheduler makes
here. In: a GPT block and the Llama block of the examples, with a loss. Out: both counts, without matrix products and attention, and their ratio.

The scheduler's groups after fusion are counted, with concatenations as it has them for GPUs (`force_pointwise_cat`): its code for CPUs copies each operand, and
puts loops that follow one another into one C++ function. An operation that gives rows and sums of columns (a norm's gradient) counts as two kernels, as there.

    python -m benchmarks.kernel_counts [--list]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp

from distir.dialects.dist.calls import is_kernel
from distir.frontends.pytorch import import_step
from distir.interpreters.costs import kernel_of
from distir.interpreters.work import Kind, work_of
from distir.passes.fuse_kernels import FuseKernelsPass
from distir.passes.kernels.domains import fusible_of
from examples import llama3_pytorch

BATCH, LENGTH, WIDTH, HEADS = 4, 128, 256, 8
OWN = (Kind.ELEMENTWISE, Kind.DATA_MOVEMENT)


class GptBlock(nn.Module):
    """Causal attention and a feed-forward block, each behind a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm_1(x)).chunk(3, -1))
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(seen.transpose(1, 2).flatten(2))
        return x + self.down(gelu(self.up(self.norm_2(x)), approximate="tanh"))


@dataclass(frozen=True)
class Case:
    """A block and what it is given; gradients are those by the first of these and by all parameters."""

    name: str
    block: nn.Module
    inputs: tuple[Tensor, ...]


def cases() -> list[Case]:
    """The blocks, with few columns: counts depend on shapes only where they are equal."""
    torch.manual_seed(0)
    x, rotation = torch.randn(BATCH, LENGTH, WIDTH), torch.randn(LENGTH, WIDTH // HEADS)
    llama = llama3_pytorch.Block(WIDTH, HEADS, 2, 3 * WIDTH, True)
    return [Case("GPT", GptBlock(), (x,)), Case("Llama", llama, (x, rotation, rotation.sin()))]


def own_kernels(case: Case) -> list[str]:
    """What each kernel of ours computes."""
    names, parameters = zip(*case.block.named_parameters(), strict=True)

    def step(*tensors: Tensor) -> Any:
        inputs, weights = tensors[: len(case.inputs)], tensors[len(case.inputs) :]
        leaves = [each.detach().requires_grad_() for each in (inputs[0], *weights)]
        with torch.enable_grad():
            given = (leaves[0], *inputs[1:])
            result = torch.func.functional_call(case.block, dict(zip(names, leaves[1:], strict=True)), given)
            loss = result.square().mean()
        return loss, *torch.autograd.grad(loss, leaves)

    module = import_step(step, (*case.inputs, *(each.detach() for each in parameters)))
    FuseKernelsPass(backend="inductor").apply(Context(), module)
    return list(_kernels(module))


def _kernels(module: ModuleOp) -> Iterator[str]:
    for function in module.body.block.ops:
        if not isinstance(function, FuncOp) or is_kernel(function):
            continue
        for op in function.body.block.ops:
            if (kernel := kernel_of(op)) is None and (isinstance(op, ReturnOp) or work_of(op).kind not in OWN):
                continue
            ops = [op] if kernel is None else [o for o in kernel.body.block.ops if not isinstance(o, ReturnOp)]
            yield ", ".join(each.name for each in ops)
            if any(
                len(each.results) > 1 and (f := fusible_of(each)) is not None and f.reduces == "both" for each in ops
            ):
                yield "columns of the one before"


class _Counted(Exception):
    """Ends a compilation once its kernels are known."""


def compiled_kernels(case: Case) -> list[str]:
    """What each kernel of torch.compile computes: after its fusion, before code is made."""
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    from torch._inductor.exc import InductorError

    found: list[str] = []

    def inner(graph: Any, inputs: Sequence[Any], **options: Any) -> Any:
        whole = cast(Callable[..., Any], make_boxed_func(graph.forward))
        try:
            cast(Any, compile_fx_inner)(graph, inputs, **options)
        except InductorError as error:
            if isinstance(error.inner_exception, _Counted):
                return whole
            raise
        raise AssertionError("nothing was scheduled")

    def backend(graph: Any, inputs: Sequence[Any]) -> Any:
        return cast(Any, compile_fx)(graph, inputs, inner_compile=inner)

    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    with _after_fusion(found):
        inputs = (case.inputs[0].clone().requires_grad_(), *case.inputs[1:])
        cast(Any, torch.compile(lambda *given: case.block(*given).square().mean(), backend=backend))(*inputs).backward()
    return found


@contextmanager
def _after_fusion(found: list[str]) -> Generator[None]:
    import torch._inductor.config as config

    def count(nodes: list[Any]) -> list[Any]:
        for node in nodes:
            if not node.is_extern() and not type(node).__name__.startswith("Nop"):
                origins = {str(origin.target) for each in node.get_nodes() for origin in each.node.origins}
                found.append(", ".join(sorted(origins)))
        raise _Counted

    with cast(Any, config).patch(_post_fusion_custom_pass=count, fx_graph_cache=False, force_pointwise_cat=True):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description="kernels of ours beside those of torch.compile")
    parser.add_argument("--list", action="store_true", help="what each of them computes")
    args = parser.parse_args()
    print(f"{'block':8}{'ours':>6}{'torch.compile':>16}{'ratio':>8}")
    for case in cases():
        own, compiled = own_kernels(case), compiled_kernels(case)
        print(f"{case.name:8}{len(own):6}{len(compiled):16}{len(own) / len(compiled):8.2f}")
        if args.list:
            for title, kernels in (("ours", own), ("torch.compile", compiled)):
                print(f"\n{title}", *kernels, "", sep="\n  ")


if __name__ == "__main__":
    main()
