"""Finds Chromium, or installs it where that is possible; says so loudly where it is not."""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    """The path of a Chromium-like browser on this machine."""
    wanted = os.environ.get("CHROMIUM")
    if wanted:
        return wanted
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def main() -> int:
    if find():
        return 0
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("Installing Chromium for the browser tests ...", flush=True)
        subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
        subprocess.run(
            [*install, "chromium", "fonts-dejavu-core"], check=False, capture_output=True
        )
    if not find():
        print("!! No Chromium here and none could be installed: BROWSER TESTS WILL NOT RUN.")
        print("!! Install one, or set CHROMIUM=/path/to/it, and run `make test` again.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
