"""Checks of the Python package's tests, counted."""
import sys


class Checks:
    def __init__(self, error=None):
        """error: what the package raises, unless fails() is told of another."""
        self.error, self.count, self.bad = error, 0, 0

    def note(self, good, what):
        """Goes on behind a failure."""
        self.count += 1
        if not good:
            self.bad += 1
            print(f"FAIL {what}")

    def check(self, good, what):
        """Ends with the first failure."""
        self.count += 1
        if not good:
            sys.exit(f"FAIL {what}")

    def fails(self, part, call, *arguments, kind=None, **options):
        kind = kind or self.error
        try:
            call(*arguments, **options)
        except kind as error:
            self.check(part in str(error), f"'{error}' says nothing of '{part}'")
        else:
            self.check(False, f"nothing was wrong, but {part} should be")

    def finish(self, least):
        """After note(): how many were made, and ends."""
        print(f"{self.count} checks, {self.bad} failed")
        sys.exit(self.bad != 0 or self.count < least)
