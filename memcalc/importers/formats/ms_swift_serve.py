"""ms-swift where nothing is trained: flags of ``swift infer``, ``deploy``, ``rollout``, ``eval`` and ``app``; vLLM's and SGLang's with their name in front."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.errors import InputError
from memcalc.importers import adapters, launchers
from memcalc.importers.facts import TRAINER, Entry, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.formats import sglang, vllm
from memcalc.importers.rules import attention, names, unless, whole_number

VERSION = "ms-swift 4.6"

BACKENDS = {"vllm": "vllm", "sglang": "sglang", "transformers": "", "pt": ""}
LENGTH = 2048
"""Tokens of a prompt with transformers' modules where nobody says."""


def recognise(keys: Mapping[str, Any]) -> bool:
    """By the backend, beside a model by its own name for it."""
    return "infer_backend" in keys and "model_name_or_path" not in keys


def _backend(facts: Facts, entry: Entry) -> None:
    if entry.word not in BACKENDS:
        raise InputError(f"{entry.key} {entry.word} is not counted; {', '.join(BACKENDS)} are", where=entry.where)
    facts.put("~backend", BACKENDS[entry.word], entry.where)


def _adapters(facts: Facts, entry: Entry) -> None:
    facts.put("~adapters", len(entry.value) if isinstance(entry.value, list) else 1, entry.where)


KEYS: dict[str, Rule] = {
    **{f"vllm_{key}": rule for key, rule in vllm.KEYS.items() if "." not in key and "*" not in key and not key.startswith("model")},
    **{f"sglang_{key}": rule for key, rule in sglang.KEYS.items() if not key.startswith("model")},
    **adapters.KEYS,
    "model": "model",
    "infer_backend": _backend,
    "adapters": _adapters,
    "torch_dtype": vllm.dtype,
    "attn_impl": attention,
    "quant_bits": whole_number("~bits"),
    "quant_method": unless("bnb", why="bitsandbytes is counted"),
    "max_batch_size": whole_number("~batch"),
    "max_length": whole_number("~length"),
    "max_new_tokens": whole_number("~new_tokens"),
    "num_beams": whole_number("~beams"),
    "task_type": unless("causal_lm", why="another head than the language model's; that is counted"),
    "vllm_engine_kwargs*": unless(why="arguments for the server itself"),
}


def finish(facts: Facts) -> None:
    """A server, or transformers' own ``generate``."""
    backend = facts.get("~backend", "")
    if backend == "vllm":
        facts.default("serving.gpu_memory_utilization", 0.9, VERSION)
        facts.default("serving.max_num_seqs", 256, VERSION)
        if "~adapters" in facts.found:
            facts.put("serving.enable_lora", value=True, where=facts.where("~adapters"))
            facts.put("serving.max_loras", facts.get("~adapters"), facts.where("~adapters"))
    if backend == "sglang":
        sglang.finish(facts)
    elif backend:
        vllm.serves(facts, backend, VERSION)
    else:
        _generates(facts)


def _generates(facts: Facts) -> None:
    """Prompts of one batch, and what is generated after them; a process that sees several cards spreads the layers over them."""
    facts.put("task", "inference", VERSION)
    facts.default("dtype", "bfloat16", VERSION)
    for name in [name for name in facts.found if name.startswith("serving.")]:
        del facts.found[name]
    for name, key, value in (("~batch", "micro_batch", 1), ("~length", "seq_len", LENGTH), ("~new_tokens", "new_tokens", None), ("~beams", "num_beams", None)):
        if name in facts.found:
            facts.put(key, facts.get(name), facts.where(name))
        elif value is not None:
            facts.default(key, value, VERSION)
    if "~adapters" in facts.found:
        facts.unused.append(f"{facts.where('~adapters')}: adapters beside the model are small, and not counted")
    launchers.spread(facts)


FORMAT = Format(
    name="ms_swift_serve",
    title="ms-swift flags that serve",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=(
        *adapters.IGNORED,
        *(f"vllm_{name}" for name in vllm.FORMAT.ignored),
        *(f"sglang_{name}" for name in sglang.FORMAT.ignored),
        *names(
            "stream result_path write_batch_size metric val_dataset* dataset* split_dataset_ratio load_data_args load_args temperature top_* min_p "
            "repetition_penalty stop_words logprobs system template* use_chat_template agent_template enable_thinking truncation_strategy host port "
            "api_key ssl_* served_model_name verbose log_* max_logprobs owned_by lang studio_title base_url is_multimodal eval_* extra_eval_args "
            "external_plugins custom_register_path multi_turn_scheduler max_turns use_gym_env gym_env vllm_use_async_engine vllm_disable_* "
            "vllm_mm_processor_cache_gb vllm_reasoning_parser merge_lora model_type model_kwargs* use_hf seed max_pixels reranker_use_activation "
            "local_dataset custom_dataset_info lazy_tokenize model_revision default_system safe_serialization norm_bbox response_prefix _* "
            "vllm_server_* use_async_engine add_version load_from_cache_file columns dataset_num_proc data_seed padding_side"
        ),
    ),
    finish=finish,
    order=39,
    notes="`swift rollout` serves with vLLM. Without NPROC_PER_NODE a process that sees several cards spreads the layers of transformers' modules over them.",
)
