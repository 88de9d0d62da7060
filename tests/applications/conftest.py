"""Fixtures of the tests of applications."""

import json

import pytest

from kerascnn.applications import imagenet_utils


@pytest.fixture
def class_index(tmp_path, monkeypatch):
    """A made-up list of classes in the cache, in place of the published one."""
    index = {str(i): [f"n{i:08}", f"class_{i}"] for i in range(1000)}
    folder = tmp_path / "home" / "models"
    folder.mkdir(parents=True)
    (folder / "imagenet_class_index.json").write_text(json.dumps(index))
    monkeypatch.setenv("KERASCNN_HOME", str(tmp_path / "home"))
    published = imagenet_utils.CLASS_INDEX._replace(
        url="http://127.0.0.1:9/imagenet_class_index.json", file_hash=None
    )
    monkeypatch.setattr(imagenet_utils, "CLASS_INDEX", published)
    return index
