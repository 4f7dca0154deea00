"""Architectures, one a file; layers.py holds the layers that carry n networks at once."""
