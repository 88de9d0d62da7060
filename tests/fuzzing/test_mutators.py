"""Mutations of images take what mutations have left of a file."""

from pathlib import Path
from random import Random

import pytest

from . import image_files, mutators


def test_images_are_mutated_again_and_again():
    """Of a damaged file the parts are short, missing, or long beyond their field."""
    pytest.importorskip("PIL")
    rng = Random(0)
    for content in image_files.seeds(Path(), None):
        is_slow = content.startswith(b"\x89PNG")  # megabytes are packed for it
        for _ in range(1 if is_slow else 30):
            changed = content
            for _ in range(4):
                changed = image_files.mutate(rng, changed)


def test_images_of_a_few_bytes_are_mutated():
    pytest.importorskip("PIL")
    rng = Random(0)
    for content in image_files.seeds(Path(), None)[::4]:
        for size in range(30):
            for _ in range(4 if content.startswith(b"\x89PNG") else 20):
                image_files.mutate(rng, content[:size])


def test_deep_configurations_are_mutated():
    """Parts are put into each other until Python cannot follow them."""
    value = [1]
    for _ in range(300):
        value = [value]
    for seed in range(400):
        mutators.dump_json(Random(seed), mutators.mutate_json(Random(seed), [[value], value, 1]))
