"""Cards by the names people type, with what torch really sees of them."""

from __future__ import annotations

import re

import pytest

from memcalc.errors import InputError, UnknownNameError
from memcalc.specs.gpus import find_gpu, gpus
from memcalc.units import GiB


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("h100-80g", "h100-80g"),
        ("h100", "h100-80g"),
        ("H100-80GB", "h100-80g"),
        ("h100-80g-sxm", "h100-80g"),
        ("NVIDIA H100 80GB HBM3", "h100-80g"),
        ("NVIDIA H100 PCIe", "h100-80g"),
        ("h100 nvl", "h100-nvl-94g"),
        ("A100-PCIE-40GB", "a100-40g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("Tesla V100-SXM2-16GB", "v100-16g"),
        ("Tesla T4", "t4-16g"),
        ("a10", "a10-24g"),
        ("a10g", "a10g-24g"),
        ("4090", "rtx4090-24g"),
        ("RTX 4090", "rtx4090-24g"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx3090ti-24g"),
        ("NVIDIA RTX A6000", "a6000-48g"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada-48g"),
        ("AMD Instinct MI300X", "mi300x-192g"),
        ("mi250x", "mi250x-gcd-64g"),
    ],
)
def test_a_card_is_found_however_it_is_spelt(name: str, meant: str) -> None:
    assert find_gpu(name).name == meant


@pytest.mark.parametrize(("name", "both"), [("a100", "a100-80g or a100-40g"), ("Tesla V100", "v100-16g or v100-32g")])
def test_a_name_of_two_cards_is_an_error_that_names_them(name: str, both: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"several cards are called {name!r}: {both}")):
        find_gpu(name)


@pytest.mark.parametrize("name", ["h101", "", "a100-20g", "gpu", "-1GiB", "80g"])
def test_an_unknown_card_is_met_with_near_ones_and_the_way_out(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown GPU .*give the memory that torch sees") as caught:
        find_gpu(name)
    assert caught.value.where == "hardware.gpu"


def test_no_card_is_empty() -> None:
    with pytest.raises(InputError, match="no card has 0GiB of memory"):
        find_gpu("0GiB")


def test_a_size_stands_for_a_card_that_is_not_listed() -> None:
    assert (find_gpu("23.5GiB").capacity_bytes, find_gpu("24 GB").capacity_bytes) == (23.5 * GiB, 24_000_000_000)


def test_a_card_offers_less_than_its_name_says() -> None:
    """An "80 GB" A100 has 80 GiB in nvidia-smi, of which torch sees 79.14 at least."""
    card = find_gpu("a100-80g")
    assert (card.nominal_gb, card.smi_mib) == (80, 81920)
    assert card.capacity_bytes == round(79.14 * GiB)


@pytest.mark.parametrize("name", gpus())
def test_facts_of_a_card_agree_with_each_other(name: str) -> None:
    """What torch sees is part of what the driver shows, and that is about what the name says."""
    card = gpus()[name]
    assert card.smi_mib is not None
    assert card.nominal_gb is not None
    assert 0.85 * card.smi_mib * 2**20 < card.capacity_bytes <= card.most_bytes <= card.smi_mib * 2**20
    assert 0.9 < card.smi_mib * 2**20 / (card.nominal_gb * 10**9) < 1.1
    assert name == name.lower()


def test_cards_are_frozen() -> None:
    with pytest.raises(AttributeError):
        find_gpu("h100").capacity_bytes = 0  # type: ignore[misc]
