"""What test_own_loop.py runs in a Python that has PyTorch: own_loop_check.py CHECK CONFIG [FLAG ...]."""

import hashlib
import json
import sys

import torch
from checkpoint_folder import read_safetensors
from coda_torch.run import Run


def steps_of(run, dump, rank):
    """A rank's (tokens, targets) of every step of a file of --dump-batches, which has int32 (micro-batches, 3, B, T)."""
    with open(dump, "rb") as file:
        contents = bytearray(file.read())
    header = 10 + int.from_bytes(contents[8:10], "little")
    batches = torch.frombuffer(contents, dtype=torch.int32, offset=header).view(-1, 3, *run.step_shape[1:])
    own = slice(rank * run.step_shape[0], (rank + 1) * run.step_shape[0])
    return [(step[own, 0], step[own, 1]) for step in batches.split(run.step_shape[0] * run.ranks)]


def sha256(tensor):
    return hashlib.sha256(bytes(tensor.contiguous().view(torch.uint8).tolist())).hexdigest()


def learning_rates(log):
    with open(log, encoding="utf-8") as file:
        return [record["lr"] for record in map(json.loads, file) if "lr" in record]


def replay(config, dump, log, team=None):
    """A run of coda_train again: its batches, its learning rates."""
    run = Run("--config", config, team=team)
    results = []
    for (tokens, targets), rate in zip(steps_of(run, dump, team.rank if team else 0), learning_rates(log)):
        run.gradients(tokens, targets)
        run.update(rate)
        results.append(run.result())
    segments = ("master", "m", "v") if team is None else ("working",)
    return {"results": results, **{name: sha256(run.segment(name)) for name in segments}}


def replay_as_rank(config, dump, log):
    """The same as one of several ranks, which the environment names."""
    from coda_torch.process_team import ProcessTeam
    team = ProcessTeam()
    made = replay(config, dump, log, team)
    team.close()
    return made


def publish(config, other_seed):
    """Weights of another seed, written into the run, give the losses and gradients of that seed's run."""
    other = Run("--config", config, "--training.seed", other_seed)
    torch.manual_seed(0)
    tokens = torch.randint(60, other.step_shape)
    weights = other.segment("master").clone()
    other.gradients(tokens, tokens)
    expected = other.segment("gradient").clone(), other.validate(tokens[0], tokens[0])
    other.close()
    run = Run("--config", config)
    run.gradients(tokens, tokens)
    before = run.validate(tokens[0], tokens[0])
    run.segment("master").copy_(weights)
    run.publish()
    unchanged = torch.equal(run.segment("master"), weights)
    run.gradients(tokens, tokens)
    return {"gradients": torch.equal(run.segment("gradient"), expected[0]), "master": unchanged,
            "loss": run.validate(tokens[0], tokens[0]) == expected[1], "moved": before != expected[1]}


def optimizer(config, folder):
    """SGD of PyTorch on the parameters is w - lr g, and what state_dict() has is what an export has."""
    run = Run("--config", config, "--init-from", folder)
    exported = {name: list(value) for name, (_, _, value) in read_safetensors(f"{folder}/model.safetensors").items()}
    state = {name: value.flatten().tolist() for name, value in run.state_dict().items()}
    parameters = run.parameters()
    torch.manual_seed(0)
    tokens = torch.randint(60, run.step_shape)
    sgd, losses = torch.optim.SGD(parameters.values(), lr=2**-5), []
    right = True
    for _ in range(4):
        run.gradients(tokens, tokens)
        wanted = [value.detach() - 2**-5 * value.grad for value in parameters.values()]
        sgd.step()
        right = right and all(torch.equal(value, want) for value, want in zip(parameters.values(), wanted))
        run.publish()
        losses.append(run.result()[0])
    return {"export": state == exported, "steps": right, "losses": losses}


def refusals(config):
    """What calls say that cannot be done."""
    said = []

    def refused(call):
        try:
            call()
            said.append(None)
        except (RuntimeError, ValueError) as error:
            said.append(str(error))

    refused(lambda: Run("--config", config, "--timing", "t.json"))
    refused(lambda: Run("--config", config, "--training.seq_len", "x"))
    refused(lambda: Run("--version"))
    run = Run("--config", config)
    tokens = torch.zeros(run.step_shape, dtype=torch.int32)
    refused(lambda: run.gradients(tokens[0], tokens[0]))
    refused(lambda: run.gradients(tokens + 1000, tokens))
    refused(lambda: run.gradients(tokens, tokens + 1000))
    refused(lambda: run.segment("weights"))
    run.segment("master").fill_(float("nan"))
    run.gradients(tokens, tokens)
    run.update(1e-3)
    refused(run.result)
    return said


if __name__ == "__main__":
    _, check, *arguments = sys.argv
    print(json.dumps(globals()[check](*arguments)))
