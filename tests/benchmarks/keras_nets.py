"""The reference networks in Keras' API. The library, kerascnn or Keras, is an argument."""

import time

from nets import CLASSES, IMAGE_SIZE, NETS, Case


def build(keras, case: Case, scaled: bool):
    """Returns the compiled model; with `scaled` it takes uint8 images and scales them itself."""
    net, layers = NETS[case.net], keras.layers
    stack = [keras.Input((IMAGE_SIZE, IMAGE_SIZE, 1))]
    if scaled:
        stack.append(layers.Rescaling(1 / 255))
    more = {"use_bias": net.bias, "kernel_initializer": net.initializer}
    for filters, size, padding in net.convolutions:
        stack.append(layers.Conv2D(filters, size, padding=padding, activation="relu", **more))
        stack.append(layers.MaxPooling2D())
    stack.append(layers.Flatten())
    if net.dropout:
        stack.append(layers.Dropout(net.dropout))
    stack += [layers.Dense(units, activation="relu", **more) for units in net.hidden]
    stack.append(layers.Dense(CLASSES, activation="softmax", **more))
    model = keras.Sequential(stack)
    optimizer = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam}[net.optimizer]
    model.compile(
        optimizer(net.learning_rate), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def epoch_times(keras, clock=time.perf_counter):
    class EpochTimes(keras.callbacks.Callback):
        """Notes the milliseconds of each epoch; logs exist then, so the device has finished it."""

        def __init__(self):
            super().__init__()
            self.milliseconds = []

        def on_epoch_begin(self, epoch, logs=None):
            self._start = clock()

        def on_epoch_end(self, epoch, logs=None):
            self.milliseconds.append((clock() - self._start) * 1e3)

    return EpochTimes()
