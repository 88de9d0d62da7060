"""Random layers with arguments that cover their code paths."""

# Keras reads a factor as (lower, upper). Every pair here has room on both sides.
CASES = [
    ("RandomFlip", {}),
    ("RandomFlip", {"mode": "horizontal"}),
    ("RandomFlip", {"mode": "vertical"}),
    ("RandomCrop", {"height": 5, "width": 7}),
    ("RandomCrop", {"height": 12, "width": 7}),
    ("RandomCrop", {"height": 10, "width": 20}),
    ("RandomTranslation", {"height_factor": 0.5, "width_factor": (-0.2, 0.4)}),
    ("RandomTranslation", {"height_factor": 1.0, "width_factor": 1.0, "fill_mode": "wrap"}),
    (
        "RandomTranslation",
        {
            "height_factor": 0.5,
            "width_factor": 0.3,
            "fill_mode": "constant",
            "fill_value": 9.0,
            "interpolation": "nearest",
        },
    ),
    ("RandomRotation", {"factor": 0.5}),
    ("RandomRotation", {"factor": (-0.1, 0.3), "fill_mode": "constant", "fill_value": 5.0}),
    ("RandomRotation", {"factor": 1.0, "fill_mode": "nearest", "interpolation": "nearest"}),
    ("RandomZoom", {"height_factor": 0.5}),
    ("RandomZoom", {"height_factor": (-0.5, 1.0), "width_factor": 0.9, "fill_mode": "wrap"}),
    ("RandomZoom", {"height_factor": 0.9, "fill_mode": "constant", "interpolation": "nearest"}),
    ("RandomContrast", {"factor": 0.8}),
    ("RandomContrast", {"factor": (0.9, 0.2), "value_range": (20, 200)}),
    ("RandomBrightness", {"factor": 0.4}),
    ("RandomBrightness", {"factor": (-1.0, 0.5), "value_range": (255, 0)}),
    ("RandomErasing", {"fill_value": 3.0}),
    ("RandomErasing", {"factor": (0.2, 0.9), "scale": (0.1, 0.8)}),
    ("RandomErasing", {"factor": 1.0, "scale": 0.9, "fill_value": [1, 300, -4]}),
    ("RandomShear", {"x_factor": 0.4, "y_factor": (0.1, 0.3)}),
    ("RandomShear", {"x_factor": 0.9, "fill_mode": "constant", "fill_value": 9.0}),
    ("RandomShear", {"y_factor": 0.9, "fill_mode": "wrap", "interpolation": "nearest"}),
    ("RandomPerspective", {}),
    ("RandomPerspective", {"factor": (0.2, 0.9), "scale": 0.5, "fill_value": 7.0}),
    ("RandomPerspective", {"scale": 0.3, "interpolation": "nearest"}),
    ("RandomColorDegeneration", {"factor": 0.8}),
    ("RandomColorDegeneration", {"factor": (0.5, 1.0), "value_range": (200, 50)}),
    ("RandomGrayscale", {"factor": 0.7}),
    ("RandomInvert", {}),
    ("RandomInvert", {"factor": (0.3, 0.9), "value_range": (0, 100)}),
    ("RandomHue", {"factor": 1.0}),
    ("RandomHue", {"factor": (0.1, 0.4), "value_range": (-20, 300)}),
    ("RandomSaturation", {"factor": 0.9}),
    ("RandomSaturation", {"factor": (0.2, 0.7), "value_range": (1, 0)}),
    ("RandomSharpness", {"factor": 1.0}),
    ("RandomSharpness", {"factor": (0.1, 0.4), "value_range": (200, 20)}),
    ("RandomGaussianBlur", {}),
    ("RandomGaussianBlur", {"factor": (0.2, 0.9), "kernel_size": 5, "sigma": (0.5, 1.0)}),
    ("RandomPosterization", {"factor": 8}),
    ("RandomPosterization", {"factor": (3, 3), "value_range": (300, -20)}),
    ("Solarization", {}),
    ("Solarization", {"addition_factor": 0.5, "threshold_factor": (0.2, 0.9)}),
    ("Solarization", {"addition_factor": (0.1, 1.0), "value_range": (400, -100)}),
]
IDS = [f"{name}-{','.join(f'{k}={v}' for k, v in a.items())}" for name, a in CASES]
# Keras' layer repeats its masks along the channel axis, but its list along the last one.
LAST_ONLY = {"fill_value": [1, 300, -4]}

# These layers change values only, so they leave masks as they are.
VALUES_ONLY = {
    "RandomBrightness",
    "RandomColorDegeneration",
    "RandomContrast",
    "RandomErasing",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHue",
    "RandomInvert",
    "RandomPosterization",
    "RandomSaturation",
    "RandomSharpness",
    "Solarization",
}

# In these cases there is nothing to draw.
CONSTANT = [
    ("Solarization", {}),
    CASES[IDS.index("RandomPosterization-factor=(3, 3),value_range=(300, -20)")],
]
