"""split_dataset has Keras' sizes and errors, and fit takes the parts."""

import numpy as np
import pytest

import kerascnn
from kerascnn.utils import split_dataset

X, Y = np.arange(30.0).reshape(10, 3).astype("float32"), np.arange(10)


@pytest.mark.parametrize(
    "sizes", [(0.8, None), (None, 0.35), (4, None), (None, 3), (0.5, 0.25), (3, 4), (0.5, 2)]
)
def test_sizes_are_those_of_keras(sizes):
    keras = pytest.importorskip("keras")
    ours = split_dataset((X, Y), *sizes)
    # If both sizes are given, PyTorch's own split wants them to cover all samples.
    if None in sizes:
        theirs = keras.utils.split_dataset((X, Y), *sizes)
        assert [len(part) for part in ours] == [len(part) for part in theirs]
    left, right = ours
    assert [sample[1] for sample in left] == list(range(len(left)))
    assert [sample[1] for sample in right] == list(range(10 - len(right), 10))
    np.testing.assert_array_equal(left[1][0], X[1])


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ValueError),
        ({"left_size": 0}, ValueError),
        ({"left_size": 10}, ValueError),
        ({"left_size": 1.0}, ValueError),
        ({"right_size": -0.1}, ValueError),
        ({"left_size": "a"}, TypeError),
        ({"right_size": [1]}, TypeError),
        ({"left_size": 0.7, "right_size": 0.7}, ValueError),
        ({"left_size": 7, "right_size": 7}, ValueError),
    ],
)
def test_errors_are_of_the_classes_of_keras(arguments, error):
    keras = pytest.importorskip("keras")
    for library in (keras, kerascnn):
        with pytest.raises(error):
            library.utils.split_dataset((X, Y), **arguments)


def test_other_data_sets():
    with pytest.raises(TypeError, match="Received: int"):
        split_dataset(7, left_size=0.5)
    with pytest.raises(ValueError, match=r"same length.*\[10, 9\]"):
        split_dataset([X, Y[:9]], left_size=0.5)
    data = pytest.importorskip("torch.utils.data")
    torch = pytest.importorskip("torch")
    left, _ = split_dataset(data.TensorDataset(torch.tensor(X), torch.tensor(Y)), left_size=0.5)
    batch = left.batch(4)[1]
    np.testing.assert_array_equal(batch[0], X[4:5])
    np.testing.assert_array_equal(batch[1], Y[4:5])


def test_shuffled_parts_have_every_sample_once_and_repeat_with_the_seed():
    parts = [split_dataset((X, Y), left_size=6, shuffle=True, seed=s) for s in (1, 1, 2)]
    orders = [[int(sample[1]) for part in both for sample in part] for both in parts]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(10))


def test_batches_of_parts_train_and_validate():
    left, right = split_dataset((X, X[:, :1] * 2), left_size=0.6)
    model = kerascnn.Sequential([kerascnn.Input((3,)), kerascnn.layers.Dense(1)])
    model.compile(kerascnn.optimizers.SGD(1e-4), "mse")
    start = model.get_weights()
    own = model.fit(left.batch(4), validation_data=right.batch(4), shuffle=False, verbose=0)
    model.set_weights(start)
    options = {"batch_size": 4, "shuffle": False, "verbose": 0}
    held_out = (X[6:], X[6:, :1] * 2)
    expected = model.fit(X[:6], X[:6, :1] * 2, validation_data=held_out, **options)
    assert own.history == expected.history
