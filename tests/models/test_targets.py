"""Names of modules as PEFT sees them."""

from __future__ import annotations

import pytest

from memcalc.errors import InputError, UnknownNameError
from memcalc.models.targets import named

PATH = "layers.3.self_attn.q_proj"


@pytest.mark.parametrize(
    ("wanted", "with_images", "found"),
    [
        (("q_proj",), False, True),
        ("q_proj", False, True),
        (("self_attn.q_proj",), False, True),
        (("attn.q_proj",), False, False),
        (("model.layers.3.self_attn.q_proj",), False, True),
        (r"model\.layers\.3\..*", False, True),
        (r"layers", False, False),
        (r"model\.language_model\..*q_proj", True, True),
        (r"model\.language_model\..*q_proj", False, False),
        (r"^(?!.*self_attn).*proj$", False, False),
        ("all-linear", False, True),
    ],
)
def test_a_module_is_wanted_by_the_end_of_its_name_or_the_whole(wanted: str | tuple[str, ...], with_images: bool, found: bool) -> None:
    assert named(wanted, ("q_proj",), where="lora.target_modules", with_images=with_images)("q_proj", PATH) is found


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown target module 'wq'"):
        named(("wq",), ("q_proj",), where="lora.target_modules")
    with pytest.raises(InputError, match="is no regular expression"):
        named("(q_proj", ("q_proj",), where="lora.target_modules")
