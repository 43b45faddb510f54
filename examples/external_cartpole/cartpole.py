"""A cart-pole in plain Python."""

import math
import random

GRAVITY, CART, POLE, LENGTH, FORCE, TAU = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02


class CartPole:
    """Barto, Sutton and Anderson's, as Gymnasium has it: 1 a step while the pole stands, 500 steps at most."""

    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0
        return self.state

    def step(self, action):
        """-> (observation, reward, terminated, truncated)"""
        x, x_dot, theta, theta_dot = self.state
        force = FORCE if action == 1 else -FORCE
        sine, cosine = math.sin(theta), math.cos(theta)
        total = CART + POLE
        pushed = (force + POLE * LENGTH * theta_dot**2 * sine) / total
        theta_acc = (GRAVITY * sine - cosine * pushed) / (LENGTH * (4.0 / 3.0 - POLE * cosine**2 / total))
        x_acc = pushed - POLE * LENGTH * theta_acc * cosine / total
        self.state = [x + TAU * x_dot, x_dot + TAU * x_acc, theta + TAU * theta_dot, theta_dot + TAU * theta_acc]
        self.steps += 1
        fell = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180
        return self.state, 1.0, fell, self.steps >= 500 and not fell
