"""The parts of tools/gpu_check, each a function that takes the Check and returns what its line says.

Each module holds the parts that answer one question. A part of several runs records each as soon as it is done: if it
is stopped, it loses only the run it was in.
"""

from . import correct, curves, bits, generation, speed  # in the order of --list
from .registry import PARTS, Failed

__all__ = ["PARTS", "Failed", "bits", "correct", "curves", "generation", "speed"]
