"""Recognizes the photographs of CIFAR-10, of 10 kinds, with ResNet-18.

    python examples/cifar10_resnet.py --data FOLDER

The network is that of He et al., "Deep Residual Learning for Image Recognition", 2015, in the form
for small images: it begins with a 3 x 3 convolution and has no pooling behind it. The images are
moved, mirrored and partly erased on the device, as part of each step. On a GPU it computes in
bfloat16, with weights in float32.
"""

import time

from common import CIFAR10_DATA, load_cifar10, make_parser, set_up, use_bfloat16_on_gpus

import kerascnn as keras
from kerascnn import layers

# Filters of each stage, which has two blocks.
STAGES = (64, 128, 256, 512)
LEARNING_RATE = 0.4  # of a batch of 500
MOMENTUM = 0.9
# `SGD` takes this times the learning rate from each weight. In the update of frameworks where the
# decay goes through the momentum, the same is written as a tenth of it.
WEIGHT_DECAY = 5e-3
LABEL_SMOOTHING = 0.1


def augment(x):
    """Moves each image by up to 4 pixels, with gray coming in, and mirrors half of them.

    In half of them a rectangle of up to a quarter of the image turns gray (Zhong et al., "Random
    Erasing Data Augmentation", 2017).
    """
    x = layers.RandomTranslation(4.5 / 32, 4.5 / 32, fill_mode="constant", interpolation="nearest")(
        x
    )
    x = layers.RandomFlip("horizontal")(x)
    return layers.RandomErasing(0.5, scale=(0.02, 0.25), fill_value=0.0, value_range=(-1, 1))(x)


def convolve(x, filters, size=3, strides=1):
    x = layers.Conv2D(
        filters, size, strides, padding="same", use_bias=False, kernel_initializer="he_normal"
    )(x)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)


def block(x, filters, strides):
    """Two convolutions, and a shortcut around them."""
    shortcut = x
    if strides > 1 or x.shape[-1] != filters:
        shortcut = convolve(x, filters, 1, strides)
    x = layers.Activation("relu")(convolve(x, filters, 3, strides))
    x = convolve(x, filters)
    return layers.Activation("relu")(layers.Add()([x, shortcut]))


def resnet18(stages=STAGES):
    images = keras.Input((32, 32, 3), dtype="uint8")
    x = augment(layers.Rescaling(1 / 127.5, offset=-1)(images))
    x = layers.Activation("relu")(convolve(x, stages[0]))
    for stage, filters in enumerate(stages):
        x = block(x, filters, strides=2 if stage else 1)
        x = block(x, filters, strides=1)
    x = layers.GlobalAveragePooling2D()(x)
    # The loss is computed in float32, from logits of float32.
    return keras.Model(images, layers.Dense(10, dtype="float32")(x), name="resnet18")


def make_optimizer(steps, batch_size):
    """SGD whose learning rate rises for a fifth of the training, then falls along a cosine."""
    peak = LEARNING_RATE * batch_size / 500
    rise = steps // 5
    rate = keras.optimizers.schedules.CosineDecay(
        peak / 100, steps - rise, warmup_target=peak, warmup_steps=rise
    )
    optimizer = keras.optimizers.SGD(
        rate, momentum=MOMENTUM, nesterov=True, weight_decay=WEIGHT_DECAY
    )
    optimizer.exclude_from_weight_decay(var_names=["gamma", "beta", "bias"])
    return optimizer


def main():
    parser = make_parser(__doc__.splitlines()[0], batch_size=500, epochs=60, data=CIFAR10_DATA)
    args = parser.parse_args()
    set_up(args)
    use_bfloat16_on_gpus()
    (x_train, y_train), (x_test, y_test) = load_cifar10(args.data)
    # Labels are smoothed, so they are shares of classes.
    y_train, y_test = (keras.utils.to_categorical(labels, 10) for labels in (y_train, y_test))

    model = resnet18()
    model.compile(
        make_optimizer(args.epochs * -(-len(x_train) // args.batch_size), args.batch_size),
        keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=LABEL_SMOOTHING),
        metrics=["accuracy"],
    )
    start = time.perf_counter()
    model.fit(x_train, y_train, batch_size=args.batch_size, epochs=args.epochs, verbose=2)
    seconds = time.perf_counter() - start
    loss, accuracy = model.evaluate(x_test, y_test, batch_size=1000, verbose=0)
    device = keras.config.get_device()
    print(f"{args.epochs} epochs in {seconds:.1f} s on {device}, with all compilation")
    print(f"Test loss {loss:.4f}, test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
