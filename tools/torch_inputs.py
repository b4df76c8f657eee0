"""What tools/torch_reference.py reads: weights, the batches of a run, and validation data."""

from __future__ import annotations

import json
import math
import os
import re

import torch

from token_shard import shard_tokens


class InputError(Exception):
    """What is wrong with the files given; the message names the file."""


def read_safetensors(path: str) -> dict[str, torch.Tensor]:
    """The tensors of a file: 8 bytes of length, a JSON header, then the data."""
    dtypes = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(data, dtype=dtypes[entry["dtype"]], offset=entry["data_offsets"][0],
                                   count=math.prod(entry["shape"])).reshape(entry["shape"])
            for name, entry in header.items()}


def read_weights(folder: str) -> dict[str, torch.Tensor]:
    """Every tensor of a Hugging Face folder, of one file or of the files that its index names."""
    index = os.path.join(folder, "model.safetensors.index.json")
    try:
        files = {"model.safetensors"}
        if os.path.exists(index):
            with open(index, encoding="utf-8") as file:
                files = set(json.load(file)["weight_map"].values())
        tensors = {}
        for name in sorted(files):
            tensors |= read_safetensors(os.path.join(folder, name))
        return tensors
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{folder}: no weights in safetensors ({error})") from None


def read_batches(path: str) -> torch.Tensor:
    """(micro-batches, tokens | targets | begins, batch, length) int32, as --dump-batches writes it."""
    try:
        with open(path, "rb") as file:
            magic, length = file.read(8), int.from_bytes(file.read(2), "little")
            header = file.read(length).decode("latin-1")
            shape = re.match(r"\{'descr': '<i4', .*'shape': \((\d+), 3, (\d+), (\d+)\)", header)
            if magic != b"\x93NUMPY\x01\x00" or not shape:
                raise InputError(f"{path}: not what coda_train --dump-batches writes")
            count, batch, seq_len = map(int, shape.groups())
            return torch.frombuffer(bytearray(file.read()), dtype=torch.int32).reshape(count, 3, batch, seq_len).long()
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{path}: {error}") from None


def read_validation(path: str, config: dict) -> list[torch.Tensor]:
    """The micro-batches of a validation, (tokens | targets | begins, batch, length) each, from a token shard without a
    mask: windows that share the one token that is the last target of the one and the first token of the next, as
    coda_train cuts them."""
    try:
        with open(path, "rb") as file:
            words = shard_tokens(file.read())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    training = config["training"]
    length, batch = training["seq_len"], training["micro_batch_size"]
    windows = min((len(words) - 1) // length, config["validation"]["batches"] * batch)
    if windows < 1:
        raise InputError(f"{path}: {len(words)} tokens hold no sequence of {length}")
    tokens = torch.frombuffer(words, dtype=torch.uint16 if words.itemsize == 2 else torch.uint32).long()
    both = torch.stack([tokens[start:start + windows * length].view(windows, length) for start in (0, 1)])
    bos = config["model"]["bos_token_id"]
    begins = both[:1] == (-1 if bos is None else bos)
    return list(torch.cat([both, begins]).split(batch, 1))
