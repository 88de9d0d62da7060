"""`decoder="gpu"`: which files a GPU may decode, and batches that it makes of them."""

import io

import numpy as np
import pytest

from kerascnn import _core

pil_image = pytest.importorskip("PIL.Image")


def picture(rng, height=33, width=40, mode="RGB"):
    """Slow changes, as photographs have them, and some noise."""
    coarse = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
    smooth = np.asarray(pil_image.fromarray(coarse).resize((width, height), pil_image.BICUBIC))
    noisy = smooth + rng.normal(0, 6, smooth.shape)
    return pil_image.fromarray(np.clip(noisy, 0, 255).astype("uint8")).convert(mode)


def jpeg(image, **options):
    stream = io.BytesIO()
    image.save(stream, "jpeg", **{"quality": 90, **options})
    return stream.getvalue()


def segment(marker, content):
    return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content


def place_of(content, marker):
    """Where the first segment of a kind is, and where the next one is."""
    at = 2
    while content[at + 1] != marker:
        at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return at, at + 2 + int.from_bytes(content[at + 2 : at + 4], "big")


# Which files -------------------------------------------------------------------------------------

SAMPLINGS = ("4:4:4", "4:2:2", "4:2:0")
PLAIN = {
    **{name: {"subsampling": name} for name in SAMPLINGS},
    "optimized": {"optimize": True},
    "restarts of rows": {"restart_marker_rows": 1},
    "restarts of blocks": {"restart_marker_blocks": 2, "subsampling": "4:2:0"},
    "much beside the image": {"exif": b"Exif\0\0" + bytes(500), "comment": b"\xff\xd9" * 9},
    "coarse": {"quality": 1},
}


@pytest.mark.parametrize("options", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("height, width", [(33, 40), (1, 1), (8, 16), (17, 3)])
def test_plain_files_have_their_size(height, width, options, rng):
    content = jpeg(picture(rng, height, width), **options)
    assert _core.plain_jpeg(content) == (height, width, len(content))
    grey = jpeg(picture(rng, height, width, "L"), **{**options, "subsampling": -1})
    assert _core.plain_jpeg(grey) == (height, width, len(grey))
    assert _core.plain_jpeg(content + b"\xff\xd8 what other programs add") == (
        (height, width, len(content))
    )


def with_adobe(content, transform):
    app0 = place_of(content, 0xE0)[1]
    adobe = segment(0xEE, b"Adobe" + bytes([0, 100, 0, 0, 0, 0, transform]))
    return content[:app0] + adobe + content[app0:]


def test_what_adobe_says_of_colors(rng):
    content = jpeg(picture(rng))
    assert _core.plain_jpeg(with_adobe(content, 1)) is not None
    assert _core.plain_jpeg(with_adobe(content, 0)) is None  # RGB
    assert _core.plain_jpeg(with_adobe(content, 2)) is None
    assert _core.plain_jpeg(with_adobe(jpeg(picture(rng, mode="L")), 0)) is not None


def other_files(rng):
    image = picture(rng)
    content = jpeg(image)
    frame, scan = place_of(content, 0xC0), place_of(content, 0xDA)
    restarts = jpeg(image, restart_marker_rows=1)
    first = restarts.index(b"\xff\xd0")
    second = restarts.index(b"\xff\xd1")
    table = place_of(content, 0xC4)
    quantizer = place_of(content, 0xDB)

    def changed(at, *values):
        return content[:at] + bytes(values) + content[at + len(values) :]

    return {
        "nothing": b"",
        "a PNG file": b"\x89PNG\r\n\x1a\n" + bytes(99),
        "progressive": jpeg(image, progressive=True),
        "four colors": jpeg(image.convert("CMYK")),
        "RGB": jpeg(image, keep_rgb=True),
        "4:1:1": changed(frame[0] + 11, 0x41),
        "arithmetic codes": changed(frame[0] + 1, 0xC9),
        "extended": changed(frame[0] + 1, 0xC1),
        "12 bits": changed(frame[0] + 4, 12),
        "no height": changed(frame[0] + 5, 0, 0),
        "no width": changed(frame[0] + 7, 0, 0),
        "much too large": changed(frame[0] + 5, 0xFF, 0xFF, 0xFF, 0xFF),
        "two frames": content[: frame[1]] + content[frame[0] :],
        "no frame": content[: frame[0]] + content[frame[1] :],
        "chroma is finer": changed(frame[0] + 14, 0x22),
        "a quantizer that is not there": changed(frame[0] + 12, 3),
        "quantizers of 16 bits": changed(quantizer[0] + 4, 0x10),
        "a quantizer of 0": changed(quantizer[0] + 9, 0),
        "no codes": content[: table[0]] + content[table[1] :],
        "too many codes": changed(table[0] + 5, 3),
        "a code of all ones": changed(table[0] + 5, 2),
        "codes of other components": changed(scan[0] + 5, 7),
        "a part of the coefficients": changed(scan[1] - 2, 5),
        "two scans": content[:-2] + content[scan[0] :],
        "another marker between the codes": content[:-40] + b"\xff\xc4" + content[-40:],
        "a restart that nobody has said": content[:-40] + b"\xff\xd0" + content[-40:],
        "a restart is missing": restarts[:first] + restarts[first + 2 :],
        "restarts in another order": restarts[: first + 1] + b"\xd1" + restarts[first + 2 :],
        "a restart too many": restarts[:second] + b"\xff\xd1" + restarts[second:],
        "no end": content[:-2],
        "a segment without its end": content[: scan[0]] + b"\xff\xe1\xff\xff",
        "a segment without its size": content[: scan[0]] + b"\xff\xe1\x00\x01",
        "something between segments": content[: scan[0]] + b"\0" + content[scan[0] :],
        "too few codes": content[: scan[1]] + b"\0\0\xff\xd9",
    }


def test_other_files_are_left_to_the_cpu(rng):
    taken = [name for name, file in other_files(rng).items() if _core.plain_jpeg(file) is not None]
    assert not taken


def test_no_part_of_a_file_is_plain(rng):
    for options in ({}, {"restart_marker_rows": 1}):
        content = jpeg(picture(rng, 17, 9), **options)
        assert not any(_core.plain_jpeg(content[:size]) for size in range(len(content)))


def test_whatever_is_plain_is_an_image_for_pillow(rng):
    """Wrong bytes anywhere: a file that Pillow refuses never goes to the GPU."""
    wholes = [
        jpeg(picture(rng, 17, 9), subsampling="4:2:0"),
        jpeg(picture(rng, 9, 17, "L"), restart_marker_blocks=1),
    ]
    plain = 0
    for turn in range(1000):
        mutated = bytearray(wholes[turn % 2])
        for place in rng.integers(len(mutated), size=rng.integers(1, 4)):
            mutated[place] = rng.choice([0, 1, 0x7F, 0xFF, rng.integers(256)])
        size = _core.plain_jpeg(bytes(mutated))
        if size is None:
            continue
        plain += 1
        with pil_image.open(io.BytesIO(mutated)) as image:
            image.load()
            assert image.size == (size[1], size[0])
            assert image.mode in ("RGB", "L")
    assert plain > 50
