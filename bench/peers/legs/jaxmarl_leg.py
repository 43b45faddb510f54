"""MAPPO (or IPPO) on JaxMARL's simple_spread, sampling and update in one jitted program: the fastest way a Python user has.

JaxMARL is a set of environments; its training scripts are examples with other settings. This is the same algorithm
with the settings that all legs share, all on the device: 160 environments x 25 steps an iteration.
"""

import probe

S = probe.SETTINGS


def make_iteration(jax, algorithm):
    """(first state, jitted function state -> state); a state holds all that training carries along."""
    import flax.linen as nn
    import jax.numpy as jnp
    import jaxmarl
    import optax

    env = jaxmarl.make("MPE_simple_spread_v3", num_agents=S["num_agents"], num_landmarks=S["num_agents"])
    agents = env.agents
    num_steps = S["max_cycles"]
    num_envs = S["train_batch_env_steps"] // num_steps
    rows = num_steps * num_envs * len(agents)
    num_actions = env.action_space(agents[0]).n

    class Network(nn.Module):
        outputs: int
        gain: float

        @nn.compact
        def __call__(self, x):
            for width in S["hidden"]:
                x = nn.tanh(nn.Dense(width, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
            return nn.Dense(self.outputs, kernel_init=nn.initializers.orthogonal(self.gain))(x)

    actor, critic = Network(num_actions, 0.01), Network(1, 1.0)
    optimizer = optax.chain(optax.clip_by_global_norm(S["grad_clip"]), optax.adam(S["learning_rate"], eps=1e-5))

    def by_agent(values):
        return jnp.stack([values[agent] for agent in agents], axis=1)

    def critic_input(observations):
        if algorithm == "ippo":
            return observations
        joint = observations.reshape(*observations.shape[:-2], 1, -1)
        return jnp.broadcast_to(joint, (*observations.shape[:-1], joint.shape[-1]))

    def values_of(params, observations):
        return critic.apply(params["critic"], critic_input(observations))[..., 0]

    def log_prob_of(logits, actions):
        return jnp.take_along_axis(jax.nn.log_softmax(logits), actions[..., None], axis=-1)[..., 0]

    def sample(params, env_state, observations, key):
        def step(carry, key):
            env_state, observations = carry
            act_key, step_key = jax.random.split(key)
            logits = actor.apply(params["actor"], observations)
            actions = jax.random.categorical(act_key, logits)
            chosen = {agent: actions[:, i] for i, agent in enumerate(agents)}
            keys = jax.random.split(step_key, num_envs)
            following, env_state, rewards, dones, _ = jax.vmap(env.step)(keys, env_state, chosen)
            row = dict(
                observations=observations,
                actions=actions,
                log_probs=log_prob_of(logits, actions),
                values=values_of(params, observations),
                rewards=by_agent(rewards),
                goes_on=1.0 - dones["__all__"][:, None].astype(jnp.float32),
            )
            return (env_state, by_agent(following)), row

        return jax.lax.scan(step, (env_state, observations), jax.random.split(key, num_steps))

    def advantages_of(batch, last_values):
        def back(carry, row):
            advantage, next_value = carry
            values, rewards, goes_on = row
            delta = rewards + S["gamma"] * next_value * goes_on - values
            advantage = delta + S["gamma"] * S["gae_lambda"] * goes_on * advantage
            return (advantage, values), advantage

        rows = (batch["values"], batch["rewards"], batch["goes_on"])
        return jax.lax.scan(back, (jnp.zeros_like(last_values), last_values), rows, reverse=True)[1]

    def loss_of(params, rows):
        logits = actor.apply(params["actor"], rows["observations"])
        ratio = jnp.exp(log_prob_of(logits, rows["actions"]) - rows["log_probs"])
        clipped = jnp.clip(ratio, 1 - S["clip_param"], 1 + S["clip_param"])
        policy_loss = -jnp.minimum(ratio * rows["advantages"], clipped * rows["advantages"]).mean()
        probs = jax.nn.softmax(logits)
        entropy = -(probs * jax.nn.log_softmax(logits)).sum(-1).mean()
        values = critic.apply(params["critic"], rows["critic_input"])[:, 0]
        value_loss = ((values - rows["targets"]) ** 2).mean()
        return policy_loss - S["entropy_coeff"] * entropy + S["vf_loss_coeff"] * value_loss

    def update(params, opt_state, batch, last_values, key):
        advantages = advantages_of(batch, last_values)
        data = dict(
            observations=batch["observations"],
            critic_input=critic_input(batch["observations"]),
            actions=batch["actions"],
            log_probs=batch["log_probs"],
            advantages=(advantages - advantages.mean()) / (advantages.std() + 1e-8),
            targets=advantages + batch["values"],
        )
        data = {name: column.reshape(rows, *column.shape[3:]) for name, column in data.items()}

        def minibatch(carry, index):
            params, opt_state = carry
            gradient = jax.grad(loss_of)(params, {name: column[index] for name, column in data.items()})
            change, opt_state = optimizer.update(gradient, opt_state, params)
            return (optax.apply_updates(params, change), opt_state), None

        def epoch(carry, key):
            order = jax.random.permutation(key, rows).reshape(probe.MINIBATCHES, S["minibatch_rows"])
            return jax.lax.scan(minibatch, carry, order)

        keys = jax.random.split(key, S["num_epochs"])
        return jax.lax.scan(epoch, (params, opt_state), keys)[0]

    @jax.jit
    def iteration(state):
        key, sample_key, update_key = jax.random.split(state["key"], 3)
        params = state["params"]
        (env_state, observations), batch = sample(params, state["env"], state["observations"], sample_key)
        last_values = values_of(params, observations)
        params, opt_state = update(params, state["optimizer"], batch, last_values, update_key)
        return dict(
            key=key,
            params=params,
            optimizer=opt_state,
            env=env_state,
            observations=observations,
            return_sum=batch["rewards"].sum() / num_envs,
        )

    def first_state(seed):
        key, env_key, actor_key, critic_key = jax.random.split(jax.random.PRNGKey(seed), 4)
        observations, env_state = jax.vmap(env.reset)(jax.random.split(env_key, num_envs))
        observations = by_agent(observations)
        params = dict(
            actor=actor.init(actor_key, observations),
            critic=critic.init(critic_key, critic_input(observations)),
        )
        return dict(
            key=key,
            params=params,
            optimizer=optimizer.init(params),
            env=env_state,
            observations=observations,
            return_sum=jnp.zeros(()),
        )

    return first_state, iteration


def steps_of(opt_state):
    """Minibatch steps that Adam has counted."""
    return int(opt_state[1][0].count)


def main():
    args = probe.parse_args(__doc__, algorithm="mappo")
    import jax
    import jaxlib

    first_state, iteration = make_iteration(jax, args.algorithm)
    state = first_state(args.seed)
    marks = probe.Marks(args.seconds)
    iterations = 0
    enough = False
    while not enough:
        state = jax.block_until_ready(iteration(state))
        iterations += 1
        enough = marks.add(iterations * S["train_batch_env_steps"], steps_of(state["optimizer"]))
    import importlib.metadata as metadata

    marks.write(
        versions={"jaxmarl": metadata.version("jaxmarl"), "jax": jax.__version__, "jaxlib": jaxlib.__version__},
        return_sum=float(state["return_sum"]),
    )
    probe.leave()


if __name__ == "__main__":
    main()
