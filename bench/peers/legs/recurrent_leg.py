"""A plain PyTorch MAPPO script with a GRU of 64 units in actor and critic, sequences of 25: script/recurrent_mappo.py of this folder. One process."""

import os
import sys

import probe

S = probe.SETTINGS


def main():
    args = probe.parse_args(__doc__, threads=1, critic="team")
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "script"))
    sys.dont_write_bytecode = True
    import recurrent_mappo
    import torch

    trainer = recurrent_mappo.Trainer(args.seed, args.critic)
    marks = probe.Marks(args.seconds)
    counter = probe.StepCounter().install()
    iterations, enough = 0, False
    while not enough:
        return_sum = trainer.iterate()
        iterations += 1
        enough = marks.add(iterations * S["train_batch_env_steps"], counter.value)
    marks.write(return_sum=return_sum, versions={"torch": torch.__version__}, torch_threads=args.threads)
    probe.leave()


if __name__ == "__main__":
    main()
