#!/usr/bin/env python3
"""Writes the seeds of corpus.tar.xz. Files named valid* must be accepted, others refused."""

import json
import os
import struct
import sys

sys.dont_write_bytecode = True
import corpus_archive  # noqa: E402

SEEDS = {}  # TARGET/NAME: content


def put(target, name, data):
    SEEDS[f"{target}/{name}"] = data if isinstance(data, bytes) else data.encode()


def image(header, data=b"", length=None):
    """A safetensors file."""
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    return struct.pack("<Q", len(text) if length is None else length) + text.encode() + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors():
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


def int4_matrix():
    def file(*parts):
        """Of (end of the name, dtype, shape, bytes)."""
        header, data = {}, b""
        for end, dtype, shape, content in parts:
            header["m." + end] = tensor(dtype, shape, len(data), len(data) + len(content))
            data += content
        return image(header, data)

    words, scales = bytes(range(256)) * 4, struct.pack("<16e", *[0.5 + i / 64 for i in range(16)])
    packed = ("weight_packed", "I32", [8, 32], words), ("weight_scale", "F16", [8, 2], scales)
    shape = "weight_shape", "I64", [2], struct.pack("<2q", 8, 256)
    gptq = ("qweight", "I32", [32, 8], words), ("scales", "F16", [2, 8], scales)
    zeros, order = b"\x77" * 8, struct.pack("<256i", *[k // 128 for k in range(256)])
    put("int4_matrix", "valid_packed", file(*packed, shape))
    put("int4_matrix", "valid_gptq", file(*gptq, ("qzeros", "I32", [2, 1], zeros)))
    put("int4_matrix", "valid_gptq2",
        file(*gptq, ("qzeros", "I32", [2, 1], b"\x88" * 8), ("g_idx", "I32", [256], order)))
    put("int4_matrix", "other_shape", file(*packed, (*shape[:3], struct.pack("<2q", 8, 128))))
    put("int4_matrix", "no_shape", file(*packed))
    put("int4_matrix", "zero_points", file(*gptq, ("qzeros", "I32", [2, 1], b"\x66" * 8)))
    put("int4_matrix", "other_order",
        file(*gptq, ("qzeros", "I32", [2, 1], zeros), ("g_idx", "I32", [256], bytes(1024))))
    put("int4_matrix", "integer_scales", file(packed[0], ("weight_scale", "I16", [8, 2], scales), shape))


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


def token_mask():
    def image(mask, count=None, magic=20251125, version=1):
        return struct.pack("<256i", magic, version, len(mask) if count is None else count, *[0] * 253) + bytes(mask)

    put("token_mask", "valid_conversations", image([2, 0, 1, 1, 3, 1, 0]))
    put("token_mask", "valid_one", image([0]))
    put("token_mask", "unknown_bit", image([2, 1, 4]))
    put("token_mask", "count_too_large", image([2, 1, 1], count=4))
    put("token_mask", "count_negative", image([2, 1, 1], count=-3))
    put("token_mask", "none", image([]))
    put("token_mask", "wrong_magic", image([2, 1], magic=20240520))
    put("token_mask", "wrong_version", image([2, 1], version=2))
    put("token_mask", "short_header", image([2, 1])[:600])


MODEL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "vocab_size": 256}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}


def config():
    model = MODEL
    training = {"seq_len": 32, "micro_batch_size": 2, "steps": 10}
    small = {"model": model, "data": {"train": "text.txt"}, "training": training}
    put("config", "valid_small.json", json.dumps(small))
    put("config", "valid_full.json", json.dumps({
        "model": {**model, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
                  "rope_scaling": LLAMA3, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": None},
        "data": {"train": ["a*.bin", "b.txt"], "val": "c.bin", "shuffle": False, "document_mask": True},
        "training": {**training, "seed": 1, "max_grad_norm": 0, "recompute": "mlp"},
        "optimizer": {"learning_rate": 1e-3, "moments": "bf16"},
        "lr_schedule": {"type": "wsd", "warmup_steps": 2, "decay_steps": 3},
        "device": "cpu"}))
    put("config", "unknown_key.json", json.dumps({**small, "trainign": {}}))
    put("config", "wrong_type.json", json.dumps({**small, "model": {**model, "hidden_size": "64"}}))
    put("config", "huge.json", json.dumps({**small, "model": {**model, "vocab_size": 2**63}}))
    put("config", "nested.json", '{"model":' * 200)
    put("config", "cut.json", json.dumps(small)[:70])


def hf_config():
    hf = {**MODEL, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu"}
    put("hf_config", "valid_small.json", json.dumps({**MODEL, "model_type": "llama"}))
    put("hf_config", "valid_llama3.json", json.dumps({
        **hf, "num_key_value_heads": 2, "head_dim": 16, "rope_scaling": LLAMA3, "rope_theta": 500000.0,
        "bos_token_id": 1, "eos_token_id": [2, 3], "torch_dtype": "bfloat16", "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5, "initializer_range": 0.01, "max_position_embeddings": 8192}))
    put("hf_config", "valid_rope_parameters.json", json.dumps({
        **hf, "rope_parameters": {**LLAMA3, "rope_theta": 500000.0}}))
    yarn = {"type": "yarn", "original_max_position_embeddings": 64, "beta_fast": 16, "mscale": 0.7, "mscale_all_dim": 1.0}
    put("hf_config", "valid_yarn.json", json.dumps({**hf, "rope_scaling": yarn, "max_position_embeddings": 256}))
    put("hf_config", "valid_bias.json", json.dumps({**hf, "attention_bias": True}))
    gpt2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256}
    put("hf_config", "valid_gpt2.json", json.dumps(gpt2))
    put("hf_config", "valid_gpt2_full.json", json.dumps({
        **gpt2, "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu", "n_inner": 100, "n_positions": 64,
        "layer_norm_epsilon": 1e-6, "tie_word_embeddings": False, "bos_token_id": 1, "resid_pdrop": 0.1}))
    put("hf_config", "gpt2_scores.json", json.dumps({**gpt2, "scale_attn_by_inverse_layer_idx": True}))
    put("hf_config", "other_model.json", json.dumps({**hf, "model_type": "mistral"}))
    put("hf_config", "no_heads.json", json.dumps({**hf, "num_attention_heads": 0}))
    put("hf_config", "huge.json", json.dumps({**hf, "hidden_size": 2**63}))
    put("hf_config", "uneven.json", json.dumps({**hf, "num_attention_heads": 7}))
    put("hf_config", "list.json", "[1, 2]")


def evaluation_shard():
    def example(index, label, parts, bytes_more=0):
        words = [word for part in parts for word in (len(part), *part)]
        return struct.pack(f"<{5 + len(words)}H", 65535, 10 + 2 * len(words) + bytes_more, index, label,
                           len(parts) - 1, *words)

    def image(examples, count=None, magic=20240522, version=1, end=b""):
        header = struct.pack("<256i", magic, version, len(examples) if count is None else count, 64, *[0] * 252)
        return header + b"".join(examples) + end

    good = [example(0, 1, [[1, 2], [3], [4, 5]]), example(1, 0, [[7], [50256, 1], [9]])]
    put("evaluation_shard", "valid_two", image(good))
    put("evaluation_shard", "valid_four_choices", image([example(0, 3, [[1], [2], [3], [4], [5, 6]])]))
    put("evaluation_shard", "wrong_magic", image(good, magic=20240520))
    put("evaluation_shard", "none", image([]))
    put("evaluation_shard", "one_more", image(good, count=3))
    put("evaluation_shard", "bytes_follow", image(good, end=b"ab"))
    put("evaluation_shard", "label_outside", image([example(0, 2, [[1], [2], [3]])]))
    put("evaluation_shard", "empty_context", image([example(0, 0, [[], [2], [3]])]))
    put("evaluation_shard", "id_too_large", image([example(0, 0, [[1], [50257], [3]])]))
    put("evaluation_shard", "too_long", image([example(0, 0, [[1], [2] * 65, [3]])]))
    put("evaluation_shard", "length_beyond_file", image([example(0, 0, [[1], [2], [3]], bytes_more=2)]))
    put("evaluation_shard", "short_header", image(good)[:100])


def checkpoint_meta():
    segment = {"name": "m", "bytes": 10, "xxh64": "3f5fc178a81867e7"}  # of "0123456789"

    def meta(**changes):
        return json.dumps({"format": "coda_train checkpoint", "version": 1, "step": 7, "state": {"tokens": 64},
                           "segments": [segment]} | changes, indent=2)

    put("checkpoint_meta", "valid_one_segment", meta())
    put("checkpoint_meta", "valid_no_segment", meta(segments=[]))
    put("checkpoint_meta", "another_step", meta(step=8))
    put("checkpoint_meta", "another_format", meta(format="checkpoint"))
    put("checkpoint_meta", "later_version", meta(version=99))
    put("checkpoint_meta", "no_state", meta().replace("state", "stat"))
    put("checkpoint_meta", "wrong_size", meta(segments=[segment | {"bytes": -1}]))
    put("checkpoint_meta", "size_beyond_integers", meta(segments=[segment | {"bytes": 1e30}]))
    put("checkpoint_meta", "step_beyond_integers", meta(step=1e30))
    put("checkpoint_meta", "wrong_checksum", meta(segments=[segment | {"xxh64": "0"}]))
    put("checkpoint_meta", "no_checksum", meta(segments=[segment | {"xxh64": "none"}]))
    put("checkpoint_meta", "outside", meta(segments=[segment | {"name": "../m"}]))
    put("checkpoint_meta", "absent_segment", meta(segments=[segment | {"name": "v"}]))
    put("checkpoint_meta", "segments_no_list", meta(segments=7))
    put("checkpoint_meta", "cut", meta()[:60])


def run_log():
    header = json.dumps({"config": {"training": {"steps": 9}}, "device": "cpu", "build": "0", "command": ["a"]})

    def step(number):
        return json.dumps({"step": number, "loss": 4.5, "grad_norm": 1.0, "lr": 1e-3, "tokens": 64, "ms": 1.5})

    def log(*lines, end="\n"):
        return "\n".join(lines) + end

    validation, evaluation = json.dumps({"step": 4, "val_loss": 4.25}), json.dumps(
        {"step": 4, "evaluation": "hellaswag_val", "acc": 0.25, "acc_norm": 0.5, "examples": 4})
    # The reader of a log refuses none: what it cannot use is set aside.
    put("run_log", "valid_whole", log(header, step(3), step(4), validation, evaluation, step(5), step(6)))
    put("run_log", "valid_torn", log(header, step(4), step(5)[:30], end=""))
    put("run_log", "valid_foreign_line", log(header, step(3), "hello", step(4), step(5)))
    put("run_log", "valid_no_header", log(step(3), step(4)))
    put("run_log", "valid_empty", "")
    put("run_log", "valid_odd_steps", log(header, '{"step": -1}', '{"step": 1e3}', '{"step": "2"}', "[1]"))
    put("run_log", "valid_not_utf8", log(header, step(3)).encode() + b'{"step": 4, "a": "\xff"}\n')


def safetensors_index():
    def index(weight_map, **more):
        return json.dumps({"metadata": {"total_size": 4}, "weight_map": weight_map} | more)

    # As tests/fuzz/folder_targets.cpp writes the shards.
    good = {"a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors"}
    put("safetensors_index", "valid_both", index(good))
    put("safetensors_index", "valid_one", index({"a": "one.safetensors"}))
    put("safetensors_index", "missing_tensor", index(good | {"d": "one.safetensors"}))
    put("safetensors_index", "lacks_a_tensor", index({"a": "one.safetensors", "b": "two.safetensors"}))
    put("safetensors_index", "missing_shard", index(good | {"a": "three.safetensors"}))
    put("safetensors_index", "outside", index(good | {"a": "../one.safetensors"}))
    put("safetensors_index", "swapped", index({"a": "two.safetensors", "b": "one.safetensors"}))
    put("safetensors_index", "not_a_name", index(good | {"a": 1}))
    put("safetensors_index", "no_map", json.dumps({"metadata": {}}))
    put("safetensors_index", "list", "[]")


def tokenizer():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    merges = ["t e", "x t", "te xt", "1 2"]
    tokens = [*(letters[byte] for byte in range(256)), *(merge.replace(" ", "") for merge in merges)]
    vocab = {token: i for i, token in enumerate(tokens)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}| ?\p{L}+|\s+(?!\S)|\s+|[^\s\p{L}\p{N}]+"},
             "behavior": "Isolated"}

    def file(model=(), **changes):
        base = {"added_tokens": [{"id": 260, "content": "<|end|>", "special": True}], "normalizer": None,
                "pre_tokenizer": byte_level, "post_processor": None, "decoder": {"type": "ByteLevel"},
                "model": {"type": "BPE", "vocab": vocab, "merges": merges} | dict(model)}
        return json.dumps(base | changes, ensure_ascii=False, separators=(",", ":"))

    sequence = {"type": "Sequence", "pretokenizers": [split, byte_level | {"use_regex": False}]}
    put("tokenizer", "valid_gpt2.json", file())
    put("tokenizer", "valid_split.json", file(pre_tokenizer=sequence, normalizer={"type": "NFC"},
                                              model={"ignore_merges": True, "merges": [["t", "e"], ["x", "t"]]}))
    put("tokenizer", "valid_no_byte.json", file(model={"vocab": {k: v for k, v in vocab.items() if v not in (0, 259)} | {"12": 0},
                                                       "unk_token": None},
                                                added_tokens=[]))
    config = {"added_tokens_decoder": {"260": {"content": "<|end|>", "special": True, "lstrip": True, "rstrip": True},
                                       "261": {"content": "again", "single_word": True}}}
    put("tokenizer", "valid_config.json", file() + "\x1e" + json.dumps(config))
    digits = {"type": "Digits", "individual_digits": True}
    several = [digits, split | {"pattern": {"String": "("}, "behavior": "MergedWithPrevious"},
               split | {"pattern": {"Regex": "[\\p{L}\\p{M}]+|\\s+$"}, "behavior": "Removed", "invert": True}, byte_level]
    put("tokenizer", "valid_steps.json", file(pre_tokenizer=sequence | {"pretokenizers": several}))
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    spm_tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *"\u2581Someagin.12", "\u2581a", "in", "ag"]
    spm = {"vocab": {token: i for i, token in enumerate(dict.fromkeys(spm_tokens))}, "merges": ["\u2581 a", "i n", "a g"],
           "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    strip = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
             {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    end = {"id": len(spm["vocab"]), "content": "<|end|>", "special": True, "normalized": True}
    characters = {"model": spm, "added_tokens": [end], "decoder": {"type": "Sequence", "decoders": strip}}
    put("tokenizer", "valid_prepend.json", file(**characters, pre_tokenizer=None, normalizer={
        "type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, replace]}))
    for scheme in ("first", "always"):
        metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": scheme == "always"}
        put("tokenizer", f"valid_metaspace_{scheme}.json",
            file(**characters | {"decoder": metaspace}, pre_tokenizer=metaspace))
    put("tokenizer", "same_id.json", file(model={"vocab": vocab | {"text": 7}}))
    put("tokenizer", "unknown_merge.json", file(model={"merges": ["t q"]}))
    put("tokenizer", "id_too_large.json", file(added_tokens=[{"id": 2**22, "content": "x"}]))
    put("tokenizer", "word_piece.json", file(model={"type": "WordPiece"}))
    put("tokenizer", "empty_match.json", file(pre_tokenizer={
        "type": "Sequence", "pretokenizers": [split | {"pattern": {"Regex": "a*"}}, byte_level | {"use_regex": False}]}))
    put("tokenizer", "cut.json", file()[:500])


def json_line():
    put("json_line", "valid_plain", '{"text": "a\\u00e9\\ud83d\\ude42", "n": [1, -2.5, {"x": null}]}')
    put("json_line", "valid_nan", '{"score": NaN, "low": -Infinity, "high": Infinity, "big": 1e999, "text": "NaN"}')
    put("json_line", "valid_surrogate", '{"text": "one \\ud83d end \\ude42\\ud83d\\ud83d\\ude42"}')
    put("json_line", "valid_twice", '{"text": "a", "text": "b"}')
    put("json_line", "number", '{"n": 01, "text": ""}')
    put("json_line", "open", '{"text": "a\\')


def conversation():
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "<|end|>"},
             {"role": "assistant", "content": "e\u0301 \u4e2d<|endless|>\n"}]
    put("conversation", "valid_messages", json.dumps({"messages": turns, "id": 1}))
    put("conversation", "valid_sharegpt", json.dumps({"conversations": [{"from": "human", "value": "<|"},
                                                                        {"from": "gpt", "value": "end|>"}]}))
    put("conversation", "valid_texts", '{"prompt": "p", "completion": "c\\ud83d", "score": NaN}')
    put("conversation", "valid_lists", json.dumps({"prompt": turns[:2], "completion": turns[2:]}))
    put("conversation", "valid_text", b'{"text": "\xc3 t"}')
    put("conversation", "no_completion", '{"prompt": "p"}')
    put("conversation", "no_messages", '{"messages": []}')
    put("conversation", "role", '{"messages": [{"role": "tool", "content": "c"}]}')
    put("conversation", "tools", '{"messages": [{"role": "user", "content": "c", "tool_calls": [1]}]}')
    put("conversation", "list", '[{"text": "t"}]')


def request():
    def line(**keys):
        return json.dumps(keys, ensure_ascii=False)

    put("request", "valid_prompt", line(prompt="\u00e9 \u4e2d\n", id="a", stop=["\n\n", "END"], max_tokens=7))
    put("request", "valid_tokens", line(tokens=[0, 1, 2147483647], seed=2**64 - 1, temperature=0, top_k=40, top_p=0.9,
                                        min_p=0.05, repetition_penalty=1.1, id=-3))
    put("request", "valid_messages", line(messages=[{"role": "system", "content": ""}, {"role": "user", "content": "a"},
                                                    {"role": "assistant", "content": "b"}], stop="x"))
    put("request", "valid_nul", '{"prompt": "a\\u0000b"}')
    put("request", "no_prompt", line(id=1))
    put("request", "two_prompts", line(prompt="a", tokens=[1]))
    put("request", "unknown_key", line(prompt="a", max_token=3))
    put("request", "range", line(prompt="a", top_p=1.5))
    put("request", "surrogate", '{"prompt": "\\ud800"}')
    put("request", "invalid_utf8", b'{"prompt": "\xc3"}')
    put("request", "role", line(messages=[{"role": "tool", "content": "a"}]))


def chat_template():
    sys.path.insert(0, os.path.join(os.path.dirname(corpus_archive.ARCHIVE), "..", "tokenize"))
    import chat_fixtures

    refused = {"undefined_member", "undefined_sum", "undefined_call", "none_loop", "text_and_number", "gemma",
               "alternate"}
    for name, template in chat_fixtures.TEMPLATES.items():
        put("chat_template", name if name in refused else "valid_" + name, template)
    put("chat_template", "no_end", "{% for message in messages %}{{ '<|im_start|>' + message.role")
    put("chat_template", "left_over", "a{% endif %}")
    put("chat_template", "endless", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
    put("chat_template", "doubling", "{% set ns = namespace(x='a') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}"
                                     "{% endfor %}{{ ns.x }}")
    put("chat_template", "recursive", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")
    put("chat_template", "valid_self", "{% set ns = namespace() %}{% set ns.x = [ns] %}{% set ns.y = ns.x %}a")


def seeds() -> dict[str, bytes]:
    SEEDS.clear()
    safetensors()
    safetensors_index()
    int4_matrix()
    shard()
    token_mask()
    evaluation_shard()
    checkpoint_meta()
    config()
    hf_config()
    run_log()
    tokenizer()
    json_line()
    conversation()
    request()
    chat_template()
    return SEEDS


if __name__ == "__main__":
    found = {name: data for name, data in corpus_archive.read(corpus_archive.ARCHIVE).items() if "/found/" in name}
    corpus_archive.write(corpus_archive.ARCHIVE, found | seeds())
