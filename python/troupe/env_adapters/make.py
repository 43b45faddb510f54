"""From an environment's name to its adapter."""

from __future__ import annotations

from troupe.env_adapters import observed, recognize, resolve
from troupe.env_adapters.base import EnvAdapter, close_after_error


def make_adapter(
    name: str,
    args: dict,
    global_state: bool = True,
    draws: bool = False,
    observation_function: str = "",
    place: resolve.Place | None = None,
) -> EnvAdapter:
    """The environment `name` (a configuration's `python:` name without that prefix) behind an adapter.

    `args` are passed as keywords to what makes the environment. Without `global_state` no state is asked for
    (state_kind "none"). With `draws` it is made for picture(): with render_mode "rgb_array" where it takes one.
    `place`: which environment of a run it is. `observation_function`: what makes each agent's observation, "module:attribute"; "": nothing does. Plays one reset.
    Raises EnvAdapterError, or what the environment's own code raises.
    """
    adapter = recognize.adapt(name, resolve.make_environment(name, args, draws, place), global_state)
    if not observation_function:
        return adapter
    try:
        return observed.wrap(adapter, observation_function)
    except BaseException:
        close_after_error(name, adapter)
        raise


def import_environment(name: str) -> None:
    """Imports what make_adapter needs for the environment `name`, and makes nothing.

    Raises EnvAdapterError when the environment's module cannot be imported.
    """
    resolve.import_module_of(name)
