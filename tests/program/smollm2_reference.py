#!/usr/bin/env python3
"""What test_smollm2.py expects of SmolLM2-135M-Instruct, computed without this project's programs.

    data/smollm2.py --folder FOLDER
    tests/program/smollm2_reference.py FOLDER > tests/program/smollm2_expected.json

Needs the packages numpy, tokenizers and jinja2. Ids are those of `tokenizers`, the chat is the folder's own template as
jinja2 renders it, and the logits are a LLaMA written out in float64 on the folder's bf16 weights: no cache, no fusion,
nothing rounded. `margin` is the smallest distance of the two best logits over the tokens of a greedy text, so an
implementation in fp32 chooses the same tokens.
"""

import hashlib
import json
import os
import re
import sys

import jinja2
import numpy
import tokenizers

SEQ_LEN = 96
TEXT = """The ferry to the island leaves at 7:45 in the morning and comes back at 19:30. Between those hours nobody can \
leave, which is why the baker, the teacher and the doctor know each other so well. When the wind blows from the north \
the captain stays in the harbour, drinks his coffee and tells the tourists about the storm of 1987, in which the old \
pier was lost. "It took three days," he says, "and in the end the sea gave us back a single chair." The chair stands \
in the school. Children are allowed to sit on it on their birthdays, and they say that you can hear the waves if you \
close your eyes.

In winter the island has 212 inhabitants and two shops. The first sells bread, milk and newspapers; the second is open \
only on Saturdays, and what it sells depends on what the ferry has brought. Most people heat their houses with wood.
"""
# Digits one by one, runs of spaces, tabs and line ends, bytes that have no token, special tokens, other scripts.
TEXTS = ("Hello world, it is 2024!", "Z\u00fcrich  na\u00efve \t \u6771\u4eac \U0001f642", "\x00\x7f\u0080",
         "def f(n):\n    return n ** 2  # 1999\n\n\n", "\u00bd \u2167 \u0663\u0664 <|im_end|>\nx", "  two\r\n\tthree ")
PROMPT, QUESTION, TOKENS = "Water boils at", "What is the capital of France?", 16


def read_weights(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__")
    return {name: (numpy.frombuffer(data[slice(*entry["data_offsets"])], "<u2").astype("<u4") << 16).view("<f4")
            .reshape(entry["shape"]).astype(numpy.float64) for name, entry in header.items()}


class Llama:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            self.config = json.load(file)
        self.weights = read_weights(folder)

    def norm(self, x, name):
        mean_square = (x * x).mean(-1, keepdims=True)
        return x / numpy.sqrt(mean_square + self.config["rms_norm_eps"]) * self.weights[name + ".weight"]

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def rope(self, x):
        """x: (tokens, heads, head_dim); the element i of a head turns with i + head_dim / 2."""
        half = x.shape[-1] // 2
        angle = numpy.arange(len(x))[:, None, None] * self.config["rope_theta"] ** (-numpy.arange(half) / half)
        cos, sin, (first, second) = numpy.cos(angle), numpy.sin(angle), numpy.split(x, 2, -1)
        return numpy.concatenate((first * cos - second * sin, second * cos + first * sin), -1)

    def attention(self, x, layer):
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        q, k, v = (self.linear(x, f"{layer}.self_attn.{name}_proj").reshape(len(x), n, -1)
                   for name, n in (("q", heads), ("k", groups), ("v", groups)))
        q, k, v = self.rope(q), *(y.repeat(heads // groups, 1) for y in (self.rope(k), v))
        scores = numpy.einsum("ihd,jhd->hij", q, k) / numpy.sqrt(q.shape[-1])
        scores[:, numpy.triu(numpy.ones((len(x), len(x)), bool), 1)] = -numpy.inf
        p = numpy.exp(scores - scores.max(-1, keepdims=True))
        out = numpy.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), v).reshape(len(x), -1)
        return self.linear(out, f"{layer}.self_attn.o_proj")

    def mlp(self, x, layer):
        gate = self.linear(x, f"{layer}.mlp.gate_proj")
        return self.linear(gate / (1 + numpy.exp(-gate)) * self.linear(x, f"{layer}.mlp.up_proj"),
                           f"{layer}.mlp.down_proj")

    def logits(self, tokens):
        x = self.weights["model.embed_tokens.weight"][tokens]
        for number in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{number}"
            x = x + self.attention(self.norm(x, f"{layer}.input_layernorm"), layer)
            x = x + self.mlp(self.norm(x, f"{layer}.post_attention_layernorm"), layer)
        return self.linear(self.norm(x, "model.norm"), "model.embed_tokens")  # the head is tied

    def loss(self, tokens):
        logits, targets = self.logits(tokens[:-1]), tokens[1:]
        top = logits.max(-1)
        return float(numpy.mean(top + numpy.log(numpy.exp(logits - top[:, None]).sum(-1))
                                - logits[numpy.arange(len(targets)), targets]))

    def greedy(self, tokens, most):
        """(tokens, margin): up to an end token, which is the last one then."""
        made, margin = [], numpy.inf
        while len(made) < most and self.config["eos_token_id"] not in made:
            logits = self.logits(tokens + made)[-1]
            second, first = numpy.argsort(logits)[-2:]
            margin = min(margin, logits[first] - logits[second])
            made.append(int(first))
        return made, round(float(margin), 3)


def rendered(folder, messages):
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        template = json.load(file)["chat_template"]
    return jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(template).render(
        messages=messages, add_generation_prompt=True)


def main():
    folder, = sys.argv[1:]
    tokenizer, model = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json")), Llama(folder)
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    tokens = tokenizer.encode(TEXT).ids
    windows = [tokens[at:at + SEQ_LEN + 1] for at in (0, SEQ_LEN)]
    expected = {
        "model_sha256": digest,
        "tokenize": [{"text": text, "tokens": found.ids, "decoded": tokenizer.decode(found.ids, False)}
                     for text, found in ((text, tokenizer.encode(text)) for text in TEXTS)],
        "evaluate": {"text": TEXT, "tokens": tokens, "seq_len": SEQ_LEN, "losses": [model.loss(w) for w in windows]},
    }
    prompts = {"generate": ({"prompt": PROMPT}, PROMPT)}
    messages = [{"role": "user", "content": QUESTION}]
    prompts["chat"] = ({"messages": messages}, rendered(folder, messages))
    for name, (request, text) in prompts.items():
        prompt = tokenizer.encode(text).ids
        made, margin = model.greedy(prompt, TOKENS)
        expected[name] = request | {"prompt_tokens": prompt, "loss": model.loss(prompt), "tokens": made,
                                    "text": tokenizer.decode(made), "margin": margin}
    print(re.sub(r"(?<=[\[\d,])\s+(?=[\d\]])", "", json.dumps(expected, indent=1)))  # a list of numbers on one line


if __name__ == "__main__":
    main()
