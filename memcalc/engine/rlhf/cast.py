"""Run → Job with a cast: who takes part, as which model, where, and what was left open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from memcalc.engine.rlhf.presets import habits_of, lengths_of, with_preset
from memcalc.engine.rlhf.server import SERVERS, refuse_knobs, server_of
from memcalc.engine.rlhf.tasks import SCORED, TASKS, Task
from memcalc.errors import InputError, UnknownNameError
from memcalc.models.score import with_score
from memcalc.specs.job import Cast, Job, Role
from memcalc.specs.read import Layer, merged
from memcalc.specs.roles import IDLE, OF_ROLE, OWN, ROLES, RLSpec, RolloutSpec
from memcalc.specs.run import Run
from memcalc.specs.serving import ServingSpec
from memcalc.tape.span import maximum, minimum

IN_TILES = ("preference", "policy")
"""What log-probabilities in tiles do for."""

IN_CHUNKS = ("policy by log-softmax", "policy by chunks")
"""What may be found some tokens at a time."""


def resolve_cast(run: Run) -> Job:
    """The actor's job, with everybody who takes part beside it.

    Raises:
        InputError: a role that the task has no place for, or that lacks what it needs; lengths that contradict each other.
    """
    from memcalc.engine.resolve import resolve

    typed, assumptions = with_preset(run)
    task = TASKS[typed.task]
    _refuse(typed, task)
    refuse_knobs(run, engine=typed.rollout.engine)
    length, said = _length(typed, task)
    plain: dict[str, Any] = {"task": "train", "roles": None, "seq_len": length}
    plain |= {"rollout": RolloutSpec.model_construct(), "rl": RLSpec.model_construct(), "serving": ServingSpec.model_construct()}
    plain |= {"loss": "cross_entropy"} if typed.code == "megatron" else {}  # what is asked of the head stands in the objective
    job = resolve(typed.model_copy(update=plain))
    if task.has_score:
        job = replace(job, model=with_score(job.model, where="task"))
    asked = _roles(typed, task)
    if typed.lora is None and asked.get("critic", {}).get("shares") == "actor":
        del asked["critic"]
        assumptions.append("critic: a second head on the actor's trunk, of hidden_size numbers, updated with it")
    others = []
    for name, own in asked.items():
        role, notes = _role(name, own, typed, job)
        others.append(role)
        assumptions += notes
    sequences = (typed.rollout.prompts or 0) * typed.rollout.num_generations
    server = server_of(typed, job.seq_len) if task.is_online else None
    actor = Role("actor", job, idle=_idle(typed.roles, "actor"))
    return replace(
        job,
        cast=Cast(typed, actor, tuple(others), sequences, server, task.is_online),
        assumptions=(*job.assumptions, *said, *assumptions),
        notes=(*job.notes, *_notes(others), *_longest(typed, task)),
    )


def _refuse(run: Run, task: Task) -> None:
    if run.code not in ("transformers", "megatron"):
        raise InputError(f"task {run.task} is known for code transformers and megatron", where="code")
    if run.code == "megatron":
        _refuse_megatron(run, task)
    elif run.sharding.pp > 1:
        raise InputError(f"task {run.task} over pipeline stages is known for code megatron; use that, or dp or tp", where="sharding.pp")
    if run.images:
        raise InputError(f"task {run.task} with images is not known to memcalc; leave images out", where="images")
    in_tiles = run.loss == "chunked" and task.objective in IN_TILES
    fused = run.loss == "fused_linear" and task.is_online and habits_of(run).fused is not None
    if run.code != "megatron" and run.loss != "cross_entropy" and not (in_tiles or fused):
        also = " or in tiles (chunked)" if task.objective in IN_TILES else ""
        raise InputError(f"task {run.task} takes log-probabilities of whole logits{also}; loss {run.loss} is for task train", where="loss")
    if run.new_tokens:
        raise InputError("how much is generated stands in rollout.response_length", where="new_tokens")
    if not task.is_online:
        for section in ("rollout", "rl"):
            given = sorted(getattr(run, section).model_fields_set - {"framework", "logprob_chunk"})
            if given:
                raise InputError(f"task {run.task} generates nothing and has no epochs over a rollout; leave it out", where=f"{section}.{given[0]}")


def _refuse_megatron(run: Run, task: Task) -> None:
    if not task.is_online and run.task not in ("dpo", "kto", "reward"):
        raise InputError(f"task {run.task} with Megatron's modules is not known to memcalc; use code: transformers", where="code")
    able = habits_of(run).megatron
    if run.loss not in able:
        raise InputError(f"log-probabilities are found by {' or '.join(able)} here, not {run.loss}", where="loss")
    if run.rl.logprob_chunk is not None and able[run.loss] not in IN_CHUNKS:
        raise InputError("log-probabilities are found some tokens at a time by NeMo-RL; say framework nemo-rl, or leave it out", where="rl.logprob_chunk")
    if not task.is_online:
        return
    if run.rl.entropy == "chunked":
        raise InputError("Megatron's modules find entropies of whole logits, or none; say whole or none", where="rl.entropy")
    if run.rollout.engine not in SERVERS:
        raise InputError(f"Megatron's modules do not generate here; a server does: {' or '.join(SERVERS)}", where="rollout.engine")


def prompt_of(run: Run, seq_len: Any) -> Any:
    """Tokens of the prompt in sequences of so many (an int or an integer array): as said, or what a said answer leaves.

    With neither said they are as the framework has them, as long as there is room for both: what is missing is taken off the prompt, down to half of the
    sequence, and what is left over is the answer's. A sequence that is too short for both has one token of an answer.
    """
    prompt, answer = run.rollout.prompt_length, run.rollout.response_length
    if prompt is None and answer is not None:
        prompt = seq_len - answer
    elif prompt is None:
        usual = lengths_of(run)
        prompt = minimum(usual.prompt, maximum(seq_len - usual.answer, seq_len // 2))
    return maximum(0, minimum(prompt, seq_len - 1))


def shortest(run: Run) -> int:
    """The shortest sequence of an online task: a token of the prompt and one of the answer, or what was said of them."""
    prompt, answer = run.rollout.prompt_length, run.rollout.response_length
    return (prompt or 1) + (answer or 1)


def is_fixed(run: Run) -> bool:
    """Both lengths are said, so that no sequence is longer or shorter."""
    return run.rollout.prompt_length is not None and run.rollout.response_length is not None


def _length(run: Run, task: Task) -> tuple[int | None, list[str]]:
    """Tokens of a whole sequence (None: the run's own), and what was assumed."""
    if not task.is_online:
        return run.seq_len, []
    prompt, answer, whole, usual = run.rollout.prompt_length, run.rollout.response_length, run.seq_len, lengths_of(run)
    if whole is None:
        said = [f"prompt_length {usual.prompt}"] * (prompt is None) + [f"response_length {usual.answer}"] * (answer is None)
        return (prompt or usual.prompt) + (answer or usual.answer), said
    if prompt is not None and answer is not None and prompt + answer != whole:
        raise InputError(f"prompts of {prompt} and answers of {answer} tokens are {prompt + answer}, not the {whole} of seq_len", where="seq_len")
    if whole < shortest(run):
        raise InputError(f"a sequence of {whole} tokens leaves no room for prompt and answer", where="seq_len")
    found = prompt_of(run, whole)
    return whole, [f"prompt_length {found}: the rest of seq_len {whole} is the answer"] if prompt is None and answer is None else []


def _roles(run: Run, task: Task) -> dict[str, Mapping[str, Any]]:
    """Who is there, with what is said of each."""
    asked = run.roles or {}
    for name, own in asked.items():
        if name != "actor" and name not in ROLES:
            raise UnknownNameError("role", name, ("actor", *ROLES), where="roles")
        if name != "actor" and name not in task.able:
            able = ", ".join(task.able) or "none beside the actor"
            raise InputError(f"task {run.task} has no {name}; it can have {able}", where=f"roles.{name}")
        if own is not None and own is not True and own is not False and not isinstance(own, Mapping):
            raise InputError(f"it is {own!r}; accepted: a map of keys, or null for none", where=f"roles.{name}")
        if name == "actor" and (not isinstance(own, Mapping) or set(own) - {"idle"}):
            raise InputError("the actor is the run's own model, and its keys are the run's; only idle stands here", where="roles.actor")
    wanted = [name for name in task.roles if name != "reference" or _has_reference(run, task)]
    wanted += [name for name in asked if name not in wanted and name != "actor" and not (name == "reference" and task.is_online)]
    found = {name: asked.get(name, {}) for name in wanted}
    return {name: {} if own is True else own for name, own in found.items() if own is not None and own is not False and not _is_precomputed(own)}


def _is_precomputed(own: Any) -> bool:
    """Whether a role's part was done before: its log-probabilities stand in the data, and it is not loaded."""
    return isinstance(own, Mapping) and bool(own.get("precomputed"))


def _has_reference(run: Run, task: Task) -> bool:
    return not task.is_online or (run.rl.kl or task.kl) != "none"


def _role(name: str, own: Mapping[str, Any], run: Run, actor: Job) -> tuple[Role, list[str]]:
    """One role, resolved, and what was assumed of it."""
    from memcalc.engine.resolve import resolve

    _check(name, own, run)
    said = []
    shares = own.get("shares") is not None
    if name == "reference" and run.lora is not None and "model" not in own:
        shares = True
        said.append("reference: the actor with its adapters off")
    made = _run_of(name, own, run, trains=name == "critic")
    try:
        job = resolve(made)
    except InputError as error:
        raise InputError(error.message, where=f"roles.{name}{f'.{error.where}' if error.where else ''}") from None
    if name in SCORED:
        job = replace(job, model=with_score(job.model, where=f"roles.{name}.model"))
    elif job.model.vocab_size != actor.model.vocab_size:
        said.append(f"{name}: its vocabulary is {job.model.vocab_size}, not the actor's {actor.model.vocab_size}")
    if "model" not in own and not shares:
        said.append(f"{name}: {run.model}{', with a score for its head' if name in SCORED else ''}")
    away, takes_place = _idle({name: own}, name), own.get("shares") == "storage" and run.lora is None
    return Role(name, job, on_card=own.get("cards", "same") == "same", idle=away, shares=shares, takes_place=takes_place), said


def _check(name: str, own: Mapping[str, Any], run: Run) -> None:
    """What is said of a role beside keys of a run."""
    for key in own:
        if key not in OF_ROLE and key not in OWN:
            raise UnknownNameError("key", f"roles.{name}.{key}", (f"roles.{name}.{k}" for k in (*OF_ROLE, *OWN)), where=f"roles.{name}")
    if name == "teacher" and "model" not in own:
        raise InputError("a teacher is another model; name it", where="roles.teacher.model")
    accepted = {"cards": ("same", "other"), "shares": ("actor", "storage"), "precomputed": (True, False)}
    for key, values in accepted.items():
        if key in own and own[key] not in values:
            raise InputError(f"it is {own[key]!r}; accepted: {', '.join(map(str, values))}", where=f"roles.{name}.{key}")
    if own.get("shares") == "storage" and name != "reference":
        raise InputError("a reference alone takes the actor's place", where=f"roles.{name}.shares")
    if own.get("shares") == "actor" and run.lora is None and name != "critic":
        raise InputError("the actor's weights change, so none can share them; give lora", where=f"roles.{name}.shares")


def _run_of(name: str, own: Mapping[str, Any], run: Run, *, trains: bool) -> Run:
    """A role as a run of its own: the actor's, with its own keys in their place; a model that is not trained has nothing of training."""
    given = run.model_dump(exclude_unset=True)
    base: dict[str, Any] = {"model": run.model, "task": "train" if trains else "inference", "code": run.code, "hardware": given.get("hardware", {})}
    kept = OF_ROLE if trains else ("attention", "attention_mask", "dtype", "autocast", "precision", "sharding")
    base |= {key: given[key] for key in kept if key in given and key not in base and key != "micro_batch"}  # that of the actor, whatever it becomes
    if "model" in own:
        base = {key: value for key, value in base.items() if key not in ("quantization", "kbit_upcast", "trainable_layers")}
    for key, value in own.items():
        if key == "sharding" and isinstance(value, Mapping):
            base[key] = _sharding(base.get(key) or {}, value)
        elif key not in OWN:
            base[key] = value
    if run.seq_len is not None:
        base["seq_len"] = run.seq_len
    return merged([Layer({key: value for key, value in base.items() if value is not None}, _names(own, f"roles.{name}"))])


def _names(own: Mapping[str, Any], place: str, inside: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """What messages call a role's keys."""
    found: dict[tuple[str, ...], str] = {}
    for key, value in own.items():
        here = (*inside, key)
        found[here] = f"{place}.{key}"
        found |= _names(value, f"{place}.{key}", here) if isinstance(value, Mapping) else {}
    return found


def _sharding(actor: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """How a role is spread: its own degrees beside the actor's, whose engine's configuration gives way to another stage."""
    found = {**actor, **own}
    if ("engine" in own or "zero" in own) and "deepspeed" not in own:
        found.pop("deepspeed", None)
    return found


def _idle(roles: Mapping[str, Any] | None, name: str) -> frozenset[str]:
    own = (roles or {}).get(name)
    away = own.get("idle") if isinstance(own, Mapping) else None
    if away is None:
        return frozenset()
    if not isinstance(away, Mapping) or not set(away) <= set(IDLE) or not set(away.values()) <= {"cpu"}:
        able = ", ".join(f"{what}: cpu" for what in IDLE)
        raise InputError(f"it is {away!r}; accepted: {{{able}}}, what is not on the card while others work", where=f"roles.{name}.idle")
    return frozenset(away)


def _longest(run: Run, task: Task) -> list[str]:
    """What is counted of answers that may be shorter, where no padding makes them equal."""
    packed = task.is_online and habits_of(run).whole and run.rl.remove_padding and run.rl.max_token_len is None
    return ["every answer is counted at its longest; shorter ones take less, since padding is taken out"] if packed else []


def _notes(others: list[Role]) -> list[str]:
    away = [role.name for role in others if not role.on_card]
    return [f"on other cards, and not counted here: {', '.join(away)}"] if away else []
