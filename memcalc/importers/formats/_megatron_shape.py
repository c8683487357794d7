"""The sizes of a model among Megatron's flags, as the config.json of a GPT that Megatron-core builds of them.

Source: megatron/training/arguments.py; megatron/training/tokenizer/tokenizer.py (whose vocabulary it is).
"""

from __future__ import annotations

import ast
import json
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.facts import Entry, Facts, Rule
from memcalc.importers.rules import names, real_number, switch, whole_number, word

NUMBERS = names(
    "num_layers hidden_size ffn_hidden_size num_attention_heads num_query_groups kv_channels vocab_size max_position_embeddings num_experts "
    "moe_ffn_hidden_size moe_router_topk moe_shared_expert_intermediate_size q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim "
    "moe_router_num_groups moe_router_group_topk"
)
SWITCHES = names(
    "swiglu squared_relu qk_layernorm add_bias_linear add_qkv_bias multi_latent_attention untie_embeddings_and_output_weights moe_router_pre_softmax "
    "moe_shared_expert_gate"
)
NEEDED = ("num_layers", "hidden_size", "num_attention_heads")
NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "layernorm1p": "LayerNorm", "low_precision_layernorm": "LayerNorm"}
POSITIONS = {kind: kind for kind in ("learned_absolute", "rope", "yarn", "mrope", "none")}
GATED = ("swiglu", "fast-swiglu")
"""NeMo 1's names of a gated network's activation."""
VOCABULARIES = {"gpt2bpetokenizer": 50_257, "llama2tokenizer": 32_000, "tiktokenizer": 2**17}
"""Tokenizers that have one vocabulary, or a largest one."""
OWN = "gpt2bpetokenizer"
"""The tokenizer where none is said (pretrain_gpt.py, ``args_defaults``)."""
MAX_LAYERS = 100_000
"""No list of layers is longer."""


def _fact(name: str) -> str:
    return f"~shape.{name}"


def _activation(facts: Facts, entry: Entry) -> None:
    facts.put(_fact("swiglu"), entry.word in GATED, entry.where)
    facts.put(_fact("squared_relu"), entry.word == "squared-relu", entry.where)


def _tokenizer(facts: Facts, entry: Entry) -> None:
    facts.put("~tokenizer", entry.word, entry.where)


def _frequency(facts: Facts, entry: Entry) -> None:
    """Every so-manieth layer, or one number for each: ``([0]*1+[1]*2)*4``."""
    text = str(entry.value).strip()
    if text.isdigit() and int(text) > 0:
        facts.put("~moe_frequency", int(text), entry.where)
        return
    try:
        kinds = _listed(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"{entry.key} is {text[:40]!r}; accepted: a number, or a list such as ([0]*1+[1]*2)*4", where=entry.where) from None
    facts.put("~moe_layers", kinds, entry.where)


def _listed(node: ast.expr) -> list[int]:
    """A list of zeros and ones made of lists, sums and multiples; nothing is run.

    Raises:
        ValueError: it is something else, or too long.
    """
    if isinstance(node, ast.List):
        return [_zero_or_one(item) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _checked(_listed(node.left) + _listed(node.right))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant) and type(node.right.value) is int:
        once = _listed(node.left)
        if len(once) * node.right.value <= MAX_LAYERS:
            return once * node.right.value
    raise ValueError(ast.dump(node)[:40])


def _zero_or_one(node: ast.expr) -> int:
    value = node.value if isinstance(node, ast.Constant) else None
    if type(value) is not int or value not in (0, 1):
        raise ValueError(value)
    return value


def _checked(found: list[int]) -> list[int]:
    if len(found) > MAX_LAYERS:
        raise ValueError(len(found))
    return found


KEYS: dict[str, Rule] = {
    **{key: whole_number(_fact(key)) for key in NUMBERS},
    **{key: switch(_fact(key)) for key in SWITCHES},
    **{key: real_number(_fact(key)) for key in ("rotary_percent", "moe_router_topk_scaling_factor")},
    "rotary_percentage": real_number(_fact("rotary_percent")),
    "padded_vocab_size": whole_number(_fact("vocab_size")),
    "group_query_attention": switch("~grouped"),
    "disable_bias_linear": switch(_fact("add_bias_linear"), on=False, off=True),
    "bias": switch(_fact("add_bias_linear")),
    "share_embeddings_and_output_weights": switch(_fact("untie_embeddings_and_output_weights"), on=False, off=True),
    "normalization": word(_fact("normalization"), NORMS),
    "activation": _activation,
    "position_embedding_type": word(_fact("position_embedding_type"), POSITIONS),
    "use_rotary_position_embeddings": switch(_fact("position_embedding_type"), "rope", None),
    "no_position_embedding": switch(_fact("position_embedding_type"), "none", None),
    "moe_router_score_function": word(_fact("moe_router_score_function"), {"softmax": "softmax", "sigmoid": "sigmoid"}),
    "moe_layer_freq": _frequency,
    "tokenizer_type": _tokenizer,
    "tokenizer_model": lambda facts, entry: facts.put("~tokenizer_model", str(entry.value), entry.where),
}


def model(facts: Facts) -> None:
    """A model from its sizes, as a config.json in one line, where no other is named.

    Raises:
        InputError: nothing says how large its vocabulary is.
    """
    shape: dict[str, Any] = {name.removeprefix("~shape."): fact.value for name, fact in facts.found.items() if name.startswith("~shape.")}
    if "model" in facts.found or "model" in facts.flagged or not set(NEEDED) <= set(shape):
        return
    where = facts.where(*(_fact(name) for name in NEEDED))
    _vocabulary(facts, shape)
    if "vocab_size" not in shape and "tokenizer_model" not in shape:
        raise InputError("these sizes of a model leave its vocabulary to the tokenizer, which is not known; give vocab_size, or --model", where=where)
    if "num_query_groups" in shape and not facts.get("~grouped", default=True):
        del shape["num_query_groups"]
    if "num_experts" in shape:
        shape["moe_layers"] = _layers(facts, shape)
        facts.default("sharding.moe_grouped_gemm", value=False, framework="Megatron-core")
    facts.put("model", json.dumps({"model_type": "megatron_gpt", **shape}), where)


def _vocabulary(facts: Facts, shape: dict[str, Any]) -> None:
    kind, name = facts.get("~tokenizer", OWN), facts.get("~tokenizer_model", "")
    if "vocab_size" not in shape and "~tokenizer" not in facts.found:
        facts.assumed.append(f"vocab_size {VOCABULARIES[OWN]}: GPT2BPETokenizer, which Megatron-LM's pretrain_gpt.py takes where none is said")
    if kind == "nulltokenizer" and "vocab_size" in shape:
        shape["vocab_size"] += 1  # one more token ends documents
    elif "vocab_size" not in shape and kind in VOCABULARIES:
        shape["vocab_size"] = VOCABULARIES[kind]
    elif "vocab_size" not in shape and kind == "huggingfacetokenizer" and name:
        shape["tokenizer_model"] = name


def _layers(facts: Facts, shape: dict[str, Any]) -> list[int]:
    """For each layer, whether it has experts."""
    if "~moe_layers" in facts.found:
        kinds: list[int] = facts.get("~moe_layers")
        return kinds
    every = facts.get("~moe_frequency", 1)
    return [int(i % every == 0) for i in range(min(shape["num_layers"], MAX_LAYERS))]
