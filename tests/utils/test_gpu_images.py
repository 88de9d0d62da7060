"""`decoder="gpu"`: which files a GPU may decode, and batches that it makes of them."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest

import kerascnn
from kerascnn import _core, utils
from kerascnn.ops import resampling
from kerascnn.utils import gpu_images, image_utils

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
        "higher than engines take": jpeg(picture(rng, 16385, 1)),
        "wider than engines take": jpeg(picture(rng, 1, 16385)),
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


# Batches -----------------------------------------------------------------------------------------


class FakeReader:
    """A `GpuJpegReader` without a GPU."""

    def __init__(self, device, height, width, dtype, channels_first, small, expansion):
        form = "channels_first" if channels_first else "channels_last"
        self.reader = image_utils.ImageReader(
            (height, width), "rgb", "bilinear", form, True, dtype=dtype
        )
        assert device == 3 and 0 < expansion < small
        self.sizes = set()

    def add_plan(self, size, denominator, *taps):
        assert denominator == 1
        self.sizes.add(size)


class FakeCore:
    """The core as `gpu_images` has it, with a GPU that decodes as the CPU does."""

    GpuJpegReader = FakeReader

    def __init__(self):
        self.refused = set()  # contents that nvJPEG does not take
        self.opened, self.decoded = [], []
        core = self

        class Batch:
            def __init__(self, reader, rows):
                self.reader, self.images, self.contents = reader, [None] * rows, [b""] * rows

            def read(self, files, first, most_pixels):
                return [self.read_one(file, first + i) for i, file in enumerate(files)]

            def read_one(self, file, row):
                path, offset, size, _ = file
                with open(path, "rb") as stream:
                    stream.seek(offset)
                    content = stream.read(size)
                plain = _core.plain_jpeg(content)
                if plain is None:
                    return False
                if plain[:2] not in self.reader.sizes:
                    return plain[:2]
                self.contents[row] = content
                return True

            def put(self, row, image):
                assert image.flags.c_contiguous and image.dtype == self.reader.reader.dtype
                self.contents[row], self.images[row] = b"", image

            def decode(self):
                held = [content for content in self.contents if content]
                if core.refused & set(held):
                    self.contents = [b""] * len(self.contents)
                    return None
                core.decoded.append(len(held))
                made = [
                    self.reader.reader.image_of(content, "") if content else image
                    for content, image in zip(self.contents, self.images, strict=True)
                ]
                return kerascnn.ops.convert_to_tensor(np.stack([m for m in made if m is not None]))

        self.GpuImageBatch = Batch

    def open_nvjpeg(self, library):
        self.opened.append(library)


@pytest.fixture
def gpu(monkeypatch):
    core = FakeCore()
    monkeypatch.setattr(gpu_images, "_core", core)
    monkeypatch.setattr(gpu_images, "current_device", lambda: "cuda:3")
    return core


def write_folder(folder, rng, broken=False):
    """Two classes of 13 files: plain ones of several sizes, and some that are not."""
    for label in ("day", "night"):
        (folder / label).mkdir(parents=True)
        for i in range(13):
            image = picture(rng, 20 + 5 * (i % 3), 30)
            (folder / label / f"{i:02}.jpg").write_bytes(jpeg(image))
        (folder / label / "03.jpg").write_bytes(jpeg(image, progressive=True))
        (folder / label / "05.jpg").write_bytes(jpeg(image.convert("L")))
        image.save(folder / label / "07.png")
    if broken:
        (folder / "day" / "01.jpg").write_bytes(jpeg(image)[:-300])
        (folder / "day" / "02.jpg").write_bytes(b"no image")
        (folder / "night" / "11.jpg").write_bytes(b"")
    return folder


def dataset(folder, decoder, **options):
    options = {"image_size": (12, 16), "batch_size": 10, "seed": 3, "verbose": False, **options}
    return utils.image_dataset_from_directory(
        folder, crop_to_aspect_ratio=True, decoder=decoder, **options
    )


def assert_equal(one, other, tolerance=0):
    count = 0
    for (images, labels), (expected, expected_labels) in zip(one, other, strict=True):
        assert not isinstance(images, np.ndarray)  # on the device
        assert images.dtype == expected.dtype.name
        gap = np.abs(np.asarray(images).astype("float32") - expected)
        assert gap.max() <= tolerance
        np.testing.assert_array_equal(labels, expected_labels)
        count += len(labels)
    return count


@pytest.mark.parametrize(
    "options",
    [{}, {"dtype": "uint8"}, {"data_format": "channels_first"}, {"shuffle": False}],
    ids=str,
)
def test_batches_are_those_of_the_cpu(gpu, options, rng, tmp_path):
    folder = write_folder(tmp_path, rng)
    made = dataset(folder, "gpu", **options)
    assert assert_equal(made, dataset(folder, "cpu", **options)) == 28
    # All are JPEG files but two, and two of them are progressive.
    assert sum(gpu.decoded) == 24 and len(gpu.decoded) == 3
    assert gpu.opened == ["libnvjpeg.so.13"]
    np.testing.assert_array_equal(made.element_spec[0].shape[1:], made[0][0].shape[1:])


def test_tar_shards(gpu, rng, tmp_path):
    samples = [
        {"__key__": f"{i}", "jpg": jpeg(picture(rng), progressive=i == 4), "cls": i}
        for i in range(12)
    ]
    shards = utils.write_tar_shards(samples, tmp_path / "x-%06d.tar", samples_per_shard=5)
    options = {"image_size": (12, 16), "batch_size": 8, "seed": 0, "verbose": False}
    options["crop_to_aspect_ratio"] = True
    made = [utils.image_dataset_from_tar(shards, decoder=d, **options) for d in ("gpu", "cpu")]
    assert assert_equal(*made) == 12
    assert sum(gpu.decoded) == 11


def test_files_that_are_left_out_are_the_same(gpu, rng, tmp_path):
    folder = write_folder(tmp_path, rng, broken=True)
    made = [dataset(folder, decoder, on_error="skip") for decoder in ("gpu", "cpu")]
    with pytest.warns(UserWarning, match="Left out"):
        assert assert_equal(*made) == 25
    assert len(made[0].skipped_files) == 3
    assert made[0].skipped_files == made[1].skipped_files


def test_errors_are_the_same(gpu, rng, tmp_path):
    folder = write_folder(tmp_path, rng, broken=True)
    said = []
    for decoder in ("gpu", "cpu"):
        with pytest.raises(ValueError, match="cannot be read as an image") as error:
            list(dataset(folder, decoder, shuffle=False))
        said.append(str(error.value))
    assert said[0] == said[1]


def test_a_batch_of_broken_files(gpu, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").write_bytes(b"no image")
    data = dataset(tmp_path, "gpu", on_error="skip")
    with pytest.warns(UserWarning), pytest.raises(ValueError, match="None of the 1 files"):
        list(data)


def test_what_nvjpeg_does_not_take_is_made_by_the_cpu(gpu, rng, tmp_path):
    folder = write_folder(tmp_path, rng)
    gpu.refused.add((folder / "day" / "04.jpg").read_bytes())
    assert assert_equal(dataset(folder, "gpu"), dataset(folder, "cpu")) == 28
    assert len(gpu.decoded) == 3 and 0 in gpu.decoded


def test_single_batches_and_rows_of_batches(gpu, rng, tmp_path):
    folder = write_folder(tmp_path, rng)
    made, expected = (dataset(folder, d, shuffle=False) for d in ("gpu", "cpu"))
    np.testing.assert_array_equal(np.asarray(made[1][0]), expected[1][0])
    rows = [np.asarray(images) for images, _ in made.unbatch()]
    np.testing.assert_array_equal(rows, np.concatenate([images for images, _ in expected]))


def test_caches_are_refused(gpu, rng, tmp_path):
    data = dataset(write_folder(tmp_path / "images", rng), "gpu")
    for name in ("", tmp_path / "kept"):
        with pytest.raises(ValueError, match="`cache\\(\\)` keeps single images on the host"):
            data.cache(name)


def test_a_file_that_changed_size_has_its_plan(gpu, rng, tmp_path):
    folder = write_folder(tmp_path, rng)
    data = dataset(folder, "gpu", shuffle=False)
    list(data)
    (folder / "day" / "00.jpg").write_bytes(jpeg(picture(rng, 50, 60)))
    assert assert_equal(data, dataset(folder, "cpu", shuffle=False)) == 28


@pytest.mark.parametrize(
    "options, words",
    [
        ({"decoder": "cuda"}, '`decoder` must be "cpu" or "gpu". Received: decoder=\'cuda\''),
        ({"color_mode": "grayscale"}, "goes with `color_mode='rgb'` only"),
        ({"exif_rotation": True}, "goes with `exif_rotation=False` only"),
        ({"scaled_decoding": True}, "goes with `scaled_decoding=False` only"),
        ({"batch_size": None}, "with `batch_size=None` there are none"),
    ],
    ids=str,
)
def test_arguments_that_do_not_go_together(options, words, rng, tmp_path):
    with pytest.raises(ValueError, match=re.escape(words)):
        dataset(write_folder(tmp_path, rng), **{"decoder": "gpu", **options})


def test_the_cpu_in_use(gpu, monkeypatch, rng, tmp_path):
    monkeypatch.setattr(gpu_images, "current_device", lambda: "cpu")
    with pytest.raises(ValueError, match='in use, which is "cpu". Choose a GPU'):
        dataset(write_folder(tmp_path, rng), "gpu")


def test_without_a_gpu(rng, tmp_path):
    if any(usable for name, usable, _ in _core.list_devices() if name != "cpu"):
        pytest.skip("this machine has a GPU")
    with pytest.raises(kerascnn.DeviceError, match="images can't be decoded on a GPU: "):
        dataset(write_folder(tmp_path, rng), "gpu")
    assert _core.plain_jpeg(b"") is None  # which needs none


# On a GPU ----------------------------------------------------------------------------------------


@pytest.fixture
def nvjpeg(cuda_device):
    try:
        _core.open_nvjpeg("libnvjpeg.so.13")
    except kerascnn.DeviceError as error:
        pytest.skip(str(error))
    with kerascnn.device(cuda_device):
        yield cuda_device


def test_a_library_that_is_missing(cuda_device):
    code = (
        "from kerascnn import _core\n"
        "try:\n    _core.open_nvjpeg('libnvjpeg_missing.so')\n"
        "except _core.DeviceError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "libnvjpeg_missing.so can't be opened" in done.stdout
    assert 'pip install "nvidia-nvjpeg==13.0.*"' in done.stdout


@pytest.mark.parametrize("options", [{}, {"dtype": "uint8", "data_format": "channels_first"}])
def test_pixels_are_nearly_those_of_the_cpu(nvjpeg, options, rng, tmp_path):
    folder = write_folder(tmp_path, rng, broken=True)
    made = [dataset(folder, decoder, on_error="skip", **options) for decoder in ("gpu", "cpu")]
    with pytest.warns(UserWarning, match="Left out"):
        assert assert_equal(*made, tolerance=4) == 25
    assert made[0].skipped_files == made[1].skipped_files
    for images, _ in made[0]:
        assert images.device == nvjpeg


@pytest.mark.parametrize("method", ["bilinear", "nearest", "area", "lanczos3"])
@pytest.mark.parametrize("options", [{"crop_to_aspect_ratio": True}, {"pad_to_aspect_ratio": True}])
def test_resizing_has_the_bits_of_the_cpu(nvjpeg, method, options, rng, tmp_path):
    """A file decoded at its own size has the pixels that resizing begins with."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.jpg").write_bytes(jpeg(picture(rng, 61, 83)))

    def batch(**given):
        data = utils.image_dataset_from_directory(
            tmp_path, shuffle=False, verbose=False, decoder="gpu", **given
        )
        return np.asarray(next(iter(data))[0])

    whole = batch(image_size=(61, 83), dtype="uint8")
    assert whole.std() > 10
    for size in ((20, 31), (90, 40)):
        resized = batch(image_size=size, interpolation=method, **options)
        expected = [resampling.resize_array(image, size, method, **options) for image in whole]
        np.testing.assert_array_equal(resized, np.stack(expected))
        rounded = batch(image_size=size, interpolation=method, dtype="uint8", **options)
        np.testing.assert_array_equal(rounded, np.clip(np.rint(expected), 0, 255))


@pytest.mark.parametrize("sampling", ["444", "422", "440", "420", "Gray"])
def test_all_plain_samplings_are_decoded_by_the_gpu(nvjpeg, sampling, rng, tmp_path, monkeypatch):
    simplejpeg = pytest.importorskip("simplejpeg")
    (tmp_path / "a").mkdir()
    for i, size in enumerate([(48, 64), (61, 83), (7, 5), (1, 1)]):
        pixels, colors = np.array(picture(rng, *size)), "RGB"
        if sampling == "Gray":
            pixels, colors = pixels[..., :1].copy(), "GRAY"
        content = simplejpeg.encode_jpeg(pixels, 95, colors, sampling)
        assert _core.plain_jpeg(content) is not None
        (tmp_path / "a" / f"{i}.jpg").write_bytes(content)
    expected = dataset(tmp_path, "cpu", shuffle=False)[0][0]
    made = dataset(tmp_path, "gpu", shuffle=False)
    # Nothing that the GPU leaves could be made.
    monkeypatch.setattr(image_utils.ImageReader, "image_of", lambda *_: 1 / 0)
    assert np.abs(np.asarray(made[0][0]) - expected).max() <= 4


def test_batches_that_are_kept_stay_as_they_are(nvjpeg, rng, tmp_path):
    folder = write_folder(tmp_path, rng)
    data = dataset(folder, "gpu", shuffle=False, batch_size=4)
    kept = [images for _ in range(4) for images, _ in data]
    values = [np.asarray(images) for images in kept]
    for _ in range(3):
        for i, (images, _) in enumerate(data):
            np.testing.assert_array_equal(np.asarray(images), values[i])
            np.testing.assert_array_equal(np.asarray(kept[i]), values[i])


def test_training_reads_batches_on_the_gpu(nvjpeg, rng, tmp_path):
    """Steps get what is in the batches, whatever is decoded meanwhile."""
    folder = write_folder(tmp_path, rng)
    data = dataset(folder, "gpu", shuffle=False, dtype="uint8", batch_size=4)
    columns = zip(*[(np.asarray(images), labels) for images, labels in data], strict=True)
    x, y = map(np.concatenate, columns)
    losses = []
    for source in ((data,), (x, y, 4)):
        kerascnn.utils.set_random_seed(0)
        model = kerascnn.Sequential(
            [
                kerascnn.Input((12, 16, 3)),
                kerascnn.layers.Rescaling(1 / 255),
                kerascnn.layers.Flatten(),
                kerascnn.layers.Dense(2),
            ]
        )
        loss = kerascnn.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(kerascnn.optimizers.SGD(0.01), loss)
        losses.append(model.fit(*source, epochs=5, verbose=0, shuffle=False).history["loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
