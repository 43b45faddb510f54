"""Python companions of Troupe. Nothing here is needed to train."""

__version__ = "0.1.0"


def __getattr__(name):
    """`troupe.env` and its kind, whose module needs numpy, when they are asked for."""
    if name in ("env", "aec_env", "parallel_env", "environments"):
        from troupe import envs

        return getattr(envs, name)
    raise AttributeError(f"module 'troupe' has no attribute '{name}'")
