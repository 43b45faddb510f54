"""The actor behind FastAPI and uvicorn, their default settings. argv: port."""

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

import serving_net

app = FastAPI()
model = serving_net.actor()


class Query(BaseModel):
    obs: list[float]


@app.post("/act")
async def act(query: Query):
    return {"action": serving_net.sample(model, [query.obs])[0]}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
