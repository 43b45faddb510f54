"""An environment whose module starts a thread when it is imported."""

import threading

from host_test_envs import counter

threading.Thread(target=threading.Event().wait, daemon=True).start()

__all__ = ["counter"]
