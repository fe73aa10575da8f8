"""``helenus``, or ``python -m helenus``: the program that the package carries."""

import os
import sys

from ._node import binary_path


def main() -> None:
    path = binary_path()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
