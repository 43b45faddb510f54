"""simple_reference played here, so that what the agents hear can be changed on the way: docs/environments.md, and mpe2's physics without collisions."""

import math

AGENTS, LANDMARKS, WORDS, MOVES, STEPS = 2, 3, 10, 5, 25
DAMPING, TIME_STEP, ACCELERATION = 0.25, 0.1, 5.0
DIRECTIONS = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))


def episode_return(act, hear, generator):
    """The sum of both agents' returns. `act(observation)` gives an action, move + 5 x word; `hear(word)` what the other hears of it."""
    positions, landmarks = ([[generator.uniform(-1, 1), generator.uniform(-1, 1)] for _ in range(n)] for n in (AGENTS, LANDMARKS))
    velocities = [[0.0, 0.0] for _ in range(AGENTS)]
    goals = [generator.randrange(LANDMARKS) for _ in range(AGENTS)]
    heard, total = [None] * AGENTS, 0.0
    for _ in range(STEPS):
        actions = []
        for agent in range(AGENTS):
            row = list(velocities[agent])
            for landmark in landmarks:
                row += [landmark[axis] - positions[agent][axis] for axis in (0, 1)]
            row += [0.75 if landmark == goals[agent] else 0.25 for landmark in range(LANDMARKS)]
            row += [float(word == heard[agent]) for word in range(WORDS)]
            actions.append(act(row))
        for agent, action in enumerate(actions):
            for axis in (0, 1):
                positions[agent][axis] += velocities[agent][axis] * TIME_STEP
                velocities[agent][axis] = velocities[agent][axis] * (1 - DAMPING) + DIRECTIONS[action % MOVES][axis] * ACCELERATION * TIME_STEP
            heard[1 - agent] = hear(action // MOVES)
        total -= sum(math.dist(positions[1 - agent], landmarks[goals[agent]]) for agent in range(AGENTS))
    return total
