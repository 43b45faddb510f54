#!/usr/bin/env python3
"""One PPO update of networks with convolutions, computed by plain PyTorch in double precision, as recorded numbers for
tests/parity/ppo_parity_test.cc.

    python tests/parity/convolution_reference.py > tests/parity/convolution_reference.json

Beside ppo_reference.py and recurrent_reference.py, whose losses, targets, batches and sequences these are: convolutions are torch.nn.Conv2d
over images as rows have them, [height, width, channels], bytes divided by 255; what the last one makes is laid out so, too, before the other
inputs. A critic of the joint observation has one such row for each agent, zeros for one that is not there, then a bit for each that says so.
"""
import numpy as np
import torch
from torch import nn

import ppo_reference as ppo
import recurrent_reference as recurrent


class Network(recurrent.Network):
    """As recurrent.Network, over what convolutions make of the image."""

    def __init__(self, role, inputs, spec, outputs):
        height, width, channels = spec["image"]
        self.image, self.bytes = (height, width, channels), spec["bytes"]
        layers, pixels = [], height * width * channels
        # Images of a row, side by side.
        self.reads_all = role == "critic" and spec["critic_input"] == "joint_observation" and bool(spec["critic_conv"])
        images = spec["agents"] if self.reads_all else 1
        others = inputs - images * pixels
        for out, kernel, stride in spec[role + "_conv"]:
            layers += [nn.Conv2d(channels, out, kernel, stride), {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}[spec["activation"]]()]
            height, width, channels = (height - kernel) // stride + 1, (width - kernel) // stride + 1, out
        seen = height * width * channels if layers else pixels
        super().__init__(images * seen + others, spec[role + "_hidden_sizes"], spec[role + "_core"], spec, spec[role + "_head_hidden_sizes"], outputs)
        self.images = images
        self.convolutions = nn.Sequential(*layers) if layers else None
        self.reads_image = role == "actor" or spec["critic_input"] == "observation"

    def run(self, x, state):
        if self.reads_all:
            x = self.encode_all(x)
        elif self.reads_image:
            pixels = int(np.prod(self.image))
            image = x[:, :pixels] / 255 if self.bytes else x[:, :pixels]
            if self.convolutions is not None:
                image = self.convolutions(image.view(-1, *self.image).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1)
            x = torch.cat([image, x[:, pixels:]], 1)
        return super().run(x, state)

    def encode_all(self, x):
        agents, pixels = self.images, int(np.prod(self.image))
        made = []
        for agent in range(agents):
            image = x[:, agent * pixels:(agent + 1) * pixels] / (255 if self.bytes else 1)
            encoded = self.convolutions(image.view(-1, *self.image).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).flatten(1)
            is_there = x[:, agents * pixels + agent]
            made.append(torch.where(is_there[:, None] == 1, encoded, torch.zeros_like(encoded)))
        return torch.cat([*made, x[:, agents * pixels:]], 1)

    def forward(self, x):
        return self.run(x, None)[0]

    def named(self, role):
        yield from super().named(role)
        convolutions = [m for m in self.convolutions or [] if isinstance(m, nn.Conv2d)]
        for i, convolution in enumerate(convolutions):
            yield f"{role}.conv.{i}.weight", convolution.weight
            yield f"{role}.conv.{i}.bias", convolution.bias


class Policy(recurrent.Policy):
    def __init__(self, case, rng):
        ppo.Policy.__init__(self, case, rng)
        spec = case["spec"]
        inputs = [n[0].in_features for n in (self.actor, self.critic)]
        outputs = self.actor[-1].out_features
        self.actor = Network("actor", inputs[0], spec, outputs)
        convolves = spec["critic_input"] == "observation" or bool(spec["critic_conv"])
        self.critic = Network("critic", inputs[1], dict(spec, image=spec["image"] if convolves else [0, 0, 0]), 1)
        with torch.no_grad():
            for p in self.parameters():
                scale = 1.2 / np.sqrt(p[0].numel()) if p.dim() > 1 else 0.2
                p.copy_(torch.from_numpy(ppo.single(rng.normal(size=tuple(p.shape)) * scale)))


def make_batch(case, policy, rng):
    batch = ppo.make_batch(case, policy, rng)
    if case["spec"]["bytes"]:
        for name in ("obs", "final_obs"):
            batch[name] = rng.integers(0, 256, size=batch[name].shape).astype(np.float64)
    if case["spec"]["critic_input"] == "joint_observation":
        agents, pixels = case["spec"]["agents"], case["spec"]["obs_size"]
        state = batch["critic_state"]
        is_there = rng.random(size=(len(state), agents)) < 0.7
        images = state[:, :agents * pixels].reshape(len(state), agents, pixels)
        if case["spec"]["bytes"]:
            images = rng.integers(0, 256, size=images.shape).astype(np.float64)
        state[:, :agents * pixels] = (images * is_there[:, :, None]).reshape(len(state), -1)
        state[:, agents * pixels:] = is_there
    return batch


SPEC = dict(recurrent.SPEC, actor_core="none", critic_core="none", core_size=0, core_layers=0, sequence_length=0, image=[6, 5, 2], obs_size=60,
            bytes=True, actor_conv=[[4, 3, 1], [3, 2, 2]], critic_conv=[[5, 3, 2]])
CASES = [
    dict(name="bytes_with_agent_ids", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=1,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_agent_id=True, has_action_mask=True),
         options=dict(ppo.BASE, huber_delta=1.0, value_loss_coeff=0.7, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=11, iteration=4, env_steps=16000)),
    dict(name="floats_with_a_flat_critic", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=False, numbers_seed=2,
         spec=dict(SPEC, action=[dict(box=2)], agent_id_size=3, bytes=False, image=[5, 7, 1], obs_size=35, actor_conv=[[6, 4, 1]], critic_conv=[],
                   activation="elu", actor_hidden_sizes=[9]),
         options=dict(ppo.BASE, use_value_norm=False, learning_rate=ppo.constant(1e-3)), context=dict(seed=5, iteration=0, env_steps=500)),
    dict(name="bytes_with_a_critic_of_the_state", segment_lengths=[5, 6, 7, 8, 9, 11, 4], inactive_rows=True, numbers_seed=3,
         spec=dict(SPEC, action=[dict(multi_discrete=[3, 2])], agent_id_size=3, critic_input="global_state", critic_state_size=6, image=[4, 4, 3],
                   obs_size=48, actor_conv=[[4, 4, 1]], critic_conv=[]),
         options=dict(ppo.BASE, use_advnorm=False, minibatch_size=13, learning_rate=ppo.constant(1e-3)),
         value_moments=dict(count=10.0, mean=[0.5], variance=[2.25]), context=dict(seed=7, iteration=123456, env_steps=0)),
    dict(name="bytes_with_gru", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=4,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, actor_core="gru", critic_core="gru", core_size=6, core_layers=1,
                   sequence_length=4, actor_hidden_sizes=[], critic_hidden_sizes=[7], actor_head_hidden_sizes=[7], critic_head_hidden_sizes=[]),
         options=dict(ppo.BASE, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=12, iteration=3, env_steps=100)),
    dict(name="bytes_of_all_agents", segment_lengths=[7, 5, 9, 1, 8, 6, 10, 4, 3], inactive_rows=True, numbers_seed=5,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_input="joint_observation", agents=3, critic_state_size=183),
         options=dict(ppo.BASE, huber_delta=1.0, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=13, iteration=4, env_steps=16000)),
    dict(name="bytes_of_all_agents_and_whose_value_it_is", segment_lengths=[6, 9, 8, 5, 7, 12], inactive_rows=True, numbers_seed=6,
         spec=dict(SPEC, action=[dict(discrete=4)], agent_id_size=3, critic_agent_id=True, critic_input="joint_observation", agents=3,
                   critic_state_size=183, actor_conv=[[4, 3, 1]], critic_conv=[[4, 3, 1], [3, 2, 1]]),
         options=dict(ppo.BASE, use_value_norm=False, learning_rate=ppo.constant(1e-3)), context=dict(seed=14, iteration=0, env_steps=500)),
    dict(name="floats_of_all_agents_with_gru", segment_lengths=[7, 5, 9, 1, 8, 6], inactive_rows=True, numbers_seed=7,
         spec=dict(SPEC, action=[dict(discrete=5)], agent_id_size=3, critic_input="joint_observation", agents=3, critic_state_size=108, bytes=False,
                   image=[5, 7, 1], obs_size=35, actor_conv=[[6, 4, 1]], critic_conv=[[3, 3, 2]], actor_core="gru", critic_core="gru", core_size=6,
                   core_layers=1, sequence_length=4, actor_hidden_sizes=[], critic_hidden_sizes=[7], actor_head_hidden_sizes=[7],
                   critic_head_hidden_sizes=[]),
         options=dict(ppo.BASE, max_grad_norm=0.3),
         value_moments=dict(count=400.0, mean=[-1.5], variance=[4.0]), context=dict(seed=15, iteration=3, env_steps=100)),
]


def main():
    ppo.write(recurrent.records(CASES, Policy, make_batch))


if __name__ == "__main__":
    main()
