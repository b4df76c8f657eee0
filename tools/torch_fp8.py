"""FP8 training of the PyTorch rivals: the torchao package's recipes on the linear layers of a model.

    tensorwise           one scale per tensor, of the tensor itself
    rowwise              one scale per row, and per column where a product runs over them
    rowwise_with_gw_hp   rowwise, weight gradients in bf16

Only the package's Python is used here: its two .so files are for other parts of it and stay unloaded, so that it goes
with a PyTorch that they were not built for.
"""

from __future__ import annotations

import dataclasses
import os

from torch import nn

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
VERSION = "0.18.0"
HOW = (f"pip install --no-deps torchao=={VERSION}, or, apart from the environment, pip install --no-deps --target "
       f"build/site torchao=={VERSION} and PYTHONPATH=build/site")


class F8Error(Exception):
    """The model cannot be converted; the message says why and what to do."""


def torchao():
    """The package's float8 module, imported without its .so files."""
    os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")
    try:
        import torchao.float8
        import torchao.float8.float8_linear
    except ImportError as error:
        raise F8Error(f"--fp8 needs the torchao package ({error}): {HOW}") from None
    return torchao.float8


def version() -> str:
    torchao()
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    try:
        return version_of("torchao")
    except PackageNotFoundError:  # a copy without its metadata
        return "unknown"


def convert(model: nn.Module, recipe: str, head: str | None, emulate: bool = False) -> int:
    """Converts every nn.Linear of the model but the one named `head`, None: all; returns how many. Parameters stay the
    same objects. `emulate`: products in float32 of the rounded operands, for a machine without the hardware."""
    package = torchao()
    linears = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if head is not None and head not in linears:
        raise F8Error(f"the model has no linear layer {head}, it has {', '.join(linears)}")
    expected = len(linears) - (head is not None)
    parameters = {name: id(parameter) for name, parameter in model.named_parameters()}
    config = dataclasses.replace(package.Float8LinearConfig.from_recipe_name(recipe), emulate=emulate)
    package.convert_to_float8_training(model, config=config, module_filter_fn=lambda module, name: name != head)
    converted = [name for name, module in model.named_modules()
                 if isinstance(module, package.float8_linear.Float8Linear)]
    if len(converted) != expected or head in converted:
        raise F8Error(f"{len(converted)} linear layers were converted, expected are {expected}: "
                          f"{', '.join(converted) or 'none'}")
    if parameters != {name: id(parameter) for name, parameter in model.named_parameters()}:
        raise F8Error("the conversion made other parameters, so the optimizer would not reach them")
    return expected
