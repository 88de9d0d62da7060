"""Layers that go through sequences step by step, and the cells that compute one step."""
