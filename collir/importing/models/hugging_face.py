"""Models of ``transformers``: from a configuration, without weights, and with experts as products.

``transformers`` routes words to experts by sorting them, with numbers that depend on data. Here a
product of groups gives each word its expert, in no order of computation.
"""

import importlib
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

_NAME = "collir"

_ROOM = "_collir_room"
"""The attribute of a module of experts with the batch, and the room of an expert."""

_SEQ = 2048
"""The most positions, where none are given."""


class HeadError(Exception):
    """A configuration from which no model with a loss can be made."""


def model_of(
    config: Mapping[str, Any], head: str, batch: int, seq: int | None, multiple: int = 1
) -> tuple[Any, dict[str, Any]]:
    """Return a model without weights, and the arguments of its loss, on the device ``meta``.

    Args:
        config: a ``config.json`` of ``transformers``.
        head: the class of the model; empty: the first of the configuration's architectures.
        seq: the number of positions; by default what the model has, and 2048 at most.
        multiple: what the number of words is made a multiple of, by words that get no chance.

    Raises:
        HeadError: there is no such class, no such kind of model, or none with words to add to.
    """
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    kind = config.get("model_type")
    if kind is None:
        raise HeadError('the configuration has no "model_type", such as "llama"')
    name = head or next(iter(config.get("architectures") or ()), "")
    if not name:
        raise HeadError('the configuration has no "architectures": name a class with --head')
    cls = getattr(transformers, name, None)
    if cls is None or not hasattr(cls, "main_input_name"):
        raise HeadError(f"transformers has no model {name}: name another class with --head")
    own = {key: _decoded(value) for key, value in config.items() if key not in _LEFT_OUT}
    settings = transformers.AutoConfig.for_model(**own)
    if hasattr(settings, "use_cache"):
        settings.use_cache = False
    text = settings.get_text_config()
    words = getattr(text, "vocab_size", None)
    if multiple > 1 and words is not None:
        text.vocab_size = -(-words // multiple) * multiple
    with torch.device("meta"):
        model = cls(settings)
        if multiple > 1:
            _leave_out(torch, model, words)
        return model, _arguments(torch, model, settings, batch, seq)


def _leave_out(torch: Any, model: Any, words: int | None) -> None:
    """Give the scores of words beyond some the least number, as in Megatron-LM.

    Raises:
        HeadError: the model gives no scores to words.
    """
    scores = model.get_output_embeddings()
    if scores is None or words is None:
        raise HeadError(f"{type(model).__name__} has no scores of words: leave out --pad-vocab")

    def masked(_: Any, __: Any, output: Any) -> Any:
        there = torch.arange(output.shape[-1], device=output.device) < words
        return torch.where(there, output, torch.finfo(output.dtype).min)

    scores.register_forward_hook(masked)


def _decoded(x: Any) -> Any:
    """Return a setting with the floats that JSON lacks, as transformers writes them."""
    if isinstance(x, dict):
        special = x.get("__float__")  # pyright: ignore
        return float(special) if special else {key: _decoded(y) for key, y in x.items()}  # pyright: ignore
    return [_decoded(y) for y in x] if isinstance(x, list) else x  # pyright: ignore


_LEFT_OUT = ("quantization_config", "auto_map", "torch_dtype", "dtype")


def _arguments(
    torch: Any, model: Any, settings: Any, batch: int, seq: int | None
) -> dict[str, Any]:
    """Return the arguments of a loss: words or images, and labels."""
    if model.main_input_name == "pixel_values":
        side = getattr(settings, "image_size", 224)
        sides = tuple(side) if isinstance(side, list | tuple) else (side, side)  # pyright: ignore
        images = torch.zeros(batch, getattr(settings, "num_channels", 3), *sides)
        return {"pixel_values": images, "labels": torch.zeros(batch, dtype=torch.int64)}
    if model.main_input_name != "input_ids":
        raise HeadError(
            f"{type(model).__name__} takes {model.main_input_name}: only models of words and of "
            "images are made here; `collir import torch` takes any module"
        )
    text = settings.get_text_config()
    most = getattr(text, "max_position_embeddings", None) or _SEQ
    seq = seq or min(most, _SEQ)
    ids = torch.zeros(batch, seq, dtype=torch.int64)
    is_class = "Classification" in type(model).__name__ and "Token" not in type(model).__name__
    labels = ids[:, 0].clone() if is_class else ids.clone()
    extra = {"use_cache": False} if hasattr(settings, "use_cache") else {}
    return {"input_ids": ids, "labels": labels, **extra}


def set_experts(module: Any, batch: int = 1, room: float = 0.0) -> bool:
    """Make a model of ``transformers`` compute its experts as products, in place; return whether it
    has any.

    Args:
        batch: the number of sequences.
        room: the words of a sequence that an expert has places for, over an even share; 0: all.
    """
    try:
        moe = importlib.import_module("transformers.integrations.moe")
        base = importlib.import_module("transformers.modeling_utils").PreTrainedModel
    except ImportError:  # there is none
        return False
    if not isinstance(module, base):
        return False
    if _NAME not in moe.ALL_EXPERTS_FUNCTIONS.valid_keys():
        moe.ALL_EXPERTS_FUNCTIONS.register(_NAME, _experts)
    has_experts = False
    for part in module.modules():
        config = getattr(part, "config", None)
        if config is not None and hasattr(config, "_experts_implementation"):
            config._experts_implementation = _NAME
        if hasattr(part, "has_gate") and hasattr(part, "num_experts"):
            has_experts = True
            setattr(part, _ROOM, (batch, room) if room else None)
    return has_experts


def _experts(self: Any, x: Any, chosen: Any, shares: Any) -> Any:
    """Return what experts make of words of shape [words, width], each times its share.

    Args:
        chosen: the experts of each word, of shape [words, k].
        shares: their shares, of the same shape.
    """
    torch = importlib.import_module("torch")
    if (room := getattr(self, _ROOM, None)) is None:
        rows = x.unsqueeze(1).expand(-1, chosen.shape[1], -1)
        return (_made(self, rows, chosen) * shares.to(x.dtype).unsqueeze(-1)).sum(1)
    batch, factor = room
    is_chosen = torch.nn.functional.one_hot(chosen, self.num_experts).to(shares.dtype)
    share = torch.einsum("wke,wk->we", is_chosen, shares).to(x.dtype)
    ones = is_chosen.sum(1).view(batch, -1, self.num_experts)
    dispatch = _places(ones, chosen.shape[1], factor).to(x.dtype)
    there = torch.einsum("bsec,bsh->ebch", dispatch, x.view(batch, -1, x.shape[1]))
    made = _made(self, there.flatten(1, 2)).view(there.shape)
    combine = torch.einsum("bse,bsec->bsec", share.view(ones.shape), dispatch)
    return torch.einsum("bsec,ebch->bsh", combine, made).reshape(x.shape)


def _made(self: Any, x: Any, chosen: Any = None) -> Any:
    """Return what experts make of rows.

    Args:
        x: rows of shape [words, k, width]; or those of each expert: [experts, rows, width].
        chosen: the expert of each row, of shape [words, k]; None: each has its own rows.
    """
    torch = importlib.import_module("torch")
    is_turned = not self.is_transposed

    def through(x: Any, name: str) -> Any:
        weights: Any = getattr(self, name)
        bias: Any = getattr(self, f"{name}_bias", None)
        if chosen is not None:
            made = _grouped_matmul()(x, weights, chosen, is_turned)
            return made + bias[chosen] if self.has_bias else made
        made = torch.einsum(f"eri,{'eoi' if is_turned else 'eio'}->ero", x, weights)
        return made + bias[:, None] if self.has_bias else made

    inner = through(x, "gate_up_proj" if self.has_gate else "up_proj")
    inner = self._apply_gate(inner) if self.has_gate else self.act_fn(inner)
    y = through(inner, "down_proj")
    return self.post_expert_norm(y) if getattr(self, "has_post_expert_norm", False) else y


@cache
def _grouped_matmul() -> Any:
    """Return the operation of torch that stands for a product of groups, in exported programs."""
    torch = importlib.import_module("torch")

    def product(x: Any, w: Any, groups: Any, is_turned: bool) -> Any:
        own = w.transpose(1, 2) if is_turned else w
        return torch.einsum("...i,...io->...o", x, own[groups])

    def shaped(x: Any, w: Any, groups: Any, is_turned: bool) -> Any:
        return x.new_empty((*x.shape[:-1], w.shape[1 if is_turned else 2]))

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:3])
        ctx.is_turned = inputs[3]

    def gradients(ctx: Any, g: Any) -> Any:
        x, w, groups = ctx.saved_tensors
        each = torch.nn.functional.one_hot(groups, w.shape[0]).to(x.dtype)
        pair = "...o,...i->eoi" if ctx.is_turned else "...o,...i->eio"
        of_w = torch.einsum(f"...e,{pair}", each, g, x)
        return operation(g, w, groups, not ctx.is_turned), of_w, None, None

    kinds = {"x": torch.Tensor, "w": torch.Tensor, "groups": torch.Tensor, "is_turned": bool}
    product.__annotations__ = {**kinds, "return": torch.Tensor}
    operation = torch.library.custom_op("collir::grouped_matmul", product, mutates_args=())
    operation.register_fake(shaped)
    operation.register_autograd(gradients, setup_context=keep)
    return operation


def _places(ones: Any, chosen: int, factor: float) -> Any:
    """Return whether each word of a sequence has each place of each expert, as in GShard: words
    take places in order, and words without one are dropped.

    Args:
        ones: 1 where a word chose an expert, of shape [sequence, word, expert].
        chosen: the number of experts of a word.
        factor: the number of places, over an even share of the words.
    """
    torch = importlib.import_module("torch")
    _, words, experts = ones.shape
    places = min(words, math.ceil(factor * words * chosen / experts))
    place = (ones.cumsum(1) * ones).to(torch.int64) - 1
    return place.unsqueeze(-1) == torch.arange(places, device=ones.device)
