"""Data sets: which elements they give, in which order, and how often."""

import threading

import numpy as np
import pytest

import kerascnn
from kerascnn.data import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
    TensorSpec,
)


def numbers(dataset):
    return [int(x) for x in dataset]


def counted(n):
    """Returns the numbers below n from a source that has no access by index."""
    return Dataset.from_generator(lambda: (np.int64(i) for i in range(n)))


SOURCES = [Dataset.range, counted]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("count", [-1, 0, 1, 4, 7, 9])
def test_take_and_skip(source, n, count):
    values = list(range(n))
    assert numbers(source(n).take(count)) == (values if count < 0 else values[:count])
    assert numbers(source(n).skip(count)) == ([] if count < 0 else values[count:])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("n", [0, 5, 12, 13])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_batches_and_their_rows(source, n, drop_remainder):
    batches = source(n).batch(4, drop_remainder)
    found = [batch.tolist() for batch in batches]
    expected = [list(range(i, min(i + 4, n))) for i in range(0, n, 4)]
    assert found == [b for b in expected if len(b) == 4 or not drop_remainder]
    kept = n - n % 4 if drop_remainder else n
    assert numbers(batches.unbatch()) == list(range(kept))
    assert numbers(batches.rebatch(3).unbatch()) == list(range(kept))


@pytest.mark.parametrize("source", SOURCES)
def test_map_filter_enumerate_concatenate_repeat_shard_reduce(source):
    dataset = source(6)
    assert numbers(dataset.map(lambda x: x * 2)) == [0, 2, 4, 6, 8, 10]
    assert numbers(dataset.filter(lambda x: x % 2 == 1)) == [1, 3, 5]
    pairs = dataset.enumerate(start=3).map(lambda i, x: i - x)
    assert numbers(pairs) == [3] * 6
    assert numbers(dataset.concatenate(source(2))) == [0, 1, 2, 3, 4, 5, 0, 1]
    assert numbers(dataset.repeat(2)) == list(range(6)) * 2
    assert numbers(dataset.repeat().take(8)) == [0, 1, 2, 3, 4, 5, 0, 1]
    assert [numbers(dataset.shard(4, i)) for i in range(4)] == [[0, 4], [1, 5], [2], [3]]
    assert int(dataset.reduce(np.int64(1), lambda state, x: state + x)) == 16
    assert numbers(dataset.apply(lambda d: d.take(2))) == [0, 1]
    assert int(dataset.skip(5).get_single_element()) == 5
    assert numbers(source(0).repeat()) == []
    with pytest.raises(ValueError, match="exactly one"):
        dataset.get_single_element()


@pytest.mark.parametrize("calls", [None, 1, 3, AUTOTUNE])
def test_order_with_several_threads(calls):
    dataset = counted(40).map(lambda x: x + 1, num_parallel_calls=calls).prefetch(AUTOTUNE)
    assert numbers(dataset) == list(range(1, 41))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("window", [1, 3, 20, 50, None])
def test_shuffle(source, window):
    n = 20
    dataset = source(n).shuffle(window, seed=5)
    passes = [numbers(dataset) for _ in range(4)]
    assert all(sorted(found) == list(range(n)) for found in passes)
    for found in passes:
        # An element cannot come before the window of the shuffle has reached it.
        assert all(x - i < (window or n) for i, x in enumerate(found))
    again = source(n).shuffle(window, seed=5)
    assert [numbers(again) for _ in range(4)] == passes
    if window == 1:
        assert passes[0] == list(range(n))
    else:
        assert len(set(map(tuple, passes))) > 1
        fixed = source(n).shuffle(window, seed=5, reshuffle_each_iteration=False)
        assert numbers(fixed) == numbers(fixed) != list(range(n))


def test_shuffle_without_a_seed_follows_the_programs():
    def order():
        kerascnn.utils.set_random_seed(3)
        return numbers(counted(30).shuffle(30))

    assert order() == order()


def test_cache_keeps_the_first_whole_pass():
    calls = []

    def note(x):
        calls.append(int(x))
        return x

    dataset = Dataset.range(4).map(note).cache()
    assert numbers(dataset.take(2)) == [0, 1]
    assert numbers(dataset) == numbers(dataset) == [0, 1, 2, 3]
    assert calls == [0, 1, 0, 1, 2, 3]
    shuffled = Dataset.range(9).shuffle(9, seed=1).cache()
    assert numbers(shuffled) == numbers(shuffled)


def test_zip():
    a, b = Dataset.range(3), counted(5)
    assert [(int(x), int(y)) for x, y in Dataset.zip(a, b)] == [(0, 0), (1, 1), (2, 2)]
    assert [(int(x), int(y)) for x, y in Dataset.zip((a, b))] == [(0, 0), (1, 1), (2, 2)]
    named = list(Dataset.zip({"one": a, "two": (a, a.skip(2))}))
    assert [(int(e["one"]), int(e["two"][1])) for e in named] == [(0, 2)]
    with pytest.raises(TypeError, match="takes data sets"):
        Dataset.zip(a, [1])


@pytest.mark.parametrize(
    ("dataset", "count"),
    [
        (Dataset.range(7), 7),
        (counted(7), UNKNOWN_CARDINALITY),
        (Dataset.range(7).take(3), 3),
        (Dataset.range(7).take(-1), 7),
        (Dataset.range(7).skip(3), 4),
        (Dataset.range(7).skip(9), 0),
        (Dataset.range(7).filter(lambda x: True), UNKNOWN_CARDINALITY),
        (Dataset.range(7).batch(3), 3),
        (Dataset.range(7).batch(3, drop_remainder=True), 2),
        (Dataset.range(7).batch(3).unbatch(), 7),
        (Dataset.range(7).map(lambda x: x).batch(3).unbatch(), UNKNOWN_CARDINALITY),
        (Dataset.range(7).shuffle(3).cache().prefetch(2), 7),
        (Dataset.range(7).repeat(3), 21),
        (Dataset.range(7).repeat(), INFINITE_CARDINALITY),
        (Dataset.range(7).repeat().take(30), 30),
        (Dataset.range(7).repeat().batch(3), INFINITE_CARDINALITY),
        (Dataset.range(7).enumerate().concatenate(Dataset.range(2).enumerate()), 9),
        (Dataset.range(7).concatenate(counted(2)), UNKNOWN_CARDINALITY),
        (Dataset.zip(Dataset.range(7), Dataset.range(2).repeat()), 7),
        (Dataset.zip(Dataset.range(7), counted(2)), UNKNOWN_CARDINALITY),
        (Dataset.range(7).shard(3, 0), 3),
        (Dataset.range(7).shard(3, 1), 2),
        (Dataset.from_tensors(np.ones(3)), 1),
    ],
)
def test_cardinality(dataset, count):
    assert dataset.cardinality() == count
    assert bool(dataset)
    words = {INFINITE_CARDINALITY: "endless", UNKNOWN_CARDINALITY: "unknown"}
    assert repr(dataset) == f"<keras.data.Dataset, number of elements: {words.get(count, count)}>"
    if count >= 0:
        assert len(dataset) == count == len(list(dataset))
    else:
        with pytest.raises(TypeError, match="length of this data set"):
            len(dataset)


def test_element_spec():
    x, names = np.ones((6, 2, 3), "float32"), ["a", "b", "c", "d", "e", "f"]
    dataset = Dataset.from_tensor_slices({"x": x, "name": names})
    assert dataset.element_spec == {
        "x": TensorSpec((2, 3), "float32"),
        "name": TensorSpec((), "string"),
    }
    batched = TensorSpec((None, 2, 3), "float32")
    assert dataset.batch(4).shuffle(3).repeat().element_spec["x"] == batched
    assert dataset.batch(4, drop_remainder=True).element_spec["name"] == TensorSpec((4,), "string")
    assert dataset.map(lambda e: e["x"]).batch(2).unbatch().element_spec.shape == (2, 3)
    halved = dataset.batch(4).map(lambda e: (e["x"][..., 0], len(e["name"])))
    assert halved.element_spec[0] == TensorSpec((None, 2), "float32")
    first, second = dataset.enumerate().element_spec
    assert (first, second["x"].shape) == (TensorSpec((), "int64"), (2, 3))
    joined = Dataset.from_tensors(np.ones((2, 3))).concatenate(
        Dataset.from_tensors(np.ones((4, 3)))
    )
    assert joined.element_spec == TensorSpec((None, 3), "float64")
    with pytest.raises(ValueError, match="empty"):
        _ = counted(0).element_spec


def test_elements_of_arrays_lists_and_text(rng):
    x, y = rng.normal(size=(5, 2)), rng.integers(0, 3, 5)
    for i, (a, b) in enumerate(Dataset.from_tensor_slices((x, y))):
        np.testing.assert_array_equal(a, x[i])
        assert b == y[i]
    (batch,) = Dataset.from_tensor_slices({"t": ["a", "bcd"]}).batch(5)
    assert batch["t"].dtype == object
    assert batch["t"].tolist() == ["a", "bcd"]
    assert next(iter(Dataset.from_tensor_slices([1.5, 2.5]))).dtype == np.float32
    with pytest.raises(ValueError, match="same length"):
        Dataset.from_tensor_slices((x, y[:3]))
    with pytest.raises(ValueError, match="axis of samples"):
        Dataset.from_tensor_slices(np.float32(3))
    with pytest.raises(TypeError, match="pad_sequences"):
        Dataset.from_tensor_slices([[1], [2, 3]])


def test_arrays_that_iterating_gives_have_the_method_of_tensorflows_tensors():
    x, y = np.arange(12.0, dtype="float32").reshape(6, 2), np.arange(6)
    dataset = Dataset.from_tensor_slices({"x": x, "y": y}).batch(3)
    for step, batch in enumerate(dataset):
        images = batch["x"]
        assert type(images.numpy()) is np.ndarray
        assert np.shares_memory(images.numpy(), images)
        np.testing.assert_array_equal(images[1].numpy(), x[3 * step + 1])
        np.testing.assert_array_equal((images / 2).numpy().astype("uint8"), images // 2)
        assert repr(batch["y"]) == repr(y[3 * step : 3 * step + 3])
        label = batch["y"][2]
        assert label.numpy() == 3 * step + 2
        assert (["a"] * 6 + ["b"])[label + 1] == "ab"[step]
        assert {2: "first", 5: "second"}[label] == ("first", "second")[step]
        assert f"{label:03d} {label / 4:.2f}" == ("002 0.50", "005 1.25")[step]
        with pytest.raises(TypeError, match=r"shape \(3,\) cannot be a key"):
            hash(batch["y"])
    assert [str(label.numpy()) for label in Dataset.range(2)] == ["0", "1"]
    # What computes with elements gets NumPy's own class.
    kinds = []
    dataset = dataset.map(lambda batch: kinds.append(type(batch["x"])) or batch["x"])
    for batch in dataset.batch(2).as_numpy_iterator():
        kinds.append(type(batch))
    assert kinds == [np.ndarray] * 3


def test_padded_batch():
    rows = [np.arange(n, dtype="int32") for n in (1, 3, 2)]
    dataset = Dataset.from_generator(lambda: iter((row, str(len(row))) for row in rows))
    ((padded, names),) = dataset.padded_batch(4)
    assert padded.tolist() == [[0, 0, 0], [0, 1, 2], [0, 1, 0]]
    assert padded.dtype == np.int32
    assert names.tolist() == ["1", "3", "2"]
    ((padded, _),) = dataset.padded_batch(4, ([4], []), (-1, ""))
    assert padded.tolist() == [[0, -1, -1, -1], [0, 1, 2, -1], [0, 1, -1, -1]]
    with pytest.raises(ValueError, match="larger than"):
        list(dataset.padded_batch(4, ([2], [])))
    with pytest.raises(ValueError, match="padded_batch"):
        list(dataset.batch(4))


def test_errors_come_through_threads():
    def fail(x):
        if x == 3:
            raise RuntimeError("the third")
        return x

    for dataset in (
        counted(5).map(fail).prefetch(2),
        counted(5).map(fail, num_parallel_calls=2).shuffle(2).batch(2),
    ):
        with pytest.raises(RuntimeError, match="the third"):
            list(dataset)


def test_a_pass_that_is_left_ends_what_runs_for_it():
    before = set(threading.enumerate())
    ended = []

    def source():
        try:
            yield from range(1000)
        finally:
            ended.append(True)

    dataset = Dataset.from_generator(source).map(lambda x: x, num_parallel_calls=3).prefetch(4)
    for _ in range(3):
        assert [int(x) for x in dataset.take(2)] == [0, 1]
    assert len(ended) == 3
    assert set(threading.enumerate()) <= before
    iterator = iter(dataset)
    next(iterator)
    iterator.close()
    assert len(ended) == 4
    assert set(threading.enumerate()) <= before


def test_threads_compute_where_the_caller_does():
    with kerascnn.device("cpu"):
        dataset = counted(3).map(kerascnn.ops.square, num_parallel_calls=2).prefetch(1)
        assert [x.device for x in dataset] == ["cpu"] * 3
        assert [type(x) for x in dataset.as_numpy_iterator()] == [np.ndarray] * 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda d: d.batch(0), "batch_size"),
        (lambda d: d.shuffle(0), "buffer_size"),
        (lambda d: d.shard(2, 2), "index must be"),
        (lambda d: list(d.unbatch()), "axis of samples"),
    ],
)
def test_wrong_arguments(call, words):
    with pytest.raises(ValueError, match=words):
        call(Dataset.range(3))
    with pytest.raises(TypeError, match="function"):
        Dataset.from_generator([1, 2])
