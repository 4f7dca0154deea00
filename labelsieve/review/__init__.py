"""The page that is worked in: `serve(run)` opens it on this machine alone."""

from labelsieve.review.server import serve

__all__ = ["serve"]
