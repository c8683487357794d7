"""SGLang's refusals to start, and its scheduler's when the pool of cache is spent."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import Message

WORDS = ("--mem-fraction-static", "lower your batch size")
MARK = r"Not enough memory\. Please try to increase --mem-fraction-static|(?:Prefill|Decode) out of memory\. Try to lower your batch size"

REFUSED = re.compile(r"Not enough memory\. Please try to increase --mem-fraction-static")
SPENT = re.compile(
    r"(?:Prefill|Decode) out of memory\. Try to lower your batch size"
    r"(?:.{0,200}?Try to allocate (?P<asked>\d+) tokens)?(?:.{0,200}?Available tokens: (?P<there>\d+))?",
    re.DOTALL,
)


def parse(text: str) -> Message | None:
    """The message, where the text has one."""
    if found := REFUSED.search(text):
        return Message("refusal", "SGLang")
    found = SPENT.search(text)
    if found is None:
        return None
    tokens = (int(found["asked"]), int(found["there"])) if found["asked"] and found["there"] else None
    return Message("refusal", "SGLang", tokens=tokens)
