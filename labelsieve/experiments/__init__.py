"""Every figure and table of the paper, from runs that can be repeated: `python -m labelsieve.experiments.run list`."""
