"""The security page names tests that exist, and is on the site."""

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = (CHECKOUT / ".github" / "SECURITY.md").read_text(encoding="utf-8")


def test_the_tests_that_cover_advisories_are_there():
    rows = [line for line in PAGE.splitlines() if "CVE-" in line and line.startswith("|")]
    assert len(rows) >= 10
    for row in rows:
        ((path, name),) = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert f"\ndef {name}(" in (CHECKOUT / path).read_text(encoding="utf-8"), row


def test_the_bounds_are_those_of_the_code():
    """Numbers in the table are read from the modules that hold them."""
    from kerascnn import file_budget
    from kerascnn.datasets import cifar, image_files
    from kerascnn.models import weights_file
    from kerascnn.saving import h5_file, members
    from kerascnn.utils import audio_dataset, image_utils

    found = {
        "1 MB": file_budget._OF_LAYERS,
        "16 MB each": file_budget._OF_METRICS,
        "above 16 MB unpacked": members._SMALL,
        "up to 100 times what is stored": members._MAX_EXPANSION,
        "| `config.json` | 256 MB": members._MAX_CONFIG,
        "one up to 1000 times": h5_file._MAX_EXPANSION,
        "together above 16 MB up to 100 times": h5_file._MAX_TOTAL_EXPANSION,
        "64 deep": h5_file._MAX_DEPTH,
        "| the header of safetensors | 100 MB": weights_file._MAX_HEADER,
        "announces; above 16 MB": image_files._SMALL,
        "| CIFAR | 256 MB": cifar._LARGEST,
        "above 16 MB of pixels": image_utils._SMALL,
        "250 times the file": image_utils._MAX_EXPANSION,
    }
    for text, value in found.items():
        assert text in PAGE
        shown = int(re.findall(r"\d+", text)[-1])
        assert value == (shown << 20 if value > 10_000 else shown), text
    assert h5_file._MAX_OBJECTS == 1_000_000 and "a million groups" in PAGE
    lowest, highest = audio_dataset._LOWEST_RATE, audio_dataset._HIGHEST_RATE
    assert f"from {lowest:,} to {highest:,} samples" in PAGE


def test_the_page_is_on_the_site():
    index = (CHECKOUT / "docs" / "index.md").read_text(encoding="utf-8")
    assert "\nsecurity\n" in index
    assert ".github/SECURITY.md" in (CHECKOUT / "docs" / "security.md").read_text(encoding="utf-8")
