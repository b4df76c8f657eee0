#!/usr/bin/env python3
"""Prints the constants of hf_reference_test.cpp: losses of Hugging Face transformers' LlamaForCausalLM and torch's AdamW.

Everything runs in float64. transformers computes norms, softmax, rotary angles and the loss in float32 on purpose, so
float32 is redefined as float64 before it is imported.  Needs torch and transformers:  python3 hf_reference.py
"""
import torch

torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)

import transformers  # noqa: E402  (must come after the redefinition of float32)
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

BATCH, SEQ_LEN, VOCAB = 2, 12, 37


class Uniform:
    """The generator of hf_reference_test.cpp: a linear congruence modulo 2^32, exact in any language."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return self.state / 2**32


def build(tied, scaled):
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}
    rope = scaling if scaled else {"rope_type": "default"}
    config = LlamaConfig(
        hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, vocab_size=VOCAB, rms_norm_eps=1e-5, rope_parameters={"rope_theta": 100.0, **rope},
        tie_word_embeddings=tied, max_position_embeddings=64, attn_implementation="eager")
    model = LlamaForCausalLM(config).double()
    model.train()
    draw = Uniform(7)
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name in sorted(parameters):
            parameter = parameters[name]
            norm = name.endswith("norm.weight")
            values = [1 + (draw() - 0.5) if norm else 1.4 * (draw() - 0.5) for _ in range(parameter.numel())]
            parameter.copy_(torch.tensor(values).view(parameter.shape))
    return model


def token_batch(draw, ignored_every):
    rows = BATCH * SEQ_LEN
    tokens = [int(draw() * VOCAB) for _ in range(rows)]
    targets = [int(draw() * VOCAB) for _ in range(rows)]
    targets = [-100 if m % ignored_every == 1 else target for m, target in enumerate(targets)]
    return torch.tensor(tokens).view(BATCH, SEQ_LEN), torch.tensor(targets)


def token_losses(model, tokens, targets, **inputs):
    logits = model(input_ids=tokens, use_cache=False, **inputs).logits.view(-1, VOCAB)
    return torch.nn.functional.cross_entropy(logits, targets, ignore_index=-100, reduction="sum")


def step_loss(model, batches):
    valid = sum(int((targets >= 0).sum()) for _, targets in batches)
    return sum(token_losses(model, tokens, targets) for tokens, targets in batches) / valid


def document_loss(model, tokens, targets):
    """Every sequence holds documents of 5 and 7 tokens; positions restart."""
    position = torch.arange(SEQ_LEN)
    document = (position >= 5).long()
    visible = (position[:, None] >= position[None, :]) & (document[:, None] == document[None, :])
    mask = torch.zeros(BATCH, 1, SEQ_LEN, SEQ_LEN).masked_fill(~visible, float("-inf"))
    restarted = torch.where(document == 1, position - 5, position).repeat(BATCH, 1)
    total = token_losses(model, tokens, targets, attention_mask=mask, position_ids=restarted)
    return total / int((targets >= 0).sum())


def ten_steps(model, batches):
    decayed = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}],
                                  lr=0.01, betas=(0.9, 0.95), eps=1e-8, foreach=False)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = step_loss(model, batches)
        loss.backward()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
        for p in model.parameters():
            p.grad *= min(1.0, 0.5 / norm.item())
        optimizer.step()
        losses.append((loss.item(), norm.item()))
    return losses


def main():
    draw = Uniform(11)
    batches = [token_batch(draw, 5), token_batch(draw, 2)]
    print(f"// torch {torch.__version__}, transformers {transformers.__version__}")
    for tied in (False, True):
        for scaled in (False, True):
            model = build(tied, scaled)
            print(f"tied {tied}, scaled {scaled}: step {step_loss(model, batches).item()!r}, "
                  f"documents {document_loss(model, *batches[0]).item()!r}")
    for loss, norm in ten_steps(build(True, True), batches):
        print(f"{{{loss!r}, {norm!r}}},")


if __name__ == "__main__":
    main()
