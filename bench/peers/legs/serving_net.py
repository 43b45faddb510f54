"""What the peers of bench/peers/serving.py serve: simple_spread's actor, 18 numbers through two layers of 64, and a sampled action."""

import torch


def actor():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(18, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 5))


def sample(model, observations):
    """[rows, 18] as lists -> [rows] actions."""
    with torch.no_grad():
        return torch.distributions.Categorical(logits=model(torch.tensor(observations))).sample().tolist()
