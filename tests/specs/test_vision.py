"""Sizes of images."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memcalc.errors import InputError
from memcalc.specs.vision import Vision


@given(patch=st.integers(1, 32), merge=st.integers(1, 4), times=st.integers(1, 20))
def test_merged_patches_are_tokens(patch: int, merge: int, times: int) -> None:
    vision = Vision(patch, merge=merge, packed=True, fixed=False)
    size = vision.size(patch * merge * times, name="it")
    assert vision.patches(size) == (times * merge) ** 2
    assert vision.text_tokens(size) == times**2


@given(images=st.integers(1, 9), tiles=st.integers(1, 5))
def test_packed_patches_stand_in_one_row_and_others_in_one_for_each_image(images: int, tiles: int) -> None:
    packed, rows = Vision(7, packed=True, fixed=False), Vision(7, 28, class_tokens=1, tiles=tiles)
    assert (packed.rows(images), packed.length(images, 28)) == (1, images * 16)
    assert (rows.rows(images), rows.length(images, 28)) == (images * tiles, 17)


def test_pixels_are_pictures_or_patches_that_are_cut_out() -> None:
    assert [axis.size for axis in Vision(7, 28).pixels(3, 28)] == [3, 3, 28, 28]
    assert [axis.size for axis in Vision(7, flat=True, frames=2, fixed=False).pixels(3, 28)] == [48, 294]


@pytest.mark.parametrize(
    ("vision", "asked", "message"),
    [
        (Vision(14, fixed=False), None, "image_size: it takes images of any size: say how many pixels one is high and wide"),
        (Vision(14, 336), 224, "image_size: it takes images of 336 pixels either way, not 224"),
        (Vision(14, merge=2, fixed=False), 100, "multiples of 28 pixels, not 100; 112 is the nearest"),
        (Vision(14, merge=2, fixed=False), 5, "multiples of 28 pixels, not 5; 28 is the nearest"),
    ],
)
def test_sizes_that_cannot_be_are_refused(vision: Vision, asked: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        vision.size(asked, name="it")


def test_the_models_own_size_is_taken() -> None:
    assert Vision(14, 336).size(None, name="it") == 336
