#!/usr/bin/env python3
"""Compares this program's checkpoints with the safetensors and transformers packages.

    safetensors_interop.py files OURS THEIRS   checks OURS/{F32,BF16}.safetensors, writes THEIRS (all float dtypes)
    safetensors_interop.py export FOLDER...    loads exported folders in transformers and checks every weight
    safetensors_interop.py save MODEL FOLDER TIED
                                               saves the same weights through transformers as FOLDER/{float32,bfloat16,
                                               float16}, sharded; MODEL is "llama" or "gpt2", TIED "tied" or "untied"

Exits with 77 where a package is missing. pattern() in the C++ tests makes the same weights.
"""

import json
import pathlib
import sys

MISSING = 77

# The models of hf_test.cpp and gpt2_folder_test.cpp.
MODELS = {
    "llama": dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=6, vocab_size=70, rms_norm_eps=1e-5, rope_theta=10000.0,
                  max_position_embeddings=32),
    "gpt2": dict(n_embd=24, n_inner=40, n_layer=2, n_head=4, n_positions=32, vocab_size=70, layer_norm_epsilon=1e-5,
                 activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
}


def pattern(index, count):
    return [((7 * i + 3 * index) % 256 - 128) / 16 for i in range(count)]


def tensors_of(torch, names_and_shapes, dtype):
    def tensor(index, shape):
        count = 1
        for extent in shape:
            count *= extent
        return torch.tensor(pattern(index, count), dtype=torch.float64).to(dtype).reshape(shape)

    return {name: tensor(index, shape) for index, (name, shape) in names_and_shapes}


def check_same(torch, ours, expected):
    assert ours.keys() == expected.keys(), sorted(ours.keys() ^ expected.keys())
    for name, tensor in expected.items():
        assert ours[name].dtype == tensor.dtype, (name, ours[name].dtype)
        assert torch.equal(ours[name], tensor), name


def files(ours, theirs):
    import torch
    from safetensors.torch import load_file, save_file

    shapes = list(enumerate([("a", (3, 5)), ("b.weight", (7,)), ("c", (2, 3, 4)), ("d", (1, 1))]))
    for name, dtype in (("F32", torch.float32), ("BF16", torch.bfloat16)):
        check_same(torch, load_file(pathlib.Path(ours) / (name + ".safetensors")), tensors_of(torch, shapes, dtype))
    dtypes = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F64": torch.float64}
    save_file({name: torch.tensor(pattern(9, 24), dtype=dtype).reshape(4, 6) for name, dtype in dtypes.items()}, theirs)


def export(*folders):
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    for folder in folders:
        model, report = AutoModelForCausalLM.from_pretrained(folder, torch_dtype="auto", output_loading_info=True)
        assert not any(report.values()), report
        config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        for key, value in MODELS[config["model_type"]].items():
            assert getattr(model.config, key) == value, (key, getattr(model.config, key))
        tied = model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
        assert tied == config["tie_word_embeddings"]
        parameters = dict(sorted(model.named_parameters()))  # a tied head is listed once, as the embedding
        shapes = list(enumerate((name, tuple(p.shape)) for name, p in parameters.items()))
        expected = tensors_of(torch, shapes, getattr(torch, config["torch_dtype"]))
        check_same(torch, {name: p.data for name, p in parameters.items()}, expected)
        model(torch.arange(8).reshape(1, 8))


def save(name, folder, tied):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    kind, settings = {"llama": (LlamaForCausalLM, LlamaConfig), "gpt2": (GPT2LMHeadModel, GPT2Config)}[name]

    for dtype in ("float32", "bfloat16", "float16"):
        model = kind(settings(**MODELS[name], tie_word_embeddings=tied == "tied")).to(getattr(torch, dtype))
        with torch.no_grad():
            for index, (_, parameter) in enumerate(sorted(model.named_parameters())):
                values = torch.tensor(pattern(index, parameter.numel()))
                parameter.copy_(values.to(parameter.dtype).reshape(parameter.shape))
        model.save_pretrained(pathlib.Path(folder) / dtype, max_shard_size=9000)


if __name__ == "__main__":
    try:
        {"files": files, "export": export, "save": save}[sys.argv[1]](*sys.argv[2:])
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(MISSING)
