#!/usr/bin/env python3
"""Records traces/games.json: games of PettingZoo's tictactoe_v3 and connect_four_v3, and all of OpenSpiel's kuhn_poker.

    python3 -m venv venv && venv/bin/pip install pettingzoo==1.27.0 pygame open_spiel==2.0.2
    venv/bin/python tests/conformance/record_games.py > tests/conformance/traces/games.json

Board games: {"agents": [...], "games": [{"actions": [...], "rows": ["0110...", ...], "masks": ["111...", ...], "final": [row, row],
"rewards": [first, second]}, ...]}: before each action the row and the mask of the player to move, then the last row of both. Moves are
random and legal, but for the last move of the games named in "illegal". The games are 20 random ones, and as many more as it
takes to have a draw and a win of either player. A row is its elements, 0 or 1, in C order.

Kuhn poker: every deal and every sequence of actions to its end, {"deal": [card, card], "actions": [...], "rows": [...], "final": [row,
row], "rewards": [first, second]}; a row is the player's information state tensor.
"""
import importlib
import importlib.metadata
import json
import random
from typing import Any, Dict, List, Optional

import numpy as np
import pettingzoo
import pyspiel
from pettingzoo.utils.env_logger import EnvLogger


def text(row: Any) -> str:
    """The elements of a row of zeros and ones, in C order."""
    flat = np.asarray(row).reshape(-1)
    assert set(np.unique(flat)) <= {0, 1}
    return "".join(str(int(value)) for value in flat)


def play(env: Any, rng: random.Random, illegal_at: Optional[int] = None) -> Dict[str, Any]:
    """One game of random moves; the move `illegal_at`, if the game gets there, is one the mask forbids."""
    env.reset(seed=0)
    agents = env.possible_agents
    game: Dict[str, Any] = {"actions": [], "rows": [], "masks": []}
    total = dict.fromkeys(agents, 0.0)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        total[agent] += reward
        if terminated or truncated:
            env.step(None)
            continue
        mask = observation["action_mask"]
        wanted = 0 if illegal_at == len(game["actions"]) else 1
        game["rows"].append(text(observation["observation"]))
        game["masks"].append(text(mask))
        game["actions"].append(rng.choice([i for i, allowed in enumerate(mask) if allowed == wanted]))
        env.step(game["actions"][-1])
    game["final"] = [text(env.observe(agent)["observation"]) for agent in agents]
    game["rewards"] = [total[agent] for agent in agents]
    return game


def board_games(module: str) -> Dict[str, Any]:
    """Random games of a classic environment, and two that end with an illegal move."""
    env = importlib.import_module("pettingzoo.classic." + module).env()
    rng = random.Random(module)
    games: List[Dict[str, Any]] = []
    outcomes = set()
    while len(games) < 20 or len(outcomes) < 3:
        game = play(env, rng)
        if len(games) < 20 or game["rewards"][0] not in outcomes:
            games.append(game)
        outcomes.add(game["rewards"][0])
    illegal = []
    for length in (8, 7) if module == "tictactoe_v3" else (30, 29):
        while True:
            try:
                game = play(env, rng, illegal_at=length)
            except IndexError:  # no full column at that move
                continue
            if len(game["actions"]) == length + 1:
                break
        illegal.append(len(games))
        games.append(game)
    return {"agents": env.possible_agents, "games": games, "illegal": illegal}


def kuhn_poker() -> List[Dict[str, Any]]:
    """Every history of two-player Kuhn poker."""
    histories: List[Dict[str, Any]] = []

    def walk(state: Any, deal: List[int], actions: List[int], rows: List[str]) -> None:
        if state.is_terminal():
            histories.append({"deal": deal, "actions": actions, "rows": rows, "rewards": state.returns(),
                              "final": [text(state.information_state_tensor(player)) for player in range(2)]})
            return
        for action in state.legal_actions():
            if state.is_chance_node():
                walk(state.child(action), deal + [action], actions, rows)
            else:
                row = text(state.information_state_tensor(state.current_player()))
                walk(state.child(action), deal, actions + [action], rows + [row])

    walk(pyspiel.load_game("kuhn_poker").new_initial_state(), [], [], [])
    return histories


EnvLogger.suppress_output()  # what it says of illegal moves goes to standard output
print(json.dumps({"packages": ["pettingzoo==" + pettingzoo.__version__, "open_spiel==" + importlib.metadata.version("open_spiel")],
                  "tic_tac_toe": board_games("tictactoe_v3"), "connect_four": board_games("connect_four_v3"),
                  "kuhn_poker": kuhn_poker()}, separators=(",", ":")))
