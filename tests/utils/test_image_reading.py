"""How `image_dataset_from_directory` reads files: decoders, resizing in the core, broken files."""

import io
import struct
import tracemalloc
import warnings

import numpy as np
import pytest

import kerascnn
from kerascnn import _core, utils
from kerascnn.data import tar_index
from kerascnn.ops import resampling
from kerascnn.utils import image_utils, jpeg_files

pil_image = pytest.importorskip("PIL.Image")

METHODS = ("bilinear", "nearest", "bicubic", "area", "lanczos3", "gaussian", "mitchellcubic")


def photograph(rng, height, width, mode="RGB"):
    """A picture of slow changes, as photographs have them."""
    coarse = rng.integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return pil_image.fromarray(coarse).resize((width, height), pil_image.BICUBIC).convert(mode)


def saved(path, img, **options):
    img.save(path, **options)
    return str(path)


@pytest.fixture(params=["core", "simplejpeg", "pillow"])
def decoder(request, monkeypatch):
    """Has JPEG files decoded by one of those that there are."""
    if request.param != "core":
        monkeypatch.setattr(jpeg_files, "writer_of", lambda reader: None)
    if request.param == "simplejpeg":
        pytest.importorskip("simplejpeg")
    if request.param == "pillow":
        monkeypatch.setattr(image_utils, "_simplejpeg", lambda: None)
    return request.param


def reader(size=(20, 30), **options):
    return image_utils.ImageReader(size, "rgb", "bilinear", "channels_last", **options)


# Resizing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "options", [{}, {"crop_to_aspect_ratio": True}, {"pad_to_aspect_ratio": True}]
)
def test_resizing_has_the_bits_of_numpy(channels, method, options, rng):
    image = rng.integers(0, 256, (17, 23, channels), dtype=np.uint8)
    for size in ((9, 11), (17, 40), (31, 23), (1, 1)):
        own = resampling.resize_array(image, size, method, **options)
        by_numpy = resampling.resize_array(image.astype("uint16"), size, method, **options)
        assert own.dtype == by_numpy.dtype == np.float32
        np.testing.assert_array_equal(own, by_numpy)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("height, width", [(17, 23), (40, 9), (1, 31)])
def test_padding_is_black_pixels_around_the_image(method, height, width, rng):
    image = rng.integers(1, 256, (height, width, 3), dtype=np.uint8)
    for size in ((9, 11), (31, 23), (5, 50), (1, 1)):
        rows, columns = resampling.pad_margins(height, width, *size)
        black = np.zeros((height + 2 * rows, width + 2 * columns, 3), "uint8")
        black[rows : rows + height, columns : columns + width] = image
        np.testing.assert_array_equal(
            resampling.resize_array(image, size, method, pad_to_aspect_ratio=True),
            resampling.resize_array(black, size, method),
        )


@pytest.mark.parametrize("shape", [(1, 65535, 3), (65535, 1, 3)])
def test_a_strip_is_not_made_a_square_of_gigabytes(shape):
    image = np.full(shape, 255, "uint8")
    tracemalloc.start()
    try:
        resized = resampling.resize_array(image, (3, 3), "area", pad_to_aspect_ratio=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6  # the square has 12.9 GB
    assert resized.sum() == pytest.approx(9 * 255 * 3 / 65535, rel=1e-3)


def test_views_are_resized_as_their_copies(rng):
    image = rng.integers(0, 256, (17, 46, 3), dtype=np.uint8)[:, ::-2]
    np.testing.assert_array_equal(
        resampling.resize_array(image, (5, 6), "area"),
        resampling.resize_array(image.copy(), (5, 6), "area"),
    )


def taps(indices, shares=None):
    indices = np.array(indices, "int32")
    return indices, np.ones(indices.shape, "float32") if shares is None else shares


@pytest.mark.parametrize(
    ("pixels", "rows", "columns", "words"),
    [
        (np.zeros((4, 5), "uint8"), taps([[0]]), taps([[0]]), "must be"),
        (np.zeros((4, 5, 3), "float32"), taps([[0]]), taps([[0]]), "of uint8"),
        (np.zeros((4, 5, 3), "uint8"), taps([[4]]), taps([[0]]), "index 4 of rows"),
        (np.zeros((4, 5, 3), "uint8"), taps([[0]]), taps([[-1]]), "index -1 of columns"),
        (np.zeros((0, 5, 3), "uint8"), taps([[0]]), taps([[0]]), "index 0 of rows"),
        (np.zeros((4, 5, 3), "uint8"), taps([0]), taps([[0]]), "taps of rows"),
        (np.zeros((4, 5, 3), "uint8"), taps(np.zeros((2, 0))), taps([[0]]), "taps of rows"),
        (
            np.zeros((4, 5, 3), "uint8"),
            taps([[0]]),
            taps([[0]], np.ones((1, 2), "float32")),
            "taps",
        ),
        (np.zeros((4, 5, 3), "uint8"), taps([[0]]), taps([[0]], np.ones((1, 1))), "float32"),
    ],
)
def test_the_core_checks_what_it_is_given(pixels, rows, columns, words):
    with pytest.raises(ValueError, match=words):
        _core.resample_image(pixels, *rows, *columns)


def test_images_of_nothing():
    pixels, none = np.zeros((4, 5, 3), "uint8"), taps(np.zeros((0, 1)))
    assert _core.resample_image(pixels, *none, *taps([[0]])).numpy().shape == (0, 1, 3)
    assert _core.resample_image(pixels[:, :, :0], *taps([[0]]), *none).numpy().shape == (1, 0, 0)


# Decoding -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"quality": 50}, {"subsampling": 0}, {"progressive": True}])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpeg_has_the_pixels_of_pillow(mode, options, tmp_path, rng):
    path = saved(tmp_path / "a.jpg", photograph(rng, 37, 53, mode), **options)
    with pil_image.open(path) as img:
        expected = np.asarray(img.convert("RGB"))
    same = reader(size=expected.shape[:2])
    # Both decoders are libjpeg-turbo with its exact transform, so nothing may differ.
    np.testing.assert_array_equal(same(path), expected)
    if mode != "CMYK":
        pytest.importorskip("simplejpeg")
        content = (tmp_path / "a.jpg").read_bytes()
        np.testing.assert_array_equal(same._decode_jpeg(content), expected)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "options", [{}, {"crop_to_aspect_ratio": True}, {"pad_to_aspect_ratio": True}]
)
def test_all_decoders_give_the_same_bits(
    decoder, options, method, dtype, data_format, tmp_path, rng
):
    for height, width, mode in ((37, 53, "RGB"), (41, 16, "L"), (1, 1, "RGB")):
        path = saved(tmp_path / "a.jpg", photograph(rng, height, width, mode))
        with pil_image.open(path) as img:
            pixels = np.asarray(img.convert("RGB")).astype("uint16")
        expected = resampling.resize_array(pixels, (20, 30), method, **options)
        if dtype == "uint8":
            expected = np.clip(np.rint(expected), 0, 255).astype("uint8")
        if data_format == "channels_first":
            expected = expected.transpose(2, 0, 1)
        own = image_utils.ImageReader((20, 30), "rgb", method, data_format, dtype=dtype, **options)
        assert (own.writer is not None) == (decoder == "core")
        np.testing.assert_array_equal(own(path), expected, strict=True)


def test_the_core_decodes_what_is_a_whole_jpeg_file_and_leaves_the_rest(tmp_path, rng):
    writer = reader().writer
    whole = jpeg_bytes(rng)
    contents = [
        whole,
        *(change(whole) for change in BROKEN.values()),
        whole[: whole.rindex(b"\xff\xd9")],  # lacks its end alone
        whole[:-40] + bytes(38) + whole[-2:],
        b"\xff\xd8\xff",
    ]
    for mode, ending in (("CMYK", "jpeg"), ("RGB", "png")):
        stream = io.BytesIO()
        photograph(rng, 37, 53, mode).save(stream, ending)
        contents.append(stream.getvalue())
    paths = [str(tmp_path / f"{i}.jpg") for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        with open(path, "wb") as file:
            file.write(content)
    paths += [str(tmp_path), str(tmp_path / "none.jpg")]
    images = np.empty((len(paths), *writer.shape), writer.dtype)
    assert writer.write(paths, images) == [True] + [False] * (len(paths) - 1)
    # A decoder goes on after errors.
    again = np.empty_like(images[:2])
    assert writer.write([paths[0], whole], again) == [True, True]
    np.testing.assert_array_equal(again, images[[0, 0]])
    np.testing.assert_array_equal(images[0], reader().image_of(whole, "whole"))


def test_places_in_archives_are_read_while_these_stay_unchanged(tmp_path, rng):
    writer, content = reader().writer, jpeg_bytes(rng)
    path = tmp_path / "shard.tar"
    path.write_bytes(b"beside" + content + b"beside")
    place = tar_index.Place(str(path), "a.jpg", 6, len(content), path.stat().st_mtime_ns)
    images = np.empty((4, *writer.shape), writer.dtype)
    changed = place._replace(changed=place.changed - 1)
    beyond = place._replace(size=place.size + 100)
    assert writer.write([place, changed, beyond, content], images) == [True, False, False, True]
    np.testing.assert_array_equal(images[0], images[3])


def test_the_core_checks_what_it_decodes_by_and_into(rng):
    from PIL import _imaging

    one, two = taps([[0]]), taps([[0], [0]])
    core = _core.JpegReader(_imaging.__file__, 2, 1, 1 << 20, 250)
    content = jpeg_bytes(rng)
    image = np.zeros((1, 2, 1, 3), "uint8")
    assert core.read([content], image, False, 10**6) == [(37, 53)]
    with pytest.raises(ValueError, match="images of the batch are 2 x 1"):
        core.add_plan((37, 53), 1, *one, *one)
    with pytest.raises(ValueError, match="index 0 of rows is outside"):
        core.add_plan((0, 53), 1, *two, *one)
    for denominator in (0, 3):  # libjpeg rounds 1/3 to another size
        with pytest.raises(ValueError, match="must be 1, 2, 4 or 8"):
            core.add_plan((37, 53), denominator, *two, *one)
    core.add_plan((37, 53), 1, *two, *one)
    assert core.read([content], image, False, 37 * 53) == [True]
    assert core.read([content], image, False, 37 * 53 - 1) == [False]
    for wrong in (image[0], image.astype("int8"), np.zeros((2, 2, 1, 3), "uint8")):
        with pytest.raises(ValueError, match="images must be"):
            core.read([content], wrong, False, 10**6)
    image.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match="read-only"):
        core.read([content], image, False, 10**6)
    with pytest.raises(ValueError, match="is not loaded"):
        _core.JpegReader("/no/such/library.so", 2, 1, 0, 0)
    with pytest.raises(ValueError, match="calls no libjpeg"):
        _core.JpegReader(_core.__file__, 2, 1, 0, 0)


@pytest.mark.parametrize("options", [{}, {"crop_to_aspect_ratio": True}])
def test_scaled_decoding_is_close_and_never_enlarges(decoder, options, tmp_path, rng, monkeypatch):
    if decoder == "core":  # plans of other tests are kept
        jpeg_files.writer_of.cache_clear()
    path = saved(tmp_path / "a.jpg", photograph(rng, 410, 640), quality=95)
    sizes = []
    taps_of = resampling.image_taps

    def noted(height, width, *args):
        sizes.append((height, width))
        return taps_of(height, width, *args)

    monkeypatch.setattr(resampling, "image_taps", noted)
    scaled = reader(size=(90, 70), scaled_decoding=True, **options)(path)
    whole = reader(size=(90, 70), **options)(path)
    assert sizes[1] == (410, 640)
    assert 90 <= sizes[0][0] < 410
    assert 70 <= sizes[0][1] < 640
    # Slow changes: what averages and samples of them differ by is a few of 255 steps.
    assert np.abs(scaled - whole).mean() < 3


def test_scaled_decoding_leaves_small_images_alone(tmp_path, rng):
    path = saved(tmp_path / "a.jpg", photograph(rng, 37, 53))
    size = (30, 40)
    np.testing.assert_array_equal(reader(size, scaled_decoding=True)(path), reader(size)(path))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation(orientation, tmp_path, rng):
    img = photograph(rng, 37, 53)
    exif = pil_image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / "a.jpg", img, exif=exif, quality=100, subsampling=0)
    with pil_image.open(path) as stored:
        x = np.asarray(stored).astype("float32")
    turned = {
        1: x,
        2: x[:, ::-1],
        3: x[::-1, ::-1],
        4: x[::-1],
        5: x.transpose(1, 0, 2),
        6: x.transpose(1, 0, 2)[:, ::-1],
        7: x.transpose(1, 0, 2)[::-1, ::-1],
        8: x.transpose(1, 0, 2)[::-1],
    }[orientation]
    np.testing.assert_array_equal(reader(turned.shape[:2], exif_rotation=True)(path), turned)
    np.testing.assert_array_equal(reader(x.shape[:2])(path), x)


def test_scaled_decoding_knows_that_an_image_will_be_turned(tmp_path, rng, monkeypatch):
    exif = pil_image.Exif()
    exif[0x0112] = 6
    path = saved(tmp_path / "a.jpg", photograph(rng, 300, 900), exif=exif)
    sizes = []
    resize = resampling.resize_array
    monkeypatch.setattr(
        resampling, "resize_array", lambda x, *args: sizes.append(x.shape[:2]) or resize(x, *args)
    )
    reader((400, 40), exif_rotation=True, scaled_decoding=True)(path)
    # Turned, it is 900 x 300, of which a half is enough, and a quarter is not.
    assert sizes == [(450, 150)]


def test_large_images_are_left_to_the_limit_of_pillow(tmp_path, rng, monkeypatch):
    path = saved(tmp_path / "a.jpg", photograph(rng, 37, 53))
    monkeypatch.setattr(pil_image, "MAX_IMAGE_PIXELS", 900)  # an error from twice as many on
    with pytest.raises(ValueError, match=r"a\.jpg cannot be read as an image .*exceeds limit"):
        reader()(path)


@pytest.mark.parametrize("ending", ["png", "bmp", "gif", "webp"])
def test_other_formats(ending, tmp_path, rng):
    img = photograph(rng, 12, 14)
    options = {"lossless": True} if ending == "webp" else {}
    path = saved(tmp_path / f"a.{ending}", img, **options)
    with pil_image.open(path) as stored:
        expected = np.asarray(stored.convert("RGB"))
    np.testing.assert_array_equal(reader((12, 14))(path), expected)


# Files that are no good ---------------------------------------------------------------------------


def jpeg_bytes(rng):
    stream = io.BytesIO()
    photograph(rng, 37, 53).save(stream, "jpeg")
    return stream.getvalue()


def claims_65500_pixels(content):
    """The same file, whose frame header says 65,500 x 65,500."""
    place = content.index(b"\xff\xc0") + 5
    return content[:place] + struct.pack(">HH", 65500, 65500) + content[place + 4 :]


def without_a_palette():
    """A PNG file of colors by numbers, one of them transparent, that lacks the table of them."""
    stream = io.BytesIO()
    pil_image.new("P", (4, 4)).save(stream, "png", transparency=0)
    content = stream.getvalue()
    place = content.index(b"PLTE") - 4
    length = int.from_bytes(content[place : place + 4], "big")
    return content[:place] + content[place + 12 + length :]


BROKEN = {
    "empty": lambda jpeg: b"",
    "no image": lambda jpeg: b"these are words",
    "cut short": lambda jpeg: jpeg[: len(jpeg) // 2],
    "header only": lambda jpeg: jpeg[:20],
    "bomb": claims_65500_pixels,
    "no palette": lambda _: without_a_palette(),
}


@pytest.fixture
def folder(tmp_path, rng):
    """Ten readable images of two classes, and one broken file of each kind."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "whole").mkdir()
    for i in range(5):
        for name in ("broken", "whole"):
            saved(tmp_path / name / f"{i}.jpg", photograph(rng, 20 + i, 30))
    for name, change in BROKEN.items():
        (tmp_path / "broken" / f"{name}.jpg").write_bytes(change(jpeg_bytes(rng)))
    return tmp_path


def in_batches(folder, **options):
    arguments = {"image_size": 8, "batch_size": 8, "shuffle": False, "verbose": False, **options}
    return utils.image_dataset_from_directory(folder, **arguments)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_named(kind, tmp_path, rng):
    path = tmp_path / "broken.jpg"
    path.write_bytes(BROKEN[kind](jpeg_bytes(rng)))
    with pytest.raises(ValueError, match=r"broken\.jpg cannot be read as an image") as caught:
        reader()(str(path))
    assert "0x" not in str(caught.value)


def test_skipped_files_are_counted(folder):
    dataset = in_batches(folder, on_error="skip")
    assert dataset.skipped_files == {}
    with pytest.warns(UserWarning, match="Left out: .* cannot be read"):
        labels = np.concatenate([labels for _, labels in dataset])
    assert labels.tolist() == [0] * 5 + [1] * 5
    names = {path.rsplit("/", 1)[1].removesuffix(".jpg") for path in dataset.skipped_files}
    assert names == set(BROKEN)
    for path, reason in dataset.skipped_files.items():
        assert path in reason
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the second pass says nothing new
        assert sum(len(labels) for _, labels in dataset) == 10


def test_training_goes_on_past_broken_files(folder, device):
    with kerascnn.device(device):
        model = kerascnn.Sequential(
            [kerascnn.Input((8, 8, 3)), kerascnn.layers.Flatten(), kerascnn.layers.Dense(2)]
        )
        model.compile("sgd", kerascnn.losses.SparseCategoricalCrossentropy(from_logits=True))
        with pytest.warns(UserWarning, match="Left out"):
            history = model.fit(in_batches(folder, on_error="skip"), verbose=0)
        assert len(history.history["loss"]) == 1


def test_a_batch_of_broken_files_is_an_error(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(b"nothing")
    dataset = in_batches(tmp_path, labels=None, label_mode=None, on_error="skip")
    with (
        pytest.warns(UserWarning, match="Left out"),
        pytest.raises(ValueError, match=r"None of the 3 files of a batch.*0\.png"),
    ):
        list(dataset)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_error": "ignore"}, "`on_error` must be"),
        ({"on_error": "skip", "batch_size": None}, "Give a `batch_size`"),
    ],
)
def test_wrong_arguments(options, words, folder):
    with pytest.raises(ValueError, match=words):
        in_batches(folder, **options)


@pytest.mark.parametrize("label_mode", ["int", "categorical", None])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_without_rows_are_like_others(label_mode, workers, folder, decoder):
    """What a process makes that has no sample of a batch."""
    for path in (folder / "broken").iterdir():
        if path.stem in BROKEN:
            path.unlink()
    dataset = in_batches(folder, label_mode=label_mode)._like(workers=workers)
    whole = list(dataset._begin_own(lambda size: slice(0, size), 0))
    without = list(dataset._begin_own(lambda size: slice(size, size), 0))
    assert [size for _, size in without] == [size for _, size in whole] == [8, 2]
    for (batch, _), (empty, _) in zip(whole, without, strict=True):
        pairs = zip(*map(kerascnn.tree.flatten, (batch, empty)), strict=True)
        for x, nothing in pairs:
            assert nothing.shape == (0, *x.shape[1:])
            assert nothing.dtype == x.dtype


def test_processes_that_share_batches_cannot_skip(folder):
    dataset = in_batches(folder, on_error="skip")
    with pytest.raises(ValueError, match="several processes share batches"):
        next(dataset._begin_own(lambda size: slice(0, size), 0))
