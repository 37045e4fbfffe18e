"""The command `spillway`: the program that comes with the wheel."""
import os
import pathlib
import sys


def main() -> None:
    """Becomes the program, with the arguments of this process."""
    program = pathlib.Path(__file__).parent / "bin" / "spillway"
    try:
        os.execv(program, ["spillway", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"spillway: {program}: {error.strerror}; installing the wheel again would be right")


if __name__ == "__main__":
    main()
