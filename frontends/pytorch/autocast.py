"""Automatic mixed precision as accelerators have it, on whatever device a step is traced. In goes code that runs
under autocast; out come the casts of CUDA. The CPU casts the operators that CUDA's autocast knows, and leaves alone
the operators that only its own knows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

SINGLE = """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar
softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity
poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss
margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
dist pdist cdist renorm logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d
upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
upsample_bicubic2d _upsample_bicubic2d_aa norm.Scalar norm.ScalarOpt_dim""".split()
"""Operators that compute in single precision (ATen/autocast_mode.h, AT_FORALL_FP32)."""
SINGLE_UNLESS_SAID = """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList""".split()
"""Likewise, where no element type is asked for (AT_FORALL_FP32_SET_OPT_DTYPE)."""
WIDEST = "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add".split()
"""Operators that compute in the widest type of their operands (AT_FORALL_PROMOTE)."""
LOWER = """_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul
linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
_scaled_dot_product_flash_attention scaled_dot_product_attention""".split()
"""Operators that compute in autocast's own type (AT_FORALL_LOWER_PRECISION_FP); the CPU's kernels of most do so too, and cast a
parameter once."""
OTHERS = ["binary_cross_entropy", "cudnn_convolution", "cudnn_convolution_transpose"]
"""The first of them CUDA's autocast refuses; here it is left to the CPU's. Nothing calls the others on CPU."""


@contextmanager
def as_accelerators_cast() -> Generator[None]:
    """Autocast of the CPU casts what CUDA's does meanwhile."""
    library = torch.library.Library("aten", "IMPL")
    policies = {**dict.fromkeys(SINGLE, _single), **dict.fromkeys(SINGLE_UNLESS_SAID, _single_unless_said)}
    known = _known_to("AutocastCPU")
    policies |= {**dict.fromkeys(WIDEST, _widest), **dict.fromkeys(set(LOWER) - known, _lower)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that kernels are overridden
        for name, policy in policies.items():
            library.impl(name, _casting(name, policy), "AutocastCPU")
        for name in known - _known_to("AutocastCUDA"):  # what these call is cast, as a cross entropy's logarithms
            library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")
    try:
        yield
    finally:
        library._destroy()  # pyright: ignore[reportPrivateUsage]


def _known_to(key: str) -> set[str]:
    """Operators of ATen that have a kernel of their own for a dispatch key."""
    registered: list[str] = torch._C._dispatch_get_registrations_for_dispatch_key(key)  # pyright: ignore
    return {name.removeprefix("aten::") for name in registered if name.startswith("aten::")}


def _casting(name: str, policy: Callable[[Any, Any, dict[str, Any]], Any]) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):  # pyright: ignore
            return policy(operator, args, kwargs)

    return call


def _cast(tree: Any, dtype: torch.dtype) -> Any:
    """Floating tensors of at most single precision as this type."""

    def cast(leaf: Any) -> Any:
        is_float = isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dtype != torch.float64
        return leaf.to(dtype) if is_float else leaf

    return pytree.tree_map(cast, tree)


def _single(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return operator(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))


def _single_unless_said(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """In single precision, which is the type of the result too; as it is where a type is asked for, or operands are no halves."""
    names = [argument.name for argument in operator._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    first = args[0]
    if (
        given.get("dtype") is None
        and isinstance(first, Tensor)
        and first.is_floating_point()
        and first.dtype != torch.float64
    ):
        return operator(**given | {"dtype": torch.float32})
    return operator(*args, **kwargs)


def _widest(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    dtypes = {t.dtype for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.is_floating_point()}
    if torch.float32 in dtypes and torch.float64 not in dtypes:
        return _single(operator, args, kwargs)
    return operator(*args, **kwargs)


def _lower(operator: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    dtype = torch.get_autocast_dtype("cpu")
    return operator(*_cast(args, dtype), **_cast(kwargs, dtype))
