"""The stages of a run as plain functions. `run.py` shows all of them on one screen."""
