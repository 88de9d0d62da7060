"""Layers that process sequences step by step, and the cells that compute one step."""
