"""Python companions of Troupe. Nothing here is needed to train."""

__version__ = "0.1.0"


def __getattr__(name):
    """`troupe.envs`, which needs numpy, and what comes from it, when they are asked for."""
    if name in ("envs", "env", "aec_env", "parallel_env", "environments"):
        import importlib

        envs = importlib.import_module("troupe.envs")
        return envs if name == "envs" else getattr(envs, name)
    raise AttributeError(f"module 'troupe' has no attribute '{name}'")
