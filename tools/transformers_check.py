#!/usr/bin/env python3
"""Weights to and from Hugging Face transformers: the same loss, and the same logits after a round trip.

    tools/transformers_check.py --program build/hopper/bin/coda_train [--generate build/hopper/bin/coda_generate]

transformers makes a small model with random weights (--family llama: grouped KV heads, llama3 RoPE scaling; yarn: the
same with YaRN; gpt2) and samples text from it, on which another model's loss is higher. coda_train --init-from
evaluates that text: the loss must be transformers' in fp32 within 1e-2 relative, or 1e-5 on the CPU, which computes in
fp32 as well. coda_train --export writes the weights again: transformers must load that folder and give the logits of
its own within bf16's rounding (2^-8 of the largest).

With --generate, coda_generate decodes that text from the exported folder, token by token. Its logits must be no further
from transformers' in fp32 than transformers' own in bf16 are, in relative RMS and in KL divergence; on the CPU, which
computes in fp32, no further than 1e-4 in relative RMS. --decoder as coda_generate has it: "fused" ends with an error
where the kernel does not run.

Exit status: 0 all hold, 1 not.
"""

from __future__ import annotations

import argparse
import array
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
except ImportError as error:
    sys.exit(f"transformers_check.py: needs PyTorch and transformers: {error}")

from logit_distance import Distances

SEQ_LEN, BATCH, BATCHES = 256, 4, 2
LOGIT_TOLERANCE = 2**-8


def make_llama(scaling: dict) -> LlamaForCausalLM:
    config = LlamaConfig(hidden_size=256, intermediate_size=688, num_hidden_layers=3, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=64, vocab_size=256, rms_norm_eps=1e-5,
                         tie_word_embeddings=False, max_position_embeddings=1024, initializer_range=0.06,
                         bos_token_id=1, eos_token_id=2)
    # transformers 5 keeps the base among the other rotary parameters, 4 next to them.
    if hasattr(config, "rope_parameters"):
        config.rope_parameters = {"rope_theta": 10000.0, **scaling}
    else:
        config.rope_theta, config.rope_scaling = 10000.0, scaling
    return LlamaForCausalLM(config)


def make_gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(GPT2Config(n_embd=256, n_layer=3, n_head=4, n_positions=512, vocab_size=256,
                                      initializer_range=0.06, bos_token_id=1, eos_token_id=2))


FAMILIES = {
    "llama": lambda: make_llama({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                 "original_max_position_embeddings": 64}),
    "yarn": lambda: make_llama({"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 64}),
    "gpt2": make_gpt2,
}


def make_model(family: str, folder: str):
    torch.manual_seed(0)
    model = FAMILIES[family]().float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or ".ln_" in name or name.endswith("bias"):
                weight.copy_((0 if name.endswith("bias") else 1) + 0.2 * torch.randn_like(weight))
    model.save_pretrained(folder)
    return model


def sample_text(model, sequences: int) -> bytes:
    """Sequences of SEQ_LEN tokens, each sampled from the model after a first token, and one token more."""
    first = torch.arange(1, sequences + 1, device=model.device)[:, None]
    text = model.generate(first, do_sample=True, min_new_tokens=SEQ_LEN - 1, max_new_tokens=SEQ_LEN - 1, top_k=0,
                          pad_token_id=0)
    return bytes(text.flatten().tolist()) + b"."


def evaluate(model, sequences, length: int):
    """(mean loss, logits of the first sequences)."""
    with torch.no_grad():
        logits = torch.cat([model(part[:, :length]).logits.float() for part in sequences.split(BATCH)])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())
    return loss.item(), logits


def run(command, folder: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"transformers_check.py: {' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def generation_holds(options, folder: str, tokens) -> bool:
    """Of `tokens` (sequences, length), decoded from the folder "exported"."""
    with open(os.path.join(folder, "texts.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"tokens": text}) + "\n" for text in tokens.tolist())
    run([os.path.abspath(options.generate), "--model", "exported", "--score", "--prompts", "texts.jsonl", "--logits",
         "logits.f32", "--device", options.device, "--decoder", options.decoder], folder)
    raw = array.array("f")
    with open(os.path.join(folder, "logits.f32"), "rb") as file:
        raw.frombytes(file.read())
    sequences, length = tokens.shape
    found = torch.tensor(raw).view(sequences, length - 1, -1).to(tokens.device)
    exported = os.path.join(folder, "exported")
    expected, rounded = (evaluate(AutoModelForCausalLM.from_pretrained(exported).to(dtype).eval().to(tokens.device),
                                  tokens, length - 1)[1] for dtype in (torch.float32, torch.bfloat16))
    distances = Distances(found, rounded, expected)
    print(f"decoded logits are {distances}")
    return distances.hold(None if options.device == "cuda" else 1e-4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="coda_train")
    parser.add_argument("--family", choices=FAMILIES, default="llama", help="of the model that transformers makes")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of coda_train")
    parser.add_argument("--generate", help="coda_generate: its logits as well")
    parser.add_argument("--decoder", choices=("auto", "fused", "passes"), default="auto", help="of coda_generate")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"

    with tempfile.TemporaryDirectory(prefix="transformers_check_") as folder:
        ours, theirs = os.path.join(folder, "exported"), os.path.join(folder, "made")
        model = make_model(options.family, theirs).to(device)
        data = sample_text(model, BATCH * BATCHES)
        with open(os.path.join(folder, "text.txt"), "wb") as file:
            file.write(data)
        config = {"data": {"train": "text.txt", "val": "text.txt"}, "device": options.device,
                  "training": {"seq_len": SEQ_LEN, "micro_batch_size": BATCH, "steps": 1},
                  "validation": {"batches": BATCHES}}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)

        def coda(*arguments):
            return run([os.path.abspath(options.program), "--config", "config.json", "--init-from", "made", *arguments],
                       folder)

        line = next(line for line in coda("--eval").splitlines() if line.startswith("validation loss"))
        found = float(line.split()[2])
        coda("--export", "exported", "--export-dtype", "float32")

        tokens = torch.tensor(list(data), device=device)
        sequences = torch.stack([tokens[i : i + SEQ_LEN + 1] for i in range(0, len(data) - 1, SEQ_LEN)])
        expected, before = evaluate(model, sequences, SEQ_LEN)
        _, after = evaluate(AutoModelForCausalLM.from_pretrained(ours).float().eval().to(device), sequences, SEQ_LEN)
        difference = abs(found - expected) / expected
        moved = ((after - before).abs().max() / before.abs().max()).item()
        decodes = not options.generate or generation_holds(options, folder, sequences)
    allowed = 1e-2 if options.device == "cuda" else 1e-5
    print(f"loss {found:.6f}, transformers {expected:.6f}: relative difference {difference:.2e} (allowed {allowed:g}); "
          f"logits after the round trip differ by {moved:.2e} (allowed {LOGIT_TOLERANCE:.2e})")
    return 0 if difference <= allowed and moved <= LOGIT_TOLERANCE and decodes else 1


if __name__ == "__main__":
    sys.exit(main())
