"""What may be said of the models beside the one that is trained (``roles`` of a run): keys of a run, and a few of their own."""

from typing import Literal

from pydantic import Field

from memcalc.specs.spec import Count, Share, Spec

Task = Literal[
    "train", "inference", "dpo", "kto", "orpo", "simpo", "reward", "distill", "ppo", "grpo", "rloo", "reinforce++", "gspo", "dapo"
]  # fmt: skip
"""What a job does."""

ROLES = ("reference", "critic", "reward", "teacher")
"""The models that there may be beside the actor, which is the run's own."""

OF_ROLE = (
    *("model", "attention", "attention_mask", "micro_batch", "grad_accum", "dtype", "autocast", "precision", "recompute", "use_reentrant"),
    *("optimizer", "optimizer_foreach", "momentum", "lora", "quantization", "kbit_upcast", "trainable_layers", "offload", "sharding"),
)
"""Keys of a run that a role may have its own of; what it leaves out is the actor's."""

IDLE = ("params", "optimizer", "gradients", "moments")
"""What of a role may be put away while others work: weights, states of the optimizer, buffers of gradients, or of its states only the moments."""

OWN = ("cards", "shares", "idle", "precomputed")
"""A role's own keys: on which cards it lives (``same`` as train, or ``other``), whose weights it uses (``actor``; ``storage``: its own, from the host, in the
place of the actor's for as long as it works), what of it is on the host while others work (see `IDLE`), and whether its part was done before (a reference
whose log-probabilities stand in the data)."""


class RolloutSpec(Spec):
    """How the answers come about that a model learns from, in reinforcement learning."""

    engine: Literal["transformers", "deepspeed", "vllm", "sglang"] = Field(
        "transformers", description="what generates: the actor's own modules, DeepSpeed's hybrid engine, or a server with its own copy of the weights"
    )
    cards: Literal["same", "other"] = Field("same", description="the cards that train, or others")
    prompt_length: Count | None = Field(None, description="tokens of a prompt")
    response_length: Count | None = Field(None, description="tokens of an answer, at most")
    num_generations: Count = Field(1, description="answers to each prompt (the group of GRPO)")
    prompts: Count | None = Field(None, description="prompts of each card in one rollout; by default as many as one optimizer step takes")
    micro_batch: Count | None = Field(None, description="transformers, deepspeed: sequences generated at once; by default all of a rollout")
    tensor_parallel_size: Count = Field(1, description="cards that share one copy of the server's weights")
    gpu_memory_utilization: Share | None = Field(None, description="vllm, sglang: share of the card for all that the server has there")
    sleep_level: Literal[0, 1, 2] = Field(
        0, description="vllm, sglang: what it gives back between rollouts: 0 nothing, 1 its cache, and its weights to the host, 2 both for good"
    )
    bucket_mb: Count | None = Field(None, description="MiB of weights that are gathered and sent to the server at once; by default tensor by tensor")


class RLSpec(Spec):
    """The algorithm of reinforcement learning."""

    framework: Literal["deepspeed-chat", "trl", "openrlhf", "verl", "nemo-rl"] | None = Field(None, description="whose defaults hold for what is left open")
    kl: Literal["none", "reward", "loss"] | None = Field(None, description="where the distance from the reference counts; none: there is no reference")
    epochs: Count = Field(1, description="passes over a rollout")
    score_micro_batch: Count | None = Field(None, description="sequences at once where nothing is trained: log-probabilities, values, rewards")
    entropy: Literal["none", "chunked", "whole"] | None = Field(None, description="entropies of the actor's tokens: of some at a time, or of all at once")
    entropy_loss: bool = Field(default=False, description="entropies are part of the loss, so that updates find them, too")
    remove_padding: bool = Field(default=True, description="verl: log-probabilities of all tokens of a batch without padding; false: of answers, copied")
    max_token_len: Count | None = Field(
        None, description="tokens of a micro-batch, of all context-parallel ranks, where sequences are packed up to a budget (dynamic batches)"
    )
    logprob_chunk: Count | None = Field(None, description="megatron: tokens of each sequence whose log-probabilities are found at a time; by default all")
    experience: Literal["card", "host"] = Field("card", description="where rollouts wait to be learnt from")
