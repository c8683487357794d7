"""Sums in lines of shell, ``$((A * 2))`` and ``expr``: whole numbers with + - * / % and brackets. Others stay open."""

from __future__ import annotations

import ast
import re

MAX_SUM = 300
"""No honest sum has more characters."""
MAX_NUMBER = 10**18
"""Shells have numbers of 64 bits, up to 9.2e18."""
_INSIDE = r"(?:[^()]|\([^()]*\))*"
SUM = rf"\$\(\({_INSIDE}\)\)"
_SUM = re.compile(rf"\$\(\(({_INSIDE})\)\)")
_EXPR = re.compile(r"(?:\$\(|`)\s*expr\s+([^()`]*)[)`]")
_NAMES = re.compile(r"\$\{[^}]*\}|\$\w+|\d\w*|([A-Za-z_]\w*)")


def one_word_each(text: str) -> str:
    """A text in which no sum has spaces, and names in sums stand as variables do elsewhere.

    >>> one_word_each("A=$(( B * 2 )) C=`expr 16 / $D`")
    'A=$((${B}*2)) C=$((16/$D))'
    """
    return _SUM.sub(_tight, _EXPR.sub(lambda match: f"$(({match.group(1)}))", text))


def _tight(match: re.Match[str]) -> str:
    inside = re.sub(r"[\s\\\"']+", "", match.group(1))
    return f"$(({_NAMES.sub(lambda name: f'${{{name.group(1)}}}' if name.group(1) else name.group(), inside)}))"


def worked_out(word: str, *, otherwise: str | None = None) -> str:
    """A word with its sums of plain numbers worked out; `otherwise` in place of those that cannot be, which None leaves.

    >>> worked_out("--n=$((128/8/3))")
    '--n=5'
    """
    return _SUM.sub(lambda match: _number(match, match.group() if otherwise is None else otherwise), word)


def _number(match: re.Match[str], otherwise: str) -> str:
    text = match.group(1).strip()
    if len(text) > MAX_SUM:
        return otherwise
    try:
        return str(_value(ast.parse(text, mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, MemoryError, RecursionError):
        return otherwise


def _value(node: ast.expr) -> int:
    """What a part of a sum is, divided as shells divide.

    Raises:
        ValueError: it is no sum of whole numbers, or a number without end.
    """
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp):
        made = _operation(node.op, _value(node.left), _value(node.right))
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        made = node.value
    else:
        raise ValueError
    if abs(made) > MAX_NUMBER:
        raise ValueError
    return made


def _operation(operator: ast.operator, left: int, right: int) -> int:
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if not isinstance(operator, ast.Div | ast.Mod):
        raise ValueError  # noqa: TRY004 # no other operation is worked out
    whole = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return whole if isinstance(operator, ast.Div) else left - whole * right


__all__ = ["SUM", "one_word_each", "worked_out"]
