"""Hugging Face folders of LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM, written and read
by hand, and the model's loss from first principles."""

import json
import math
import os
import random
import struct

DTYPES = {"F64": ("d", 8), "F32": ("f", 4), "F16": ("e", 2), "BF16": ("H", 2), "I32": ("I", 4), "I64": ("q", 8)}

HF_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 70,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 3}
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
# Of its four pairs one keeps its frequency, one is between, and two are slowed by the factor.
YARN = {"head_dim": 8, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                                        "beta_fast": 4.0, "beta_slow": 0.5}}
QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 6}  # four heads of 6, of width 16


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def shapes(config):
    """Names and shapes of the model's tensors, in the order of transformers."""
    d, f, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    width = head_dim(config)
    q, kv = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    result = {"model.embed_tokens.weight": [config["vocab_size"], d]}
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        result |= {
            prefix + "self_attn.q_proj.weight": [q, d],
            prefix + "self_attn.k_proj.weight": [kv, d],
            prefix + "self_attn.v_proj.weight": [kv, d],
            prefix + "self_attn.o_proj.weight": [d, q],
            prefix + "mlp.gate_proj.weight": [f, d],
            prefix + "mlp.up_proj.weight": [f, d],
            prefix + "mlp.down_proj.weight": [d, f],
            prefix + "input_layernorm.weight": [d],
            prefix + "post_attention_layernorm.weight": [d],
        }
        if config["model_type"] == "qwen2" or config.get("attention_bias"):
            result |= {prefix + f"self_attn.{part}_proj.bias": [rows]
                       for part, rows in (("q", q), ("k", kv), ("v", kv))}
        if config["model_type"] == "llama" and config.get("attention_bias"):
            result[prefix + "self_attn.o_proj.bias"] = [d]
        if config["model_type"] == "qwen3":
            result |= {prefix + f"self_attn.{part}_norm.weight": [width] for part in "qk"}
    result["model.norm.weight"] = [d]
    if not config["tie_word_embeddings"]:
        result["lm_head.weight"] = [config["vocab_size"], d]
    return result


def to_bytes(values, dtype):
    """Packed values; BF16 is the upper half of F32, so the values must be representable."""
    if dtype == "BF16":
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{DTYPES[dtype][0]}", *values)


def from_bytes(data, dtype):
    if dtype == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    return [value for value, in struct.iter_unpack("<" + DTYPES[dtype][0], data)]


def random_tensors(config, dtype="F32", seed=0, shapes_of=shapes):
    """{name: (dtype, shape, values)}; large enough that every part of the model matters, representable in `dtype`."""
    chance = random.Random(seed)
    tensors = {}
    for name, shape in shapes_of(config).items():
        scale = 0.5 if len(shape) == 2 else 0.2
        centre = 1 if len(shape) == 1 and name.endswith(".weight") else 0  # of norms
        values = [centre + chance.gauss(0, scale) for _ in range(math.prod(shape))]
        narrow = "F32" if dtype == "F64" else dtype  # the program computes in fp32
        tensors[name] = (dtype, shape, from_bytes(to_bytes(values, narrow), narrow))
    return tensors


def pack_safetensors(header, data, length=None):
    """The bytes of a file with any header, a JSON object or bytes; `length` may be wrong on purpose."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def safetensors(tensors):
    """The bytes of a well-formed file."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, values) in tensors.items():
        packed = to_bytes(values, dtype)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    return pack_safetensors(header, data)


def read_safetensors(path):
    """{name: (dtype, shape, values)} of a file, its layout checked."""
    with open(path, "rb") as file:
        contents = file.read()
    length, = struct.unpack("<Q", contents[:8])
    assert length % 8 == 0, "the data begins aligned"
    header, data = json.loads(contents[8:8 + length]), contents[8 + length:]
    assert header.pop("__metadata__") == {"format": "pt"}, "transformers refuses a file without it"
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, last = entry["data_offsets"]
        assert begin == end and last - begin == math.prod(entry["shape"]) * DTYPES[entry["dtype"]][1], name
        tensors[name] = (entry["dtype"], entry["shape"], from_bytes(data[begin:last], entry["dtype"]))
        end = last
    assert end == len(data)
    return tensors


def write_folder(folder, config, tensors, shards=1):
    """A Hugging Face folder of one file, or of several with their index."""
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    if shards == 1:
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(safetensors(tensors))
        return
    weight_map = {}
    for shard in range(shards):
        part = dict(list(tensors.items())[shard::shards])
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        weight_map |= {tensor: name for tensor in part}
        with open(os.path.join(folder, name), "wb") as file:
            file.write(safetensors(part))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {}, "weight_map": weight_map}, file)


class Llama:
    """The forward pass as transformers defines it, in Python floats (fp64), token by token."""

    def __init__(self, config, tensors, rope_sign=1):
        self.config, self.rope_sign = config, rope_sign
        self.weights = {}
        for name, (_, shape, values) in tensors.items():
            width = shape[-1]
            rows = [values[i:i + width] for i in range(0, len(values), width)]
            self.weights[name] = rows if len(shape) == 2 else rows[0]

    def linear(self, name, x):
        z = [sum(a * b for a, b in zip(row, x)) for row in self.weights[name]]
        bias = self.weights.get(name.removesuffix("weight") + "bias")
        return z if bias is None else [a + b for a, b in zip(z, bias)]

    def norm(self, name, x):
        factor = 1 / math.sqrt(sum(a * a for a in x) / len(x) + self.config["rms_norm_eps"])
        return [gamma * a * factor for gamma, a in zip(self.weights[name], x)]

    def rope(self, pair, half):
        """(angle per position, attention factor) of a pair, with YaRN as transformers computes it."""
        frequency, yarn = self.config["rope_theta"] ** (-pair / half), self.config.get("rope_scaling")
        if yarn is None:
            return frequency, 1
        low, high = (half * math.log(yarn["original_max_position_embeddings"] / (2 * math.pi * turns))
                     / math.log(self.config["rope_theta"]) for turns in (yarn["beta_fast"], yarn["beta_slow"]))
        low, high = max(math.floor(low), 0), min(math.ceil(high), 2 * half - 1)
        ramp = min(max((pair - low) / (high - low), 0), 1)
        slowed = frequency * (1 - ramp) + frequency / yarn["factor"] * ramp
        return slowed, yarn.get("attention_factor", 0.1 * math.log(yarn["factor"]) + 1)

    def rotate(self, head, position):
        """rotate_half: component i goes with i + half."""
        half = len(head) // 2
        result = list(head)
        for i in range(half):
            frequency, factor = self.rope(i, half)
            angle = self.rope_sign * position * frequency
            low, high = head[i], head[i + half]
            result[i] = factor * (low * math.cos(angle) - high * math.sin(angle))
            result[i + half] = factor * (high * math.cos(angle) + low * math.sin(angle))
        return result

    def heads(self, x, width):
        return [x[i:i + width] for i in range(0, len(x), width)]

    def attend(self, prefix, x, keys, values):
        """Attention of the newest token; its keys and values are appended to the lists of those before it."""
        count = self.config["num_attention_heads"]
        width, position = head_dim(self.config), len(keys)
        queries, newest = (self.heads(self.linear(prefix + part + "_proj.weight", x), width) for part in "qk")
        if self.config["model_type"] == "qwen3":
            queries = [self.norm(prefix + "q_norm.weight", head) for head in queries]
            newest = [self.norm(prefix + "k_norm.weight", head) for head in newest]
        keys.append([self.rotate(k, position) for k in newest])
        values.append(self.heads(self.linear(prefix + "v_proj.weight", x), width))
        window = self.config.get("sliding_window") or len(keys)
        first, output = max(0, len(keys) - window), []
        for head, query in enumerate(queries):
            kv = head * self.config["num_key_value_heads"] // count
            query = self.rotate(query, position)
            scores = [sum(a * b for a, b in zip(query, key[kv])) / math.sqrt(width) for key in keys[first:]]
            weights = [math.exp(score - max(scores)) for score in scores]
            output += [sum(w * value[kv][i] for w, value in zip(weights, values[first:])) / sum(weights)
                       for i in range(width)]
        return self.linear(prefix + "o_proj.weight", output)

    def mlp(self, prefix, x):
        gate, up = self.linear(prefix + "gate_proj.weight", x), self.linear(prefix + "up_proj.weight", x)
        return self.linear(prefix + "down_proj.weight", [g / (1 + math.exp(-g)) * u for g, u in zip(gate, up)])

    def loss(self, tokens, targets):
        """Mean cross-entropy of one sequence, in nats per token."""
        head = "lm_head.weight" if "lm_head.weight" in self.weights else "model.embed_tokens.weight"
        caches = [([], []) for _ in range(self.config["num_hidden_layers"])]
        total = 0.0
        for token, target in zip(tokens, targets):
            x = self.weights["model.embed_tokens.weight"][token]
            for layer, (keys, values) in enumerate(caches):
                prefix = f"model.layers.{layer}."
                branch = self.attend(prefix + "self_attn.", self.norm(prefix + "input_layernorm.weight", x),
                                     keys, values)
                x = [a + b for a, b in zip(x, branch)]
                branch = self.mlp(prefix + "mlp.", self.norm(prefix + "post_attention_layernorm.weight", x))
                x = [a + b for a, b in zip(x, branch)]
            logits = self.linear(head, self.norm("model.norm.weight", x))
            total += max(logits) + math.log(sum(math.exp(z - max(logits)) for z in logits)) - logits[target]
        return total / len(tokens)
