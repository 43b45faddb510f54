"""What newcomers get wrong, and what Troupe's one error must say of it: the table of mistakes_test.py.

A mistake is a command line, in a folder with the files that it needs, and five pieces of text: `where` it stands, `what` is
wrong, what was `got`, what is `expected`, and a `hint` that says what to do. Each must stand in the error, and no words of it
count for two of them.
"""

import dataclasses
from typing import Optional, Tuple

NATIVE = "env: {name: mpe/simple_spread}\n"
FAILED = 1  # another try may end differently
USAGE = 2  # of the command line


@dataclasses.dataclass(frozen=True)
class Mistake:
    name: str
    where: str
    what: str
    got: str
    expected: str
    hint: str
    config: Optional[str] = NATIVE  # of run.yaml, None: there is no such file
    sets: Tuple[str, ...] = ()  # --set of each
    command: Tuple[str, ...] = ("train", "run.yaml")
    exit_code: int = 78
    begins: bool = False  # seen when episodes are played: the log of a run stands before its last line, which is the error


def unknown(key, ours, library="", hint="here it is", section="", value="1"):
    """A key that there is not, in the second line of run.yaml."""
    line, column = (f"{section}: {{{key}: {value}}}", len(section) + 4) if section else (f"{key}: {value}", 1)
    full = f"{section}.{key}" if section else key
    return Mistake(f"{library or 'unknown'}: {full}", where=f"run.yaml:2:{column}: ", what="unknown key", got=f'"{full}"' + (f" ({library})" if library else ""),
                   expected=ours, hint=hint, config=NATIVE + line + "\n")


def value(setting, got, expected, hint, what="", place="", **how):
    """A value of --set. `place`: of the error, where it is another's."""
    return Mistake(f"--set {setting}", where=place or f"--set {setting}: ", what=what or f"{setting.split('=')[0]}: ", got=got, expected=expected,
                   hint=hint, sets=(setting,), **how)


def yaml(name, text, at, what, got, expected, hint):
    """A text of run.yaml."""
    return Mistake(name, where=f"run.yaml:{at}: ", what=what, got=got, expected=expected, hint=hint, config=text)


def use(command, where, what, got, expected, hint, exit_code=FAILED, **how):
    """A command line, split at spaces, of a folder with these runs: `done` is finished, `fresh` has no checkpoint, `busy` is trained."""
    return Mistake(command, where=where, what=what, got=got, expected=expected, hint=hint, command=tuple(command.split(" ")), exit_code=exit_code, **how)


UNKNOWN_KEYS = [
    unknown("gama", '"algorithm.gamma"', hint="the nearest is", section="algorithm"),
    unknown("algoritm", '"algorithm"', hint="the nearest is", value="{lr: 1.0e-3}"),
    unknown("zzzzzzzzzz", "expected one of env_steps, agent_steps", hint="`troupe config defaults`", section="stop"),
    unknown("train_batch_size", '"algorithm.train_batch_size"', hint="it belongs in"),
    unknown("lr", '"algorithm.lr"', hint="it belongs in", section="model"),
    # RLlib
    unknown("num_sgd_iter", '"algorithm.num_epochs"', "RLlib", section="algorithm"),
    unknown("lambda_", '"algorithm.gae_lambda"', "RLlib", section="algorithm"),
    unknown("num_env_runners", '"num_workers"', "RLlib"),
    unknown("fcnet_hiddens", '"model.actor_hidden_sizes"', "RLlib", section="model", value="[64]"),
    unknown("cnn_filter_specifiers", '"model.conv_filters"', "RLlib", section="model", value="[[16, [8, 8], 4]]"),
    unknown("use_attention", '"model.critic_encoder"', "RLlib", section="model", value="true"),
    unknown("vf_share_layers", '"model.critic_encoder"', "RLlib", hint="true: shared", section="model", value="true"),
    unknown("use_lstm", '"model.actor_core"', "RLlib", section="model", value="true"),
    unknown("framework", "LibTorch", "RLlib", hint="leave it out", value="torch"),
    unknown("training_iteration", '"stop.updates"', "RLlib", section="stop"),
    unknown("policy_mapping_fn", '"multi_agent.policy_mapping"', "RLlib", section="multi_agent", value="f"),
    unknown("env_config", '"env.args"', "RLlib", value="{N: 3}"),
    # Stable-Baselines3
    unknown("net_arch", '"model.actor_hidden_sizes"', "Stable-Baselines3", section="model", value="[64, 64]"),
    unknown("policy_kwargs", '"model.actor_hidden_sizes"', "Stable-Baselines3", value="{net_arch: [64]}"),
    unknown("total_timesteps", '"stop.env_steps"', "several libraries", section="stop"),
    unknown("n_steps", '"algorithm.train_batch_size"', "several libraries", section="algorithm"),
    # CleanRL
    unknown("update_epochs", '"algorithm.num_epochs"', "CleanRL", section="algorithm"),
    unknown("num_steps", '"algorithm.train_batch_size"', "CleanRL", section="algorithm"),
    unknown("clip_coef", '"algorithm.clip_param"', "CleanRL", section="algorithm"),
    unknown("anneal_lr", '"algorithm.lr"', "CleanRL", section="algorithm", value="true"),
    # XuanCe
    unknown("ent_coef", '"algorithm.entropy_coeff"', "XuanCe", section="algorithm"),
    unknown("representation_hidden_size", '"model.actor_hidden_sizes"', "XuanCe", section="model"),
    unknown("running_steps", '"stop.env_steps"', "XuanCe"),
    unknown("use_cnn", '"model.encoder"', "XuanCe", value="true"),
    unknown("render", '"evaluation.video_interval"', "XuanCe", value="true"),
    # skrl, Tianshou, on-policy MAPPO
    unknown("rollouts", '"algorithm.train_batch_size"', "skrl", section="algorithm"),
    unknown("step_per_collect", '"algorithm.train_batch_size"', "Tianshou", section="algorithm"),
    unknown("data_chunk_length", '"model.max_seq_len"', "on-policy MAPPO", section="model"),
    unknown("n_rollout_threads", '"num_envs_per_worker"', "on-policy MAPPO"),
]

VALUES = [
    value("algorithm.lr=fast", 'got "fast"', "expected a number", "the default is"),
    value("algorithm.gamma=1.5", "got 1.5", "in [0, 1]", "the default is"),
    value("num_workers=-1", "got -1", "in [0, 1024]", "the default is"),
    value("seed=1.5", "got 1.5", "an integer >= 0", "the default is"),
    value("algorithm.train_batch_size=4_000", 'got "4_000"', "an integer", "write 4000"),
    value("stop.env_steps=1M", 'got "1M"', "an integer", "write 1000000"),
    value("stop.wall_clock=2h", 'got "2h"', "a number", "write 7200"),
    value("algorithm.max_grad_norm=None", 'got "None"', "a number", "write 0"),
    value("explore=yes", 'got "yes"', "true or false", "write true"),
    value("algorithm.name=qmix", 'got "qmix"', "one of ppo, ippo, mappo, a2c, ia2c, maa2c, pqn, impala, appo, custom, macustom", "qmix is not implemented"),
    value("algorithm=PPO", 'got "PPO"', "a section", "write algorithm.name=ppo"),
    value("model.activation=swish", 'got "swish"', "one of tanh, relu", "the default is"),
    value("model.actor_core=GRU", 'got "GRU"', "one of none, gru, lstm", "write gru"),
    value("batch_mode=complete", 'got "complete"', "one of truncate_episodes", "the default is"),
    value("model.actor_hidden_sizes=64,64", 'got "64,64"', "a list", "write [64, 64]"),
    value("algorithm.lr=[0, 1e-3]", "got 0 as a point", "expected [AT, VALUE]", "write [[0, 1.0e-3], [1000000, 1.0e-4]]"),
    value("algorithm.lr=", "got nothing", "expected a number", "the default is"),
    value("algorithm.minibatch_size=100000", "got 100000", "at most the 12000 rows", "raise algorithm.train_batch_size"),
    value("algorithm.train_batch_size=3", "got 3", "for each of the 32 environments", "raise it"),
    value("learner.ingest_budget_bytes=1048576", "got 1048576", "expected at least", "auto is as much as it takes"),
    value("algorithm.lr:1e-3", 'got no "="', "expected KEY=VALUE", "write --set algorithm.lr=1e-3", what="no override"),
    value("algorithm.lr", 'got no "="', "expected KEY=VALUE", "write --set ", what="no override"),
    value("device=gpu", 'got "gpu"', "expected auto, cpu, cuda", "auto takes a GPU"),
    value("device=cuda", 'got "cuda"', "expected a CUDA device", "or auto", exit_code=FAILED),
    value("device=cuda:0", 'got "cuda:0"', "expected a CUDA device", "or auto", exit_code=FAILED),
    value("env.args.N=3.5", "is 3.5", "an integer in", "the default is"),
    value("env.args.n=3", "no argument 'n'", "expected one of", "did you mean 'N'?"),
    value("env.args=3", "got 3", "a mapping", "write {NAME: VALUE}"),
    value("env.action_mask_key=", "got nothing", "expected a string", 'write "" for an empty text'),
    value("algorithm.kl_target=0.02", "got 0.02", "it needs algorithm.use_kl_loss: true", "take this key out"),
    value("model.core_size=256", "got 256", "it needs model.actor_core or model.critic_core", "take this key out"),
    value("model.action_distribution=beta", "got beta", "continuous actions", "take this key out"),
    value("action_bound_method=tanh", "got tanh", "continuous actions", "take this key out"),
    value("env.python.processes=2", "got 2", "an environment in Python", "take this key out"),
    value("multi_agent.policy_mapping={agnet_0: a, '*': b}", "matches no agent", "one that matches some of agent_0", 'the nearest is "agent_0"',
          what="multi_agent.policy_mapping.agnet_0: "),
    value("multi_agent.policy_mapping={'*': b, agent_0: a}", 'a glob behind "*"', "expected it before", "change their order",
          what="multi_agent.policy_mapping.agent_0: "),
]

YAML = [
    yaml("a tab", NATIVE + "algorithm:\n\tlr: 1.0e-3\n", "3:1", "not valid YAML", 'got "', "expected spaces", "put two spaces"),
    yaml("no space behind the colon", NATIVE + "algorithm:\n  lr:1e-3\n", "3:3", "algorithm: ", 'got "lr:1e-3"', "a section", "YAML wants a space"),
    yaml("a list that is not closed", NATIVE + "model: {actor_hidden_sizes: [64, 64}\n", "2:36", "not valid YAML", 'got "model', "expected KEY: VALUE",
         "close every [ and {"),
    yaml("keys that are not in line", NATIVE + "algorithm:\n  lr: 1.0e-3\n gamma: 0.9\n", "4:2", "not valid YAML", 'got " gamma', "expected KEY: VALUE",
         "same number of spaces"),
    yaml("a colon in a text", NATIVE + "experiment: {directory: a: b}\n", "2:26", "not valid YAML", 'got "experiment', "expected KEY: VALUE", "in quotes"),
    yaml("a key twice", NATIVE + "seed: 1\nseed: 2\n", "3:1", "key ", '"seed" is there twice', "expected once", "take one of them out"),
    yaml("a list of keys", "- env\n- algorithm\n", "1:1", "the configuration: ", "got a list", "a section", "its keys are"),
    Mistake("an empty file", where="run.yaml: ", what="is ", got="empty", expected="at least env", hint="`troupe config defaults`", config=""),
    yaml("env as text", "env: CartPole-v1\n", "1:6", "env: ", 'got "CartPole-v1"', "a section", "write env: {name: CartPole-v1}"),
    Mistake("no environment", where="default: ", what="env.name: ", got="got none", expected="expected an environment", hint="`troupe envs ls`", config="seed: 1\n"),
]

FILES = [
    Mistake("no such file", where="runn.yaml: ", what="cannot be read: ", got="No such file", expected="expected a configuration", hint='the nearest is "run.yaml"',
            command=("train", "runn.yaml")),
    use("train my_env.py", "my_env.py: ", "is ", "a program in Python", "expected a configuration", 'env: {name: "python:my_env.py:CLASS"}', exit_code=78),
    use("train runs/done", "runs/done: ", "is ", "a run folder", "expected a YAML file", "--resume runs/done", exit_code=78),
    use("train runs", "runs: ", "is ", "a directory", "expected a YAML file", "name one of the files", exit_code=78),
]

ENVIRONMENTS = [
    value("env.name=mpe/simple_spraed", "'mpe/simple_spraed'", "`troupe envs ls`", "did you mean 'mpe/simple_spread'?"),
    value("env.name=CartPole-v1", "'CartPole-v1'", "`troupe envs ls`", "python:gymnasium:CartPole-v1"),
    value("env.name=simple_spread_v3", "'simple_spread_v3'", "`troupe envs ls`", "write mpe/simple_spread (native)"),
    value("env.name=pursuit_v4", "'pursuit_v4'", "`troupe envs ls`", "python:pettingzoo.sisl.pursuit_v4"),
    value("env.name=my_env.py:Env", "'my_env.py:Env'", "`troupe envs ls`", "write python:my_env.py:Env"),
    value("env.name=smac", "'smac'", "`troupe envs ls`", "your own is python:"),
]

POLICIES = [
    value("multi_agent.policy_mapping=lambda agent_id: agent_id", 'got "lambda', "a mapping from globs", 'write {function: "python:FILE.py:NAME"}'),
    value("multi_agent.policy_mapping={agent_0: a}", 'got no rule for agent "agent_1"', "expected one for every agent", 'a last rule "*"'),
    value("multi_agent.policies=[a, b]", "2 policies do not pair with 3 agents", "expected as many", "per_agent gives", what="multi_agent.policy_mapping: ",
          place="default: "),
    value('multi_agent={policies: [hunter], policy_mapping: {"*": huntr}}', 'got policy "huntr"', "expected one that multi_agent.policies lists",
          'the nearest is "hunter"', what="multi_agent.policy_mapping.*: "),
    value("experiment.best_by=default_policy", 'got "default_policy"', "expected sum, mean, policy:ID or agent:GLOB", "write policy:default_policy"),
    value("experiment.best_by=policy:default", 'the policy "default"', "expected one of default_policy", 'the nearest is "default_policy"'),
    value("stop.episode_return={agnt_0: 3}", 'got "agnt_0"', "expected sum, mean, policy:ID or agent:GLOB", "write policy:agnt_0", what="stop.episode_return: "),
    value("multi_agent.policies_to_train=[x]", 'got policy "x"', "expected one that multi_agent.policies lists", "these are default_policy"),
    value("multi_agent.policies={a: {class: randm}}", 'got "randm"', "expected trained, random", 'the nearest is "random"', what="multi_agent.policies.a.class: "),
    value("env.name=mpe/simple_tag", 'of policy "default_policy" have different', "expected equal ones", "policy_mapping: per_agent",
          what="multi_agent.policy_mapping: ", place="default: "),
    value("multi_agent.policies={a: {class: checkpoint:nosuch}}", '"nosuch" is neither', "expected one of them", "runs/NAME",
          what="multi_agent.policies.a.class: "),
    value("multi_agent.policies={default_policy: {class: checkpoint:runs/done#nobody}}", 'policy "nobody" of runs/done', "expected one of default_policy",
          "write PATH#ID", what="multi_agent.policies.default_policy.class: "),
    Mistake("a checkpoint of other spaces", where="--set multi_agent.policies", what="multi_agent.policies.a.class: ", got="the observation space is Box",
            expected="expected Box", hint="set env alike",
            sets=("multi_agent.policies={a: {class: checkpoint:runs/done#default_policy}}", "env.args.N=2")),
]

RUNS = [
    use("evaluate runs/fresh", '"runs/fresh": ', "no checkpoint ", "it has none yet", "expected at least one", "experiment.checkpoint_interval"),
    use("evaluate runs/done --checkpoint 7", '"runs/done": ', "no checkpoint ", '"7" in', "expected latest, best or one of", "`troupe checkpoint ls`"),
    use("evaluate runs/dine", '"runs/dine"', "there is no run", 'nor in "runs/runs/dine"', "a run has a config.yaml", 'the nearest is "runs/done"'),
    use("evaluate s3://bucket/done", '"s3://bucket/done"', "got the ", "URL", "expected a folder of this machine", "mount the storage"),
    use("query unix:nobody.sock --policy shared --obs [1", "--obs: ", "expected JSON", 'got "[1"', "a row of numbers", "in quotes"),
    Mistake("a network of another shape", where="--warm-start runs/done: ", what='policy "default_policy" of runs/done/checkpoints/', got="has shape [64, 21]",
            expected="expected [64, 18]", hint="set algorithm.use_agent_id",
            command=("train", "run.yaml", "--warm-start", "runs/done", "--set", "algorithm.use_agent_id=false")),
    Mistake("a changed key on resume", where="--set model.activation=relu: ", what="model.activation: ", got="got relu", expected="was started with tanh",
            hint="a resumed run may change", command=("train", "--resume", "done", "--set", "model.activation=relu")),
    use("serve runs/done --listen localhost:abc", "address 'localhost:", "the port is no number", "abc'", "from 0 to 65535", "expected unix:PATH"),
    use("worker --learner 10.0.0.7:7777", "address ", "is reached by other machines", "10.0.0.7:7777", "a loopback address or a Unix socket",
        "give --insecure-plaintext-network"),
    use("train run.yaml --name done", '"runs/done"', "already holds ", "a run", "--resume", "choose another name", exit_code=78),
]

COMMANDS = [
    use("tain run.yaml", "troupe: error: ", "there is no command", '"tain"', 'the nearest is "train"', "`troupe --help`", exit_code=USAGE),
    use("train run.yaml --worker 2", "train has", "no option", '"--worker"', '"--workers"', "`troupe train --help`", exit_code=USAGE),
    use("train run.yaml --lr 3e-4", "train has", "no option", '"--lr"', "keys of the configuration", "--set KEY=VALUE", exit_code=USAGE),
    use("train run.yaml --set a = b", "train takes", "no argument", '"="', "expected KEY=VALUE in one word", "write --set ", exit_code=USAGE),
]

# {python} has numpy, {bare} is a Python without packages; walk.py is an environment.
PYTHON = "env: {name: \"python:walk.py:Walk\", python: {processes: 1}}\nalgorithm: {train_batch_size: 100, minibatch_size: 50}\nnum_workers: 1\nnum_envs_per_worker: 2\n"


def python(name, settings, where, what, got, expected, hint, interpreter="{python}", config=PYTHON, **how):
    return Mistake(name, where=where, what=what, got=got, expected=expected, hint=hint, config=config, sets=settings,
                   command=("train", "run.yaml", "--python", interpreter), **how)


NAME_ANOTHER = "env.python.interpreter in the configuration (--python of train, learner and envs)"
PYTHONS = [
    python("a Python without numpy", (), "run.yaml:1:13: ", "env.name: ", "{bare}/bin/python has no numpy", "-m pip install numpy", NAME_ANOTHER,
           interpreter="{bare}"),
    python("a package that is missing", ("env.name=python:smac:Env",), "--set env.name=python:smac:Env: ", "env.name: ", "there is no module smac",
           "-m pip install smac", NAME_ANOTHER),
    python("a class that is mistyped", ("env.name=python:walk.py:Wlak",), "--set env.name=python:walk.py:Wlak: ", "env.name: ", "'Wlak' is no",
           "attribute of module", "did you mean Walk"),
    python("an interpreter that is none", (), "--set env.python.interpreter=\"/no/such\": ", "env.python.interpreter: ", "got /no/such", "expected a Python interpreter", "--python",
           interpreter="/no/such"),
    python("a file that is not there", ("env.name=python:wlak.py:Walk",), "--set env.name=python:wlak.py:Walk: ", "env.name: ", "there is no file", "expected a program in Python",
           "did you mean walk.py?"),
    python("an observation of another shape", ("env.name=python:walk.py:Wide",), "environment python:walk.py:Wide (env 0, episode 0), step 1", "agent walker: observation: ",
           "got an array of shape (3,)", "expected (2,)", "--resume runs/", exit_code=FAILED, begins=True),
    python("a mapping function that answers wrong", ("multi_agent.policies=[main]", "multi_agent.policy_mapping={function: python:walk.py:nobody}"),
           'policy_mapping of agent "walker"', "mapping function ", 'got policy "nosuch"', "expected one of main", "--resume runs/", exit_code=FAILED, begins=True),
    python("a mapping function that raises", ("multi_agent.policies=[main]", "multi_agent.policy_mapping={function: python:walk.py:raises}"),
           'policy_mapping of agent "walker"', "mapping function ", "KeyError: 'walker'", " in raises)", "--resume runs/", exit_code=FAILED, begins=True),
]

MISTAKES = UNKNOWN_KEYS + VALUES + YAML + FILES + ENVIRONMENTS + POLICIES + RUNS + COMMANDS + PYTHONS
