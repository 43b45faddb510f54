"""A plain PyTorch MAPPO script with numpy-vectorised environments: what a capable user would write.

Runs the folder named by `--reference`, which holds `ppo.py` with a dict `D` of settings and `run(settings)`,
and `env.py`. It is not part of this repository. One process; both cores only help inside its matrix products.
"""

import os
import sys

import probe

S = probe.SETTINGS


def main():
    args = probe.parse_args(__doc__, reference="", threads=2)
    sys.path.insert(0, os.path.abspath(args.reference))
    sys.dont_write_bytecode = True
    import ppo
    import torch

    batch = S["train_batch_env_steps"]
    settings = dict(ppo.D)
    settings.update(
        name="peer",
        seed=args.seed,
        threads=args.threads,
        steps=10**9,
        evals=str(10**9),  # never: its evaluation is not part of the figure
        envs=batch // S["max_cycles"],
        T=S["max_cycles"],
        mb=S["minibatch_rows"],
        epochs=S["num_epochs"],
        hid=S["hidden"][0],
        layers=len(S["hidden"]),
        act="tanh",
        lr=S["learning_rate"],
        gamma=S["gamma"],
        lam=S["gae_lambda"],
        clip=S["clip_param"],
        ent=S["entropy_coeff"],
        gradclip=S["grad_clip"],
    )
    marks = probe.Marks(args.seconds)
    probe.mark_every_iteration(marks, batch)
    try:
        ppo.run(settings)
    except probe.Enough:
        pass
    marks.write(versions={"torch": torch.__version__}, torch_threads=args.threads)
    probe.leave()


if __name__ == "__main__":
    main()
