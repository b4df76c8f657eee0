"""What every part of tools/gpu_check needs: how a part is registered, how it fails, and the models it runs."""

import runlog

PARTS = {}  # name -> function

# Small, and with everything that an op list can have.
SMALL = {
    "model": {"hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": True},
    "training": {"seq_len": 192, "micro_batch_size": 3, "grad_accumulation_steps": 2, "steps": 12,
                 "lm_head_chunks": 3, "recompute": "mlp"},
    "data": {"document_mask": True},
    "optimizer": {"moments": "bf16", "learning_rate": 1e-3},
}
# The same for a try on the CPU, which takes any shape.
SMALLER = {"model.hidden_size": 32, "model.intermediate_size": 56, "model.head_dim": 8, "training.seq_len": 24}
# Both with FP8 operands, whose sizes are multiples of 16 and which do not go with recompute "mlp".
FP8 = {"precision": "fp8", "training.recompute": "swiglu"}
SMALLER_FP8 = SMALLER | {"model.intermediate_size": 64, "training.seq_len": 32}

# The head in one piece, for speed: its chunks only save memory.
WHOLE_HEAD = {"training.lm_head_chunks": 1}
# In two chunks at B4 T8192, to stay below 64 GiB: in one piece the step takes 66.6.
HALVED_HEAD = {"training.lm_head_chunks": 2}


class Failed(Exception):
    """A part did not pass; the message says why."""


def part(function):
    """Registers a part of the check: takes the Check, returns what its line says, raises Failed."""
    PARTS[function.__name__] = function
    return function


def losses_of(folder):
    return runlog.read(folder).series("loss")
