"""What the examples share: the command line, data sets, and trainings that are repeated."""

import argparse
import os
import statistics
import sys

import numpy as np

import kerascnn as keras

MNIST_DATA = "folder with MNIST's four IDX files, or an .npz file"
CIFAR10_DATA = "folder with CIFAR-10's batch files, or a .tar.gz archive with them"


def make_parser(description, batch_size, epochs=6, data=MNIST_DATA):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", help=data)
    parser.add_argument("--device", help="cpu, gpu or gpu:1; default the first usable GPU")
    parser.add_argument("--epochs", type=type(epochs), default=epochs, help=f"default {epochs}")
    parser.add_argument("--batch-size", type=int, default=batch_size, help=f"default {batch_size}")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same result; default 0")
    return parser


def set_up(args):
    """Chooses the device and the random numbers. Call it before building a model."""
    if args.device:
        try:
            keras.config.set_device(args.device)
        except (keras.DeviceError, ValueError) as error:
            stop("--device", error)
    keras.utils.set_random_seed(args.seed)


def use_bfloat16_on_gpus():
    """Lets layers compute in bfloat16 on a GPU. On a CPU float32 is as fast, and has all digits."""
    if keras.config.get_device() != "cpu":
        keras.config.set_dtype_policy("mixed_bfloat16")


def stop(option, error):
    """Ends the program as argparse does for a wrong command line: one line, exit status 2."""
    print(f"{sys.argv[0]}: {option}: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)


# Data ---------------------------------------------------------------------------------------------


def load_mnist(data=None):
    """MNIST with the channel axis that convolutions expect: images of shape (28, 28, 1)."""
    mnist = keras.datasets.mnist
    try:
        return with_channels(mnist.load_data(data) if data else mnist.load_data())
    except (OSError, ValueError) as error:
        stop("--data", error)


def find_mnist(data=None):
    """The same, or None, with a line that says why, where nobody named a copy and none is had."""
    if data or os.environ.get("KERASCNN_MNIST"):
        return load_mnist(data)
    try:
        return with_channels(keras.datasets.mnist.load_data())
    except (OSError, ValueError) as error:  # no network, no right to write, another content
        print(error)
        return None


def with_channels(arrays):
    (x_train, y_train), (x_test, y_test) = arrays
    return (x_train[..., None], y_train), (x_test[..., None], y_test)


def load_cifar10(data=None):
    """CIFAR-10 as `keras.datasets.cifar10.load_data` gives it: labels of shape (n, 1)."""
    cifar10 = keras.datasets.cifar10
    try:
        return cifar10.load_data(data) if data else cifar10.load_data()
    except (OSError, ValueError) as error:
        stop("--data", error)


# Trainings that are repeated ----------------------------------------------------------------------


class FreshStart:
    """Puts a model back to new weights, so that many trainings share what was compiled once.

    Args:
        model: A compiled model.
        build: Builds another one like it. Only its weights are used.
    """

    def __init__(self, model, build):
        self._model, self._build = model, build
        model.optimizer.build(model.trainable_variables)
        self._untouched = [variable.numpy() for variable in model.optimizer.variables]

    def __call__(self, seed):
        keras.utils.set_random_seed(seed)
        # The step that is compiled belongs to this model's variables: only their values are new.
        self._model.set_weights(self._build().get_weights())
        for variable, value in zip(self._model.optimizer.variables, self._untouched, strict=True):
            variable.assign(value)


def accuracy_of(predicted, labels):
    """The share of rows whose largest value is at the right place."""
    return float(np.mean(np.argmax(predicted, axis=1) == np.ravel(labels)))


def spread(values, form):
    low, high = min(values), max(values)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return (
        f"mean {statistics.mean(values):{form}}, standard deviation {deviation:{form}}, "
        f"from {low:{form}} to {high:{form}}"
    )


def make_speedrun_parser(description, **defaults):
    parser = make_parser(description, **defaults)
    parser.add_argument("--seeds", type=int, default=20, help="how many trainings; default 20")
    return parser


def parse_speedrun_arguments(parser):
    args = parser.parse_args()
    if min(args.seeds, args.epochs, args.batch_size) < 1:
        parser.error("--seeds, --epochs and --batch-size must be at least 1")
    set_up(args)
    return args


def report(args, accuracies, seconds, wanted):
    """Prints what trainings from several seeds reached, and how long they took."""
    reached = sum(accuracy >= wanted for accuracy in accuracies)
    print(f"{args.seeds} trainings of {args.epochs:g} epochs on {keras.config.get_device()}")
    print(f"Test accuracy: {spread(accuracies, '.4f')}; {reached} of {args.seeds} reached {wanted}")
    print(f"Seconds: {spread(seconds, '.4f')}")
