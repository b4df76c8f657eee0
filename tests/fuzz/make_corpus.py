#!/usr/bin/env python3
"""Writes the seed corpora corpus/{safetensors,shard,config}. Files named valid* must be accepted, others refused."""

import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"


def put(target, name, data):
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    (CORPUS / target / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def safetensors():
    def image(header, data=b"", length=None):
        text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
        return struct.pack("<Q", len(text) if length is None else length) + text.encode() + data

    def tensor(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    put("safetensors", "valid_empty", image({}))
    put("safetensors", "valid_dtypes", image(
        {"__metadata__": {"format": "pt"}, "a": tensor("F32", [2, 1], 0, 8), "b": tensor("BF16", [2], 8, 12),
         "c": tensor("F16", [1, 2], 12, 16), "d": tensor("F64", [], 16, 24), "e": tensor("F32", [0, 3], 24, 24),
         "f": tensor("I64", [1], 24, 32), "g": tensor("F4", [4], 32, 34)}, bytes(range(34))))
    put("safetensors", "valid_padded",
        image('{"w":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}}   ', b"\0\0\x80\x3f"))
    put("safetensors", "length_beyond_file", image({}, length=2**63))
    put("safetensors", "overlap", image({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 2, 6)}, bytes(6)))
    put("safetensors", "hole", image({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 4, 6)}, bytes(6)))
    put("safetensors", "overflow", image({"a": tensor("F32", [2**32, 2**32, 0], 0, 0)}))
    put("safetensors", "duplicate", image('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                          '"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0"))
    put("safetensors", "nested", image('{"a":' + "[" * 300))
    put("safetensors", "truncated", b"\x10\0\0")


def shard():
    def image(magic, version, count, tokens, kind):
        return struct.pack("<256i", magic, version, count, *[0] * 253) + struct.pack(f"<{len(tokens)}{kind}", *tokens)

    put("shard", "valid_uint16", image(20240520, 1, 5, [0, 1, 2, 50256, 7], "H"))
    put("shard", "valid_uint32", image(20240801, 7, 3, [0, 50256, 7], "I"))
    put("shard", "id_too_large", image(20240801, 7, 2, [1, 4294967295], "I"))
    put("shard", "count_too_large", image(20240520, 1, 6, [1, 2, 3], "H"))
    put("shard", "count_negative", image(20240520, 1, -1, [1, 2, 3], "H"))
    put("shard", "wrong_version", image(20240520, 7, 3, [1, 2, 3], "H"))
    put("shard", "short_header", image(20240520, 1, 1, [1], "H")[:600])


def config():
    model = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
             "vocab_size": 256}
    training = {"seq_len": 32, "micro_batch_size": 2, "steps": 10}
    small = {"model": model, "data": {"train": "text.txt"}, "training": training}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192}
    put("config", "valid_small.json", json.dumps(small))
    put("config", "valid_full.json", json.dumps({
        "model": {**model, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                  "rope_scaling": llama3, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": None},
        "data": {"train": ["a*.bin", "b.txt"], "val": "c.bin", "shuffle": False, "document_mask": True},
        "training": {**training, "seed": 1, "max_grad_norm": 0, "recompute": "mlp"},
        "optimizer": {"learning_rate": 1e-3, "moments": "bf16"},
        "lr_schedule": {"type": "wsd", "warmup_steps": 2, "decay_steps": 3},
        "device": "cpu", "deterministic": False}))
    put("config", "hugging_face.json", json.dumps({
        **model, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
        "rope_scaling": llama3, "rope_theta": 500000.0, "eos_token_id": [1, 2], "torch_dtype": "bfloat16"}))
    put("config", "unknown_key.json", json.dumps({**small, "trainign": {}}))
    put("config", "wrong_type.json", json.dumps({**small, "model": {**model, "hidden_size": "64"}}))
    put("config", "huge.json", json.dumps({**small, "model": {**model, "vocab_size": 2**63}}))
    put("config", "nested.json", '{"model":' * 200)
    put("config", "cut.json", json.dumps(small)[:70])


if __name__ == "__main__":
    safetensors()
    shard()
    config()
