"""vLLM's refusals to start: what is left of its share of the card does not hold one sequence, or nothing; and the blocks that it has told of before."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import SIZE, Message, size

WORDS = ("KV cache", "cache blocks", "GPU memory utilization", "# GPU blocks", "warming up sampler")
MARK = (
    r"larger than the maximum number of tokens that can be stored in KV cache|KV cache is needed, which is larger than|No available memory for the cache blocks"
    r"|is less than desired GPU memory utilization|# GPU blocks: \d+, # CPU blocks: \d+"
    r"|warming up sampler with \d+ dummy requests"
)
POOLS = "vLLM, of its blocks"
"""The wording of what is told of blocks on the card and on the host."""
SAMPLER = "vLLM, in its sampler"
"""The wording of a failure while logits of as many sequences as may come are sorted for the first time."""

TOKENS = re.compile(r"max seq len \(([\d,]+)\) is larger than the maximum number of tokens that can be stored in KV cache \(([\d,]+)\)")
NEEDED = re.compile(
    rf"max seq len \((?P<asked>[\d,]+)\),? *\(?(?P<wanted>{SIZE}) KV cache is needed, which is larger than the available KV cache memory \((?P<there>{SIZE})\)"
    r"(?:.{0,80}?estimated maximum model length is (?P<most>[\d,]+))?",
    re.DOTALL,
)
SHARE = re.compile(
    r"Free memory on device.{0,20}?\(([\d.]+)/([\d.]+) (GiB|GB)\) on startup is less than desired GPU memory utilization \(([\d.]+), ([\d.]+) (GiB|GB)\)"
)
BLOCKS = re.compile(r"# GPU blocks: (\d+), # CPU blocks: (\d+)")
WARMING = re.compile(r"warming up sampler with (\d+) dummy requests")
NOTHING = re.compile(r"No available memory for the cache blocks")


def parse(text: str) -> Message | None:
    """The message, where the text has one."""
    if found := TOKENS.search(text):
        return Message("refusal", "vLLM", tokens=(_int(found[1]), _int(found[2])))
    if found := NEEDED.search(text):
        tokens = (_int(found["asked"]), _int(found["most"])) if found["most"] else None
        return Message("refusal", "vLLM", size(found["wanted"]), size(found["there"]), tokens=tokens)
    if found := SHARE.search(text):
        free, capacity, wanted = (size(f"{found[i]} {found[unit]}") for i, unit in ((1, 3), (2, 3), (5, 6)))
        return Message("refusal", "vLLM", wanted, capacity, free=free)
    if found := BLOCKS.search(text):
        return Message("usage", POOLS, tokens=(_int(found[1]), _int(found[2])))
    if found := WARMING.search(text):
        return Message("refusal", SAMPLER, tokens=(_int(found[1]), 0))
    found = NOTHING.search(text)
    return Message("refusal", "vLLM") if found else None


def _int(text: str) -> int:
    return int(text.replace(",", ""))
