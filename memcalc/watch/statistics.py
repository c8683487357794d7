"""Norms of gradients and maxima of activations, layer by layer, through hooks that keep a number each and wait for no card."""

from __future__ import annotations

from typing import Any


class Statistics:
    """Hooks on a model.

    A maximum is a norm of infinite order, which makes no tensor as large as its input. Numbers stay on the card until they are collected, once a step.
    Of tensors that are cut among ranks they are of this rank's part.

    Args:
        model: a torch module.
    """

    def __init__(self, model: Any) -> None:
        self.layers = layers_of(model)
        self._maxima: dict[str, Any] = {}
        self._squares: dict[str, dict[str, Any]] = {}
        self._handles: list[Any] = []
        for name, module in self.layers.items():
            self._handles.append(module.register_forward_hook(self._looks_at(name)))
            for path, parameter in module.named_parameters():
                if parameter.requires_grad:
                    self._handles.append(parameter.register_post_accumulate_grad_hook(self._measures(name, path)))

    def collect(self) -> tuple[dict[str, float], dict[str, float]]:
        """Gradient norms and activation maxima by layer since the last call."""
        norms = {name: sum(float(square) for square in squares.values()) ** 0.5 for name, squares in self._squares.items()}
        maxima = {name: float(value) for name, value in self._maxima.items()}
        self._squares, self._maxima = {}, {}
        return norms, maxima

    def remove(self) -> None:
        """No hook stays."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # ------------------------------------------------------------------ hooks
    def _looks_at(self, name: str) -> Any:
        import torch

        def hook(module: Any, _: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple) else output
            first = getattr(first, "logits", first)
            if module.training and isinstance(first, torch.Tensor) and first.is_floating_point() and first.numel():
                most = torch.linalg.vector_norm(_own(first), ord=float("inf")).float()
                before = self._maxima.get(name)
                self._maxima[name] = most if before is None else torch.maximum(before, most)

        return hook

    def _measures(self, name: str, path: str) -> Any:
        import torch

        def hook(parameter: Any) -> None:
            if parameter.grad is not None:
                norm = torch.linalg.vector_norm(_own(parameter.grad), dtype=torch.float32)
                self._squares.setdefault(name, {})[path] = norm * norm

        return hook


def _own(tensor: Any) -> Any:
    """This rank's part of a distributed tensor, so that no rank waits for another."""
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def layers_of(model: Any) -> dict[str, Any]:
    """The modules that are told apart, by name: the layers of the longest list of equal modules, and what stands beside it with parameters of its own.

    A model without such a list is told apart by its children.
    """
    import torch

    lists = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList) and len(module)}
    longest = max(lists, key=lambda name: len(lists[name]), default=None)
    if longest is None:
        return {name: child for name, child in model.named_children() if any(True for _ in child.parameters())}
    found: dict[str, Any] = {f"{longest}.{i}": layer for i, layer in enumerate(lists[longest])}
    inside = tuple(f"{name}." for name in (longest, *lists))
    for name, module in model.named_modules():
        own = any(True for _ in module.parameters(recurse=False))
        if name and own and not name.startswith(inside):
            found[name] = module
    return found
