"""What the examples share: the command line and the MNIST arrays."""

import argparse
import os
import sys

import kerascnn as keras


def make_parser(description, batch_size):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", help="folder with MNIST's four IDX files, or an .npz file")
    parser.add_argument("--device", help="cpu, gpu or gpu:1; default the first usable GPU")
    parser.add_argument("--epochs", type=int, default=6, help="default 6")
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


def stop(option, error):
    """Ends the program as argparse does for a wrong command line: one line, exit status 2."""
    print(f"{sys.argv[0]}: {option}: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)


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
