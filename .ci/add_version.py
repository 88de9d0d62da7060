"""Puts a built documentation site beside those of other versions, in what GitHub Pages shows.

    python .ci/add_version.py SITE BRANCH NAME

NAME is `dev`, or X.Y of a release. `versions.json` lists what is there, the newest release first;
site.js makes a list of links of it. The start page leads to the newest release, or to `dev`.
"""

import json
import re
import shutil
import sys
from pathlib import Path

START = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>kerascnn</title>
<meta http-equiv="refresh" content="0; url={0}/"></head>
<body><a href="{0}/">The documentation of kerascnn</a></body></html>
"""


def add_version(site: Path, branch: Path, name: str) -> None:
    if not re.fullmatch(r"dev|\d+\.\d+", name):
        raise SystemExit(f"A version's folder is named dev or X.Y. Received {name!r}.")
    if not (site / "index.html").is_file():
        raise SystemExit(f"{site} has no index.html; .ci/run docs builds the site.")
    shutil.rmtree(branch / name, ignore_errors=True)
    shutil.copytree(site, branch / name)
    releases = [p.name for p in branch.iterdir() if re.fullmatch(r"\d+\.\d+", p.name)]
    releases.sort(key=lambda release: [int(part) for part in release.split(".")], reverse=True)
    versions = [*releases, *(["dev"] if (branch / "dev").is_dir() else [])]
    (branch / "versions.json").write_text(json.dumps(versions) + "\n", encoding="utf-8")
    (branch / "index.html").write_text(START.format(versions[0]), encoding="utf-8")
    (branch / ".nojekyll").touch()  # Folders such as _static are left out otherwise.


if __name__ == "__main__":
    add_version(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
