"""Kuhn poker solved by enumeration: what two strategies are worth, and how much better each could do against the other.

A strategy of a seat is a function of a card (0 the lowest to 2) and what was done so far ("", "p", "b", "pb": p pass, b bet) to the probability of
betting.
"""

import itertools

CARDS = 3
# What was done when the seat is to act.
HISTORIES = (("", "pb"), ("p", "b"))
DEALS = tuple(itertools.permutations(range(CARDS), 2))


def observation(seat, card, history):
    """docs/environments.md: the seat, the card, what was done so far."""
    row = [0.0] * 11
    row[seat] = 1.0
    row[2 + card] = 1.0
    for i, action in enumerate(history):
        row[2 + CARDS + 2 * i + "pb".index(action)] = 1.0
    return row


def payoff(deal, history):
    """What the first seat wins; None while the hand goes on."""
    showdown = 1.0 if deal[0] > deal[1] else -1.0
    return {"pp": showdown, "bp": 1.0, "bb": 2 * showdown, "pbp": -1.0, "pbb": 2 * showdown}.get(history)


def value(strategies, deal=None, history=""):
    """What the first seat wins in the mean; over all deals where none is given."""
    if deal is None:
        return sum(value(strategies, deal) for deal in DEALS) / len(DEALS)
    paid = payoff(deal, history)
    if paid is not None:
        return paid
    seat = len(history) % 2
    bets = strategies[seat](deal[seat], history)
    return bets * value(strategies, deal, history + "b") + (1 - bets) * value(strategies, deal, history + "p")


def pure_strategies(seat):
    """All 64 of a seat: one of two actions in each of its six situations."""
    situations = list(itertools.product(range(CARDS), HISTORIES[seat]))
    for actions in itertools.product((0.0, 1.0), repeat=len(situations)):
        plan = dict(zip(situations, actions))
        yield lambda card, history, plan=plan: plan[card, history]


def nash_conv(first, second):
    """The sum over the seats of what a best response to the other would win beyond what the seat wins: 0 in an equilibrium."""
    best_first = max(value((pure, second)) for pure in pure_strategies(0))
    worst_second = min(value((first, pure)) for pure in pure_strategies(1))
    return best_first - worst_second
