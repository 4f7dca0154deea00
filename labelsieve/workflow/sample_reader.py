"""How a network reads samples: learnt from the training data, kept with the model, the same for new data.

Pictures are normalised by channel, rows of numbers by column, texts become rows of numbers first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from labelsieve.data.decode import CROP as CROP
from labelsieve.errors import InputError
from labelsieve.types import Kind, LabelledData

if TYPE_CHECKING:
    import torch

    from labelsieve.data.columns import Encoding
    from labelsieve.engine import Store


KINDS: dict[Kind, str] = {"pictures": "pictures", "table": "rows of a table", "text": "texts"}


@dataclass(frozen=True)
class Reading:
    kind: Kind
    shape: tuple[int, ...]  # of one sample as a network sees it, channels first
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    encoding: Encoding | None = None  # of a table's columns

    @classmethod
    def learn(cls, data: LabelledData) -> Reading:
        if data.kind == "pictures":
            if not isinstance(data.x, np.ndarray):
                side = min(CROP, int(data.x.side))
                return cls("pictures", (3, side, side))
            from labelsieve.engine.store import channel_statistics

            height, width, channels = data.x.shape[1:]
            mean, std = channel_statistics(data.x)
            return cls("pictures", (channels, height, width), {"mean": mean, "std": std})
        arrays: dict[str, NDArray[Any]] = {}
        if data.kind == "text":
            from labelsieve.data.text import TextFeatures

            features = TextFeatures.learn(data.x)
            arrays |= {"idf": features.idf, "components": features.components}
            rows = features.rows(data.x)
        else:
            rows = np.asarray(data.x, dtype=np.float32)
        from labelsieve.execute.lockstep import row_statistics

        arrays["centre"], arrays["spread"] = row_statistics(rows, texts=data.kind == "text")
        return cls(data.kind, (rows.shape[1],), arrays, getattr(data.x, "encoding", None))

    def store(self, data: LabelledData, device: torch.device, *, augment: bool) -> Store:
        """The samples where the engine reads them."""
        if data.kind != self.kind:
            raise InputError(f"{data.name} holds {KINDS[data.kind]}, the model was trained on {KINDS[self.kind]}")
        if self.kind == "pictures":
            if not isinstance(data.x, np.ndarray):
                from labelsieve.data.device_pictures import picture_store

                return picture_store(data.x, device, crop=self.shape[1], augment=augment)
            return self._pictures(data, device, augment=augment)
        from labelsieve.engine import VectorStore

        if self.kind == "text":
            from labelsieve.data.text import TextFeatures

            rows = TextFeatures(self.arrays["idf"], self.arrays["components"]).rows(data.x)
        else:
            rows = np.asarray(data.x, dtype=np.float32)
        if rows.shape[1:] != self.shape:
            raise InputError(f"{data.name} has {rows.shape[1]} features, the model was trained on {self.shape[0]}")
        return cast("Store", VectorStore((rows - self.arrays["centre"]) / self.arrays["spread"], device))

    def _pictures(self, data: LabelledData, device: torch.device, *, augment: bool) -> Store:
        import torch as torch_

        from labelsieve.engine import PictureStore

        channels, height, width = self.shape
        if data.x.shape[1:] != (height, width, channels):
            there = " x ".join(map(str, data.x.shape[1:3]))
            raise InputError(f"{data.name} has pictures of {there} pixels, the model was trained on {height} x {width}")
        shift = min(4, height // 8) if augment else 0
        dtype = torch_.bfloat16 if device.type == "cuda" else torch_.float32
        mean, std = self.arrays["mean"], self.arrays["std"]
        store = PictureStore(data.x, device, shift=shift, flip=augment, mean=mean, std=std, dtype=dtype)
        return cast("Store", store)
