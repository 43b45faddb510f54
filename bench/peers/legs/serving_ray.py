"""The actor behind Ray Serve over HTTP. argv: port, "plain" (its default settings) or "batched" (up to 32 requests a forward, waited for 1 ms). Ends with
its standard input."""

import logging
import os
import sys

import ray
from ray import serve

HERE = os.path.dirname(os.path.abspath(__file__))


@serve.deployment(num_replicas=1, max_ongoing_requests=64)
class Policy:
    def __init__(self, batched):
        import serving_net

        self._batched, self._sample, self._model = batched, serving_net.sample, serving_net.actor()

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.001)
    async def _many(self, observations):
        return self._sample(self._model, observations)

    async def __call__(self, request):
        observation = (await request.json())["obs"]
        if self._batched:
            return {"action": await self._many(observation)}
        return {"action": self._sample(self._model, [observation])[0]}


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False, object_store_memory=1 << 29,
             runtime_env={"env_vars": {"PYTHONPATH": HERE}})
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])}, logging_config={"enable_access_log": False})
    serve.run(Policy.bind(sys.argv[2] == "batched"), route_prefix="/act")
    sys.stdin.read()
    serve.shutdown()
    ray.shutdown()
