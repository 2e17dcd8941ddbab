"""Small models of Transformers' architectures: a model type (`llama`) and a task go in, a module with random weights and example inputs
come out.

One rule makes every configuration small: whole numbers among its options, the default ones, become at most what `SIZES` says of their
names. What some architecture needs beside is written in the table of architectures, as options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

BATCH, LENGTH, VOCABULARY, IMAGE, PATCH, SAMPLES = 4, 8, 96, 32, 8, 800

SIZES: tuple[tuple[str, int], ...] = (
    (r"num_encoder_blocks", 8),  # lists have one entry for each
    (r"(.*_)?(vocab_size|n_words|vocabulary_size).*", VOCABULARY),
    (r"(.*_)?(num_|n_)?(key_value|kv|query)_(heads|groups).*|.*num_(kv|key_value).*heads|n_kv_heads", 2),
    (r"(.*_)?(qk_|q_|v_)?(nope_|rope_)?head_(dim|size).*|d_kv|d_head|(.*_)?attention_head_size|kv_channels|key_dim", 16),
    (r"(.*_)?(num|n)_(.*_)?heads?|(.*_)?(attention|attn)_heads|num_heads", 4),
    (r"(.*_)?(num|n)_(.*_)?experts_per_tok(en)?|(.*_)?top_?k.*|(.*_)?topk.*|num_selected_experts", 2),
    (r"(.*_)?(num|n)_(group|shared_experts)", 1),
    (r"(.*_)?(num|n)_(.*_)?experts|(.*_)?num_local_experts|moe_num_experts", 4),
    (r"(.*_)?(moe|expert|shared).*intermediate_size", 32),
    (r"(.*_)?(intermediate_(size|dim)|ffn_dim|ffn_hidden_size|d_ff|d_inner|dim_ff|inner_dim|mlp_dim|n_inner|hidden_dim|ff_dim|feed_forward_.*size)", 128),
    (r"(.*_)?(q|kv|o|w)_lora_rank|(.*_)?low_rank_dim|(.*_)?lora_rank", 32),
    (r"(.*_)?(d_model|hidden_size|n_embd|embed_dim|embedding_size|word_embed_proj_dim|emb_dim|model_dim|dim|embedding_dim|width|.*_embed_size|output_dim|project_dim|projection_dim)", 64),
    (r"(.*_)?(num_)?(hidden_layers|(en|de)coder_layers|attention_layers)|(.*_)?(n|num)_(.*_)?(layers?|blocks)", 2),
    (r"(.*_)?(max_(source_|target_)?(position|seq|sequence).*|n_positions|n_ctx|max_2d_position_embeddings|context_length)", 64),
    (r"(.*_)?image_size", IMAGE),
    (r"(.*_)?patch_size", PATCH),
    (r"(.*_)?(sliding_window|window_size|attention_window|block_size|chunk_size|attention_chunk_size)", 4),
    (r"(.*_)?num_labels", 8),
)  # fmt: skip
LISTS: tuple[tuple[str, int], ...] = ((r"(.*_)?depths?|layers", 1), (r"(.*_)?image_size", IMAGE))
"""Lists of which each number is at most so much."""
HEADS = (("num_attention_heads", "num_key_value_heads"), ("num_attention_heads", "n_kv_heads"))
"""Where they are equal by default, they are."""


def small_options(config: type[Any]) -> dict[str, Any]:
    """Those options of a configuration that the rule makes smaller than they are by default."""
    default = config()
    found: dict[str, Any] = {}
    for name in _options(config):
        value = getattr(default, name, None)
        nested = config.sub_configs.get(name) if isinstance(getattr(config, "sub_configs", None), Mapping) else None
        if nested is not None and inspect.isclass(nested) and hasattr(nested, "model_type"):
            try:
                found[name] = small_options(nested)
            except Exception:  # a configuration that stands for any
                continue
        elif isinstance(value, int) and not isinstance(value, bool):
            if (most := _most(SIZES, name)) is not None and value > most:
                found[name] = most
        elif isinstance(value, list | tuple) and value and all(type(each) is int for each in value):
            if (most := _most(LISTS, name)) is not None:
                found[name] = [min(each, most) for each in value]
    for heads, groups in HEADS:
        if getattr(default, heads, None) == getattr(default, groups, 0) and heads in found:
            found[groups] = found[heads]
    return found


def _options(config: type[Any]) -> list[str]:
    names = [n for c in config.__mro__ for n in getattr(c, "__annotations__", {}) if c.__module__ == config.__module__]
    names += [n for n in inspect.signature(config.__init__).parameters if n not in ("self", "kwargs", "args")]
    return list(dict.fromkeys(names))


def _most(table: tuple[tuple[str, int], ...], name: str) -> int | None:
    return next((most for pattern, most in table if re.fullmatch(pattern, name)), None)


class Outputs(nn.Module):
    """A model as a function of tensors by name to one tensor, the main result."""

    def __init__(self, model: nn.Module, names: list[str], **options: Any) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, *inputs: Tensor) -> Tensor:
        given = dict(zip(self.names, inputs, strict=True))
        return main_result(self.model(**given, **self.options))


MAIN = (
    "logits",
    "last_hidden_state",
    "prediction_logits",
    "predicted_depth",
    "reconstruction",
    "logits_per_image",
    "prediction_outputs",
)


def main_result(result: Any) -> Tensor:
    """Of what a model returns."""
    if isinstance(result, Tensor):
        return result
    for name in MAIN:
        if isinstance(found := getattr(result, name, None), Tensor):
            return found
    values = result.values() if isinstance(result, Mapping) else result
    return next(cast(Tensor, value) for value in values if isinstance(value, Tensor))


def _tokens() -> Tensor:
    return torch.randint(3, VOCABULARY - 6, (BATCH, LENGTH))


def _pixels(config: Any) -> Tensor:
    channels = getattr(config, "num_channels", None) or 3
    size = getattr(config, "image_size", None) or IMAGE
    rows, columns = size if isinstance(size, list | tuple) else (size, size)
    return torch.randn(BATCH, channels, rows, columns)


TASKS: dict[str, tuple[str, Callable[[Any], dict[str, Tensor]], dict[str, Any]]] = {
    "causal": ("AutoModelForCausalLM", lambda c: {"input_ids": _tokens()}, {"use_cache": False}),
    "masked": ("AutoModelForMaskedLM", lambda c: {"input_ids": _tokens()}, {}),
    "text": ("AutoModel", lambda c: {"input_ids": _tokens()}, {}),
    "image": ("AutoModelForImageClassification", lambda c: {"pixel_values": _pixels(c)}, {}),
    "pixels": ("AutoModel", lambda c: {"pixel_values": _pixels(c)}, {}),
    "seq2seq": (
        "AutoModelForSeq2SeqLM",
        lambda c: {"input_ids": _tokens(), "decoder_input_ids": _tokens()},
        {"use_cache": False},
    ),
    "audio": ("AutoModel", lambda c: {"input_values": torch.randn(BATCH, SAMPLES)}, {}),
    "speech": (
        "AutoModelForSpeechSeq2Seq",
        lambda c: {
            "input_features": torch.randn(BATCH, c.num_mel_bins, 2 * c.max_source_positions),
            "decoder_input_ids": _tokens(),
        },
        {"use_cache": False},
    ),
}
"""By task: the class, the inputs, and what is given beside."""


def small_model(task: str, model_type: str, **more: Any) -> tuple[nn.Module, list[Tensor]]:
    """A small model of an architecture for a task, in evaluation mode, and its example inputs. `more` are options."""
    import transformers

    torch.manual_seed(0)
    config = small_config(model_type, **more)
    class_name, inputs, options = TASKS[task]
    model = getattr(transformers, class_name).from_config(config, attn_implementation="eager")
    given = inputs(config)
    taken = inspect.signature(model.forward).parameters
    options = {name: value for name, value in options.items() if name in taken}
    return Outputs(model, list(given), **options).eval(), list(given.values())


def small_config(model_type: str, **more: Any) -> Any:
    """The configuration of an architecture, made small."""
    import transformers

    config = type(transformers.AutoConfig.for_model(model_type))
    common = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    return config(**{**common, **small_options(config), **more})
