"""grid2op 1.12.6: troupe init grid2op_lines.py:make_env"""

import grid2op
from grid2op.gym_compat import BoxGymObsSpace, DiscreteActSpace, GymEnv


def make_env(name="l2rpn_case14_sandbox"):
    env = grid2op.make(name, test=True)
    gym = GymEnv(env)
    gym.observation_space = BoxGymObsSpace(env.observation_space, attr_to_keep=["rho", "gen_p", "load_p"])
    gym.action_space = DiscreteActSpace(env.action_space, attr_to_keep=["set_line_status_simple"])
    return gym
