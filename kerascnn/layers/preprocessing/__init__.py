"""Layers that prepare images: their sizes and values, and random changes while training."""
