"""Architectures, one per file; layers.py has the layers that hold n networks at once."""
