"""Images of a run: their size, and the models that see nothing else."""

from __future__ import annotations

from typing import Any

from memcalc.errors import InputError
from memcalc.specs.model import ModelSpec
from memcalc.specs.run import Run

OF_TEXT = ("images", "attention_mask", "packing", "lengths", "prompt", "lora", "contrastive", "evaluation", "loss", "new_tokens", "num_beams", "liger")
"""Keys that are about texts, or not known where there is none."""


def with_images(run: Run, model: ModelSpec) -> Run:
    """The run of a model that sees images alone, with the length that one of them has; any other as it is.

    Raises:
        InputError: a key is about texts, or this model's code does not go with it.
    """
    vision = model.vision
    if vision is None or not vision.alone:
        return run
    from memcalc.components.vision import FirstToken

    for key in OF_TEXT:
        if getattr(run, key) != type(run).model_fields[key].default:
            raise InputError(f"{model.name} sees images and no text, a sequence is one image: leave {key} out", where=key)
    sharding = run.sharding
    if run.code != "transformers" or any(degree != 1 for degree in (sharding.tp, sharding.pp, sharding.cp, sharding.ep)):
        raise InputError(f"{model.name} sees images alone; it is known under code transformers, with whole layers on every card", where="code")
    last = model.blocks[-1].module
    if run.task == "train" and isinstance(last, FirstToken) and last.activation:
        raise InputError(f"{model.name} ends in a pooler and has no loss; ViTForImageClassification under architectures has one", where="task")
    length = vision.length(1, vision.size(run.image_size, name=model.name))
    if run.seq_len not in (None, length):
        raise InputError(f"an image of {model.name} is {length} tokens, not {run.seq_len}: leave seq_len out", where="seq_len")
    return run.model_copy(update={"seq_len": length})


def images_of(run: Run, model: ModelSpec, seq_len: Any) -> tuple[int, list[str]]:
    """Pixels of an image either way (0 where there are none), and what was assumed.

    Raises:
        InputError: the model sees no images, none of that size, or more of them than the sequence has room for.
    """
    vision = model.vision
    if vision is None:
        if run.images or run.image_size is not None:
            raise InputError(f"{model.name} sees no images", where="images" if run.images else "image_size")
        return 0, []
    if vision.alone:
        return vision.size(run.image_size, name=model.name), [f"a sequence is one image: {seq_len} tokens"]
    if not run.images:
        return 0, ["images 0: the vision tower is held, and takes no gradient"]
    if "the vision tower on images" in model.untraced:
        raise InputError(f"the vision tower of {model.model_type} models is counted, not run: leave images out, or trace the model", where="images")
    size = vision.size(run.image_size, name=model.name)
    tokens = vision.text_tokens(size)
    if run.images * tokens > seq_len:
        raise InputError(f"{run.images} images of {size} pixels are {run.images} * {tokens} tokens, more than the {seq_len} of seq_len", where="images")
    return size, [] if run.image_size is not None else [f"image_size {size}: what the model is made for"]
