"""A callback that is called after every update: what one costs.

    bench/pairs.py . . --new-set callbacks=[python:$PWD/bench/every_update.py:EveryUpdate] --at-least 0.97
"""

import troupe


class EveryUpdate(troupe.Callback):
    def on_update_end(self, ctx: troupe.callbacks.UpdateContext) -> None:
        if ctx.return_mean is not None:
            ctx.track("return", ctx.return_mean)
