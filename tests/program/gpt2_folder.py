"""Hugging Face folders of GPT2LMHeadModel: shapes of their tensors, and the model's loss from first principles."""

import math

from checkpoint_folder import Llama

GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 24,
    "n_inner": None,
    "n_layer": 2,
    "n_head": 4,  # heads of 6
    "n_positions": 32,
    "vocab_size": 70,
    "layer_norm_epsilon": 1e-3,
    "activation_function": "gelu_new",
    "attn_pdrop": 0.1,
}


def gpt2_shapes(config):
    """Names and shapes of the model's tensors, in the order of transformers. Matrices of layers are (in, out)."""
    d = config["n_embd"]
    f = config["n_inner"] or 4 * d
    result = {"transformer.wte.weight": [config["vocab_size"], d], "transformer.wpe.weight": [config["n_positions"], d]}
    for layer in range(config["n_layer"]):
        prefix = f"transformer.h.{layer}."
        for module, rows, columns in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, f),
                                      ("mlp.c_proj", f, d)):
            result |= {f"{prefix}{module}.weight": [rows, columns], f"{prefix}{module}.bias": [columns]}
        for norm in ("ln_1", "ln_2"):
            result |= {f"{prefix}{norm}.weight": [d], f"{prefix}{norm}.bias": [d]}
    result |= {"transformer.ln_f.weight": [d], "transformer.ln_f.bias": [d]}
    if not config.get("tie_word_embeddings", True):
        result["lm_head.weight"] = [config["vocab_size"], d]
    return result


class Gpt2(Llama):
    """The forward pass as transformers defines it, in Python floats (fp64), token by token."""

    def conv(self, name, x):
        result = list(self.weights[name + ".bias"])
        for value, row in zip(x, self.weights[name + ".weight"]):
            for column, weight in enumerate(row):
                result[column] += value * weight
        return result

    def layer_norm(self, name, x):
        mean = sum(x) / len(x)
        factor = 1 / math.sqrt(sum((a - mean) ** 2 for a in x) / len(x) + self.config["layer_norm_epsilon"])
        return [gamma * (a - mean) * factor + beta
                for a, gamma, beta in zip(x, self.weights[name + ".weight"], self.weights[name + ".bias"])]

    def attend(self, prefix, x, keys, values):
        d, width = self.config["n_embd"], self.config["n_embd"] // self.config["n_head"]
        z = self.conv(prefix + "c_attn", x)
        queries, newest, new_values = (self.heads(z[i:i + d], width) for i in (0, d, 2 * d))
        keys.append(newest)
        values.append(new_values)
        output = []
        for head, query in enumerate(queries):
            scores = [sum(a * b for a, b in zip(query, key[head])) / math.sqrt(width) for key in keys]
            weights = [math.exp(score - max(scores)) for score in scores]
            output += [sum(w * value[head][i] for w, value in zip(weights, values)) / sum(weights)
                       for i in range(width)]
        return self.conv(prefix + "c_proj", output)

    def activation(self, z):
        if self.config["activation_function"] == "gelu":
            return z * math.erfc(-z / math.sqrt(2)) / 2
        return z * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z ** 3))) / 2

    def mlp(self, prefix, x):
        return self.conv(prefix + "c_proj", [self.activation(z) for z in self.conv(prefix + "c_fc", x)])

    def loss(self, tokens, targets):
        """Mean cross-entropy of one sequence, in nats per token."""
        table = self.weights["transformer.wte.weight"]
        head = self.weights.get("lm_head.weight", table)
        caches = [([], []) for _ in range(self.config["n_layer"])]
        total = 0.0
        for position, (token, target) in enumerate(zip(tokens, targets)):
            x = [a + b for a, b in zip(table[token], self.weights["transformer.wpe.weight"][position])]
            for layer, (keys, values) in enumerate(caches):
                prefix = f"transformer.h.{layer}."
                branch = self.attend(prefix + "attn.", self.layer_norm(prefix + "ln_1", x), keys, values)
                x = [a + b for a, b in zip(x, branch)]
                branch = self.mlp(prefix + "mlp.", self.layer_norm(prefix + "ln_2", x))
                x = [a + b for a, b in zip(x, branch)]
            x = self.layer_norm("transformer.ln_f", x)
            logits = [sum(a * b for a, b in zip(row, x)) for row in head]
            total += max(logits) + math.log(sum(math.exp(z - max(logits)) for z in logits)) - logits[target]
        return total / len(tokens)
