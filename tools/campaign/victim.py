"""The run that tools/campaign/kill_resume kills: its files, and what must hold of them at any moment.

An uninterrupted run of the same configuration, the reference, says what every log record and every checkpoint must be.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct

import runlog
from campaign import Failed
from changed_config import changed
from token_shard import shard_bytes

# Small, and with everything that a run can have. The GPU takes the shapes. The MLP is wide compared with the batch, so
# that writing a checkpoint takes a good share of the time.
CONFIG = {
    "model": {"hidden_size": 64, "intermediate_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 2,
              "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 320, "bos_token_id": 256,
              "tie_word_embeddings": True},
    "data": {"train": "tokens.bin", "tokenizer": "tokenizer.json", "shuffle": True, "document_mask": True},
    "training": {"seq_len": 16, "micro_batch_size": 2, "grad_accumulation_steps": 2, "lm_head_chunks": 2,
                 "recompute": "swiglu"},
    "optimizer": {"learning_rate": 1e-3},
    "lr_schedule": {"type": "cosine", "warmup_steps": 5},
    "validation": {"interval": 5, "batches": 2},
    "checkpoint": {"interval": 2, "keep": 2},
    "output": {"directory": "run"},
}
TOKENS = 4000  # some ten epochs of 600 steps
KINDS = ("loss", "val_loss", "evaluation", "sample")  # the key that tells what a record is


def tokenizer_json() -> dict:
    """A byte-level tokenizer: byte b is token b, <|endoftext|> is 256."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return {"version": "1.0", "normalizer": None, "post_processor": None, "decoder": {"type": "ByteLevel"},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "added_tokens": [{"id": 256, "content": "<|endoftext|>", "special": True}],
            "model": {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []}}


def shard() -> bytes:
    """A token shard of documents that begin with token 256; each token is mostly a function of the one before."""
    state, token, tokens = 1, 0, []
    for _ in range(TOKENS):
        state = (state * 1103515245 + 12345) % 2**31
        chance = state >> 16
        token = 256 if chance % 37 == 0 else (token * 5 + chance % 3) % 256
        tokens.append(token)
    return shard_bytes(tokens)


def write_files(folder: str, changes: dict) -> None:
    """config.json and what it names."""
    os.makedirs(folder)
    for name, text in (("config.json", json.dumps(changed(CONFIG, changes), indent=1)),
                       ("tokenizer.json", json.dumps(tokenizer_json()))):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    with open(os.path.join(folder, "tokens.bin"), "wb") as file:
        file.write(shard())


def _round(lane: int, word: int) -> int:
    lane = (lane + word * 0xC2B2AE3D27D4EB4F) & 0xFFFFFFFFFFFFFFFF
    return ((lane << 31 | lane >> 33) & 0xFFFFFFFFFFFFFFFF) * 0x9E3779B185EBCA87 & 0xFFFFFFFFFFFFFFFF


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0, which marks a checkpoint's meta.json; an implementation apart from the program's."""
    p1, p2, p3, p4, p5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                          0x27D4EB2F165667C5)
    mask, at = 0xFFFFFFFFFFFFFFFF, 0

    def rotate(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & mask

    if len(data) >= 32:
        lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
        while at + 32 <= len(data):
            lanes = [_round(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", data, at))]
            at += 32
        value = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & mask
        for lane in lanes:
            value = ((value ^ _round(0, lane)) * p1 + p4) & mask
    else:
        value = p5
    value = (value + len(data)) & mask
    for size, form in ((8, "<Q"), (4, "<I"), (1, "B")):
        while at + size <= len(data):
            word, = struct.unpack_from(form, data, at)
            at += size
            if size == 8:
                value = (rotate(value ^ _round(0, word), 27) * p1 + p4) & mask
            elif size == 4:
                value = (rotate(value ^ (word * p1 & mask), 23) * p2 + p3) & mask
            else:
                value = rotate(value ^ (word * p5 & mask), 11) * p1 & mask
    value = (value ^ value >> 33) * p2 & mask
    value = (value ^ value >> 29) * p3 & mask
    return value ^ value >> 32


def sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_log(path: str) -> tuple[list[dict], list[str]]:
    """The records of steps, validations and evaluations without measurements, in order; and what is wrong with the
    lines. Only the last line may be torn."""
    try:
        with open(path, "rb") as file:
            *lines, torn = file.read().split(b"\n")
    except FileNotFoundError:
        return [], []
    found, wrong = [], []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line.decode())
        except ValueError:
            wrong.append(f"log.jsonl:{number}: no JSON, and not the last line: {line[:80]!r}")
            continue
        if number == 1 and not (isinstance(record, dict) and "config" in record):
            wrong.append(f"log.jsonl:1: no header: {line[:80]!r}")
        if isinstance(record, dict) and any(kind in record for kind in KINDS):
            found.append(runlog.repeatable(record))
    if torn and not lines:
        wrong.append("log.jsonl:1: the header is torn")
    return found, wrong


def checkpoint_names(run: str) -> list[str]:
    folder = os.path.join(run, "checkpoints")
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


class Reference:
    """Log records and checkpoints of the uninterrupted run in `run`, which must have kept all of its checkpoints."""

    def __init__(self, run: str):
        self.records, wrong = read_log(os.path.join(run, "log.jsonl"))
        if wrong or not self.records:
            raise Failed(f"the uninterrupted run's log: {wrong[0] if wrong else 'holds no step'}")
        self.checkpoints = {}  # name -> segment -> (SHA-256, checksum as meta.json has it)
        for name in checkpoint_names(run):
            segments, wrong = read_checkpoint(os.path.join(run, "checkpoints", name), name)
            if wrong:
                raise Failed(f"the uninterrupted run's {wrong[0]}")
            self.checkpoints[name] = segments
        if not self.checkpoints:
            raise Failed("the uninterrupted run has no checkpoint")

    def log_problems(self, run: str, whole: bool) -> list[str]:
        """The log must be the beginning of the reference's, in order and bit by bit; with `whole`, all of it."""
        found, wrong = read_log(os.path.join(run, "log.jsonl"))
        for expected, record in zip(self.records, found):
            if record != expected:
                return [*wrong, f"log.jsonl has {json.dumps(record)} where the uninterrupted run has "
                                f"{json.dumps(expected)}"]
        if len(found) > len(self.records) or (whole and len(found) != len(self.records)):
            wrong.append(f"log.jsonl has {len(found)} records, the uninterrupted run {len(self.records)}")
        return wrong

    def checkpoint_problems(self, run: str) -> list[str]:
        """Every checkpoint that is there must be complete, and equal to the reference's of that step in every bit."""
        wrong = []
        for name in checkpoint_names(run):
            if name.startswith(".tmp-"):
                continue
            segments, found = read_checkpoint(os.path.join(run, "checkpoints", name), name)
            expected = self.checkpoints.get(name)
            if not found and expected is None:
                found = [f"{name}: the uninterrupted run saved no such checkpoint"]
            if not found and segments != expected:
                differ = sorted(key for key in segments.keys() | expected.keys()
                                if segments.get(key) != expected.get(key))
                found = [f"{name}: differs from the uninterrupted run's in {', '.join(differ)}"]
            wrong += found
        return wrong


def read_checkpoint(folder: str, name: str) -> tuple[dict, list[str]]:
    """Segments as {name: (SHA-256, recorded checksum)}, and what is wrong: a missing file, a marker that does not fit
    meta.json, a size that is not the recorded one."""
    try:
        with open(os.path.join(folder, "meta.json"), "rb") as file:
            contents = file.read()
        with open(os.path.join(folder, "complete"), encoding="utf-8") as file:
            marker = file.read()
        if marker != f"{xxh64(contents):016x}\n":
            return {}, [f"{name}: the marker does not fit meta.json"]
        meta = json.loads(contents)
        if name != f"step_{meta['step']:08}":
            return {}, [f"{name}: holds step {meta['step']}"]
        segments, wrong = {}, []
        for segment in meta["segments"]:
            path = os.path.join(folder, segment["name"] + ".bin")
            if os.path.getsize(path) != segment["bytes"]:
                wrong.append(f"{name}: {segment['name']}.bin has {os.path.getsize(path)} bytes, not {segment['bytes']}")
            segments[segment["name"]] = (sha256(path), segment["xxh64"])
        return segments, wrong
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {}, [f"{name}: {error}"]
