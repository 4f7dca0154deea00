"""What the trust tests name as package.module:Name: a classifier that takes its time, networks that misbehave."""

from __future__ import annotations

import time

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin


class Slow(ClassifierMixin, BaseEstimator):
    """Trains for a minute: nothing is safe to stop at before it ends."""

    def fit(self, x, y):
        print("fitting", flush=True)
        self.classes_ = np.unique(y)
        time.sleep(60)
        return self

    def predict_proba(self, x):
        return np.full((len(x), len(self.classes_)), 1 / len(self.classes_))


class OneAnswer(ClassifierMixin, BaseEstimator):
    """Whatever it is asked, it is sure of the first class."""

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        return np.eye(len(self.classes_))[np.zeros(len(x), dtype=int)]

    def predict(self, x):
        return np.full(len(x), self.classes_[0])


def embed(samples):
    """An embedding of two numbers."""
    return np.array([[i % 2, 1] for i in range(len(samples))], dtype=np.float32)


def diverging(classes):
    """A network whose loss is finite for a few epochs and NaN from then on."""
    import torch

    class Diverging(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.LazyLinear(classes)
            self.line(torch.zeros(2, 4))
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x):
            if self.training:
                self.steps += 1
            return self.line(x) * torch.where(self.steps > 12, float("nan"), 1.0)

    return Diverging()
