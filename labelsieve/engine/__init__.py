"""The training engine: one loop for 1..n networks, driven by a method's losses."""

from labelsieve.engine.method import Batch, Method, Plan, TrainingView
from labelsieve.engine.schedule import Schedule
from labelsieve.engine.store import PictureStore, VectorStore, stage_pictures
from labelsieve.engine.train import Trained, train
from labelsieve.engine.training import Diverged, OutOfTime
from labelsieve.types import Store

__all__ = [
    "Batch",
    "Diverged",
    "Method",
    "OutOfTime",
    "PictureStore",
    "Plan",
    "Schedule",
    "Store",
    "Trained",
    "TrainingView",
    "VectorStore",
    "stage_pictures",
    "train",
]
