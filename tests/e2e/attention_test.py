"""A critic that attends to agents, end to end: two policies whose agents observe two spaces, trained by LibTorch from workers' fragments, written
and gone on with."""

import harness

CONFIG = """
seed: 3
env: {name: mpe/simple_tag}
multi_agent: {policies: [hunters, prey], policy_mapping: {"adversary_*": hunters, "*": prey}}
algorithm: {name: mappo, train_batch_size: 200, minibatch_size: 100, num_epochs: 2, minibatch_by: env_steps, normalize_state: true}
model: {critic_encoder: attention, attention_size: 8, attention_heads: 2}
num_workers: 2
num_envs_per_worker: 4
stop: {env_steps: 800}
evaluation: {at_end: false}
experiment: {write_interval: 200}
"""


class Attention(harness.TroupeTestCase):

    def test_a_run_goes_on_as_if_it_had_not_stopped(self):
        """Batches of whole episodes, so that none is under way at the stop."""
        config = self.write("run.yaml", CONFIG)
        done = self.troupe("train", config, "--name", "whole")
        self.assertIn("the fused back end computes encoders of kind mlp, got attention for the critic", done.stderr)
        self.troupe("train", config, "--name", "parts", "--set", "stop.env_steps=400")
        self.troupe("train", "--resume", "parts", "--set", "stop.env_steps=800")
        lines = [self.progress(name)[-1] for name in ("whole", "parts")]
        tags = [tag for tag in lines[0] if tag.endswith(("Loss/Policy loss", "Loss/Value loss", "Policy/Entropy"))]
        self.assertEqual(len(tags), 7, sorted(lines[0]))  # three of all, and each policy's losses
        for tag in tags:
            self.assertEqual(lines[0][tag], lines[1][tag], tag)


if __name__ == "__main__":
    harness.main()
