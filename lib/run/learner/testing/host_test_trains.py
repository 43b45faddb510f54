"""Functions of train_function_test.cc: who trains on a batch."""

import os
import time

heard = []


def chooses(policy_id, batch):
    assert batch.policies == {"main": 30, "old": 10} and batch.env_steps == 20, (batch.policies, batch.env_steps)
    assert batch.rows == batch.policies[policy_id] == sum(batch.agents.values()), batch.agents
    heard.append(policy_id)
    return policy_id == "main" and batch.infos["win"] < 0.5 and batch.updates == len(heard) // 2


def by_update(policy_id, batch):
    """What it does is the number of updates."""
    if batch.updates == 1:
        raise ValueError("not today")
    if batch.updates == 2:
        return "yes"
    if batch.updates == 3:
        os._exit(3)
    if batch.updates == 4:
        time.sleep(1)
    if batch.updates == 5:
        time.sleep(3600)
    if batch.updates == 7:
        time.sleep(0.2)
        return policy_id == "main"
    return policy_id == "old"


def three(policy_id, batch, more):
    return True
