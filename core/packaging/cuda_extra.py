"""What the extra `cuda13` brings, which depends on where the CUDA backend of this build is.

pyproject.toml names this module among its dynamic metadata. With KERASCNN_CUDA=ON the backend is
compiled into the package, and the extra brings the CUDA libraries that it loads. Otherwise it
brings the backend too, as the package kerascnn-cuda13 of the same version, which requires the
libraries itself.
"""

import os
import re


def dynamic_metadata(settings, project):
    if re.fullmatch("ON|on|On|1|true|TRUE", os.environ.get("KERASCNN_CUDA", "")):
        requirements = list(settings["libraries"])
    else:
        requirements = [f"kerascnn-cuda13=={project['version']}"]
    marker = "platform_system == 'Linux'"
    return {"optional-dependencies": {"cuda13": [f"{r}; {marker}" for r in requirements]}}


def dynamic_wheel(settings):
    """Says that a wheel's extra may differ from that of its source distribution."""
    return {"optional-dependencies": True}
