"""A Python script as the file that it could have been: what it hands to transformers, PEFT, TRL, Unsloth and vLLM. It is parsed, never run.

Calls are known by the names of classes and functions. Values that a script writes down are taken, by way of names that it gives them; what comes
from elsewhere (arguments, other modules, tests) stays open, and is listed where its key bears on memory.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from operator import add, floordiv, mul, sub
from typing import Any

from memcalc.errors import InputError
from memcalc.importers.trl import TRAINERS


class Open(str):
    """A value that the script does not write down: the expression in its place."""

    __slots__ = ()


OPEN = Open()
SAID = dict.fromkeys(("is_bfloat16_supported", "is_bf16_supported", "is_bf16_available", "is_available", "is_torch_bf16_gpu_available"), True)
"""Questions to the card, as one of today answers them."""
LOADERS = re.compile(r"AutoModel(For\w+)?|\w+For(CausalLM|ConditionalGeneration|SequenceClassification|ImageTextToText)")
UNSLOTH = re.compile(r"Fast(Language|Vision|)Model")
OF_LOADING = {"torch_dtype": "torch_dtype", "dtype": "torch_dtype", "attn_implementation": "attn_implementation", "device_map": "device_map",
              "load_in_4bit": "load_in_4bit", "load_in_8bit": "load_in_8bit",
              "pretrained_model_name_or_path": "model_name_or_path"}  # fmt: skip
OF_BITS = ("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_quant_storage")
OF_ADAPTERS = {"r": "lora_r", "target_modules": "lora_target_modules", "lora_dropout": "lora_dropout", "modules_to_save": "lora_modules_to_save",
               "use_dora": "use_dora"}  # fmt: skip
OF_TRAINERS = ("max_seq_length", "max_length", "packing", "beta")
UNSLOTH_LOADING = {"model_name": "model.name", "max_seq_length": "training.max_seq_length", "load_in_4bit": "model.load_in_4bit"}
UNSLOTH_ADAPTERS = {"r": "lora.r", "target_modules": "lora.target_modules", "lora_dropout": "lora.dropout",
                    "use_gradient_checkpointing": "lora.use_gradient_checkpointing"}  # fmt: skip
MAX_POWER = 64
"""No honest script raises more, or to more, for a size that it writes down."""
MAX_NUMBER = 2**40
"""No honest script calculates with greater ones."""
MAX_SHOWN = 60
"""Characters of an open expression that messages show."""


def read_script(text: str, *, name: str) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """The keys that a script's calls say, as those of the trainer's file, Unsloth's or vLLM's, and the line of each.

    Raises:
        InputError: it is no Python, or makes none of the calls.
    """
    try:
        script = _Script(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise InputError(f"is no Python: {getattr(error, 'msg', None) or error}", where=f"{name}{line}") from None
    if not script.said:
        raise InputError("makes no call of transformers, PEFT, TRL, Unsloth or vLLM that says what is trained or served", where=name)
    return script.data(), {tuple(key.split(".")): line for key, (_, line) in script.said.items()}


class _Script:
    """What the calls of a script say, in its order; `said` holds values and lines by key."""

    def __init__(self, tree: ast.Module) -> None:
        self.names: dict[str, Any] = {}
        self.said: dict[str, tuple[Any, int]] = {}
        self.has_unsloth = any(isinstance(node, ast.Call) and UNSLOTH.fullmatch(_owner(node.func)) for node in ast.walk(tree))
        self.condition = ""
        self.trains, self.generates = False, 0
        self._visit(tree)
        if self.generates and not self.trains and "model_name_or_path" in self.said:
            self._put({"trl_trainer": "generate"}, self.generates)

    def _visit(self, node: ast.AST) -> None:
        """What stands inside, in its order; of a condition that the script answers, the branch that is taken."""
        if isinstance(node, (ast.If, ast.IfExp)):
            self._branches(node)
            return
        for child in ast.iter_child_nodes(node):
            self._visit(child)
        if isinstance(node, ast.Assign):
            self._assign(node)
        elif isinstance(node, ast.Call):
            self._call(node)

    def _branches(self, node: ast.If | ast.IfExp) -> None:
        test, before = self._truth(node.test), self.condition
        for branch, taken in ((node.body, test is not False), (node.orelse, test is not True)):
            self.condition = before or (f"if {ast.unparse(node.test)}" if test is None else "")
            for inner in (branch if isinstance(branch, list) else [branch]) if taken else []:
                self._visit(inner)
        self.condition = before

    def _truth(self, node: ast.expr) -> bool | None:
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "__name__":
            return True
        value = self.value(node)
        return None if isinstance(value, Open) else bool(value)

    def data(self) -> dict[str, Any]:
        """Nested, as a file has it."""
        found: dict[str, Any] = {}
        for key, (value, _) in self.said.items():
            *outer, last = key.split(".")
            inner = found
            for part in outer:
                inner = inner.setdefault(part, {})
            inner[last] = value
        return found

    # ------------------------------------------------------------------ statements
    def _assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.names[target.id] = Open(f"{target.id} {self.condition}") if self.condition and self.names.get(target.id, OPEN) != value else value

    def _call(self, node: ast.Call) -> None:
        owner, called = _owner(node.func), _called(node.func)
        given = {keyword.arg: self.value(keyword.value) for keyword in node.keywords if keyword.arg}
        first: Any = self.value(node.args[0]) if node.args else OPEN
        at = node.lineno
        if UNSLOTH.fullmatch(owner):
            self._unsloth(called, given, first, at)
        elif called == "from_pretrained" and LOADERS.fullmatch(owner):
            self._put({"model_name_or_path": first, **_renamed(given, OF_LOADING)}, at)
        elif called == "BitsAndBytesConfig":
            self._put({key: value for key, value in given.items() if key in OF_BITS}, at)
        elif called == "LoraConfig":
            self._put({"use_peft": True, **_renamed(given, OF_ADAPTERS)}, at)
        elif called == "LLM" and ("model" in given or not isinstance(first, Open)):
            self._put({"model": first, **given}, at)
        elif called.endswith(("Trainer", "TrainingArguments")) or _trl(called, "Config"):
            self._trainer(called, {"model": first, **given}, at)
        elif called == "gradient_checkpointing_enable":
            self._put({"gradient_checkpointing": True}, at)
        else:
            self._loop(called, given, at)

    def _loop(self, called: str, given: Mapping[str, Any], at: int) -> None:
        """What a script does by itself: a step of training, or answers."""
        if called == "backward" and not self.trains:
            self.trains = True
            self._put({"trl_trainer": "transformers"}, at)
        elif called in ("generate", "pipeline"):
            self.generates = at
            if called == "pipeline":
                self._put({"model_name_or_path": given.get("model", OPEN), **_renamed(given, OF_LOADING)}, at)

    def _trainer(self, called: str, given: Mapping[str, Any], at: int) -> None:
        self.trains = True
        kind = "transformers" if called in ("Trainer", "Seq2SeqTrainer") else _trl(called, "Config") or _trl(called, "Trainer")
        named, given = given["model"], {key: value for key, value in given.items() if key != "model"}
        if called.endswith("Trainer"):
            given = {"model_name_or_path": named if isinstance(named, str) else OPEN, **{key: value for key, value in given.items() if key in OF_TRAINERS}}
        given = {**({"trl_trainer": kind} if kind else {}), **given}
        self._put({f"training.{key}": value for key, value in given.items()} if self.has_unsloth else given, at)

    def _unsloth(self, called: str, given: Mapping[str, Any], first: Any, at: int) -> None:
        if called == "from_pretrained":
            full = given.get("full_finetuning") is True
            packed = {} if full or "load_in_4bit" in given else {"model.load_in_4bit": True}
            self._put({"model.name": first, **packed, **_renamed(given, UNSLOTH_LOADING), "training.training_type": "full" if full else "lora"}, at)
        elif called == "get_peft_model":
            self._put(_renamed(given, UNSLOTH_ADAPTERS), at)

    def _put(self, values: Mapping[str, Any], at: int) -> None:
        """Values under keys: of models the first; what is open, or stands under a condition that is, only where nothing was said before."""
        for key, value in values.items():
            is_model = key.rpartition(".")[2] in ("model_name_or_path", "name", "model")
            if isinstance(value, Open) or (self.condition and not is_model):
                if key not in self.said and not is_model:
                    self.said[key] = (f"${value} {self.condition}".rstrip()[:MAX_SHOWN], at)
            elif not (is_model and key in self.said):
                self.said[key] = (value, at)

    # ------------------------------------------------------------------ values
    def value(self, node: ast.expr) -> Any:
        """What an expression is, as far as the script says."""
        reader = _READERS.get(type(node))
        found = OPEN if reader is None else reader(self, node)
        return found if found is not OPEN else Open(ast.unparse(node))

    def constant(self, node: Any) -> Any:
        return node.value if isinstance(node.value, (str, int, float, bool, type(None))) else OPEN

    def name(self, node: Any) -> Any:
        return self.names.get(node.id, OPEN)

    def attribute(self, node: Any) -> Any:
        return node.attr if _owner(node) == "torch" and re.fullmatch(r"bfloat16|float16|float32|half", node.attr) else OPEN

    def items(self, node: Any) -> Any:
        found = [self.value(item) for item in node.elts]
        return OPEN if any(isinstance(item, Open) for item in found) else found

    def inverted(self, node: Any) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return OPEN if isinstance(value, Open) else not value
        return -value if isinstance(node.op, ast.USub) and isinstance(value, (int, float)) else OPEN

    def product(self, node: Any) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        apply = _OPERATIONS.get(type(node.op))
        numbers = all(isinstance(side, (int, float)) and abs(side) < MAX_NUMBER for side in (left, right))
        try:
            return apply(left, right) if apply is not None and numbers else OPEN
        except ArithmeticError:
            return OPEN

    def answer(self, node: Any) -> Any:
        return SAID.get(_called(node.func), OPEN)

    def choice(self, node: Any) -> Any:
        test = self._truth(node.test)
        return OPEN if test is None else self.value(node.body if test else node.orelse)


_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.FloorDiv: floordiv,
    ast.Pow: lambda a, b: a**b if abs(b) <= MAX_POWER and abs(a) <= MAX_POWER else OPEN,
}
_READERS: dict[type[ast.expr], Callable[[_Script, Any], Any]] = {
    ast.Constant: _Script.constant, ast.Name: _Script.name, ast.Attribute: _Script.attribute, ast.List: _Script.items, ast.Tuple: _Script.items,
    ast.UnaryOp: _Script.inverted, ast.BinOp: _Script.product, ast.Call: _Script.answer, ast.IfExp: _Script.choice,
}  # fmt: skip


def _owner(node: ast.expr) -> str:
    """Of ``a.b`` the last name before the point; empty for anything else."""
    inner = node.value if isinstance(node, ast.Attribute) else None
    return inner.id if isinstance(inner, ast.Name) else inner.attr if isinstance(inner, ast.Attribute) else ""


def _called(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _trl(name: str, ending: str) -> str:
    """The trainer of TRL that a class belongs to: ``DPOConfig`` is that of ``dpo``."""
    stem = name.removesuffix(ending).lower()
    return stem if name.endswith(ending) and stem in TRAINERS else ""


def _renamed(given: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[key]: value for key, value in given.items() if key in names}


__all__ = ["read_script"]
