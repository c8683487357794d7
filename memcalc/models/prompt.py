"""A frozen model with virtual tokens before its input, or before the keys and values of its layers."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Attention, Embedding, Linear
from memcalc.components.prompt import PromptEncoder
from memcalc.errors import InputError
from memcalc.specs.model import Axis, Block, Component, ModelSpec
from memcalc.specs.run import PromptSpec

ENCODER = "/prompt_encoder/"
"""Part of the path of every weight that is trained."""


def prompted(model: ModelSpec, prompt: PromptSpec) -> ModelSpec:
    """The same model, its embedding with a prompt encoder.

    Raises:
        InputError: a model in which memcalc does not know where virtual tokens go.
    """
    fronts = [block for block in model.blocks if block.role == "embedding"]
    if len(fronts) != 1 or not isinstance(fronts[0].module, Embedding) or model.vision is not None:
        raise InputError(f"virtual tokens before {model.model_type} are not known to memcalc; give lora", where="prompt")
    encoder = prefix_encoder(model, prompt) if prompt.type == "prefix_tuning" else token_encoder(fronts[0].module.width, prompt)
    return replace(model, blocks=tuple(_with(block, encoder) for block in model.blocks))


def token_encoder(hidden: Axis, prompt: PromptSpec) -> PromptEncoder:
    """Embeddings of virtual tokens; of P-tuning after three linear layers."""
    tokens = Axis("num_virtual_tokens", prompt.num_virtual_tokens)
    layers: tuple[Linear, ...] = ()
    if prompt.type == "p_tuning":
        inner = Axis("encoder_hidden_size", prompt.encoder_hidden_size or hidden.size)
        sizes = (hidden, inner, inner, hidden)
        layers = tuple(Linear(f"mlp_head/{2 * i}", sizes[i], sizes[i + 1], bias=True, dtype=prompt.dtype) for i in range(3))
    return PromptEncoder(tokens, hidden, prompt.dtype, layers)


def prefix_encoder(model: ModelSpec, prompt: PromptSpec) -> PromptEncoder:
    """Keys and values of virtual tokens for every layer, straight from a table or by two linear layers.

    Raises:
        InputError: layers with another attention than that of equal heads over the whole sequence.
    """
    layers = [block for block in model.blocks if block.role == "layer"]
    mixers = [[child for _, child in block.module.children() if isinstance(child, Attention)] for block in layers]
    kinds = {(type(m), m.num_kv_heads, m.head_dim, m.window) for found in mixers for m in found}
    if len(kinds) != 1 or not all(mixers) or any(kind is not Attention or window is not None for kind, _, _, window in kinds):
        raise InputError(f"layers of {model.model_type} do not all have equal heads that see the whole sequence; use prompt_tuning", where="prompt.type")
    _, heads, head_dim, _ = kinds.pop()
    num_tensors = 2 * sum(block.repeat for block in layers)
    tokens, row = Axis("num_virtual_tokens", prompt.num_virtual_tokens), Axis("2 * num_layers * num_kv_heads * head_dim", num_tensors * heads * head_dim)
    if not prompt.prefix_projection:
        return PromptEncoder(tokens, row, prompt.dtype, (), "tanh", num_tensors, heads, head_dim)
    width = Axis("num_kv_heads * head_dim", heads * head_dim)
    inner = Axis("encoder_hidden_size", prompt.encoder_hidden_size or width.size)
    both = (Linear("transform/0", width, inner, bias=True, dtype=prompt.dtype), Linear("transform/2", inner, row, bias=True, dtype=prompt.dtype))
    return PromptEncoder(tokens, width, prompt.dtype, both, "tanh", num_tensors, heads, head_dim)


def _with(block: Block, encoder: PromptEncoder) -> Block:
    module: Component = block.module
    return replace(block, module=replace(module, prompt=encoder)) if isinstance(module, Embedding) else block


def is_prompt(path: str) -> bool:
    """Whether a weight's path is that of a prompt encoder."""
    return ENCODER in path
