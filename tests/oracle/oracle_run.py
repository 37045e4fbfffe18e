"""Calls of `spillway` and counted checks, for oracles that are a program each."""
import json
import sys

import program as caller


class Oracle:
    def __init__(self, program, name):
        self.program, self.name = program, name
        self.checks = self.failed = 0

    def check(self, good, what):
        self.checks += 1
        if not good:
            self.failed += 1
            print(f"{self.name}: {what}")

    def call(self, *arguments):
        """However it ends."""
        return caller.run(self.program, *arguments)

    def run(self, *arguments):
        """What it prints; that it succeeds is a check of its own."""
        done = self.call(*arguments)
        self.check(done.returncode == 0, f"{arguments}: {done.stderr}")
        return done.stdout

    def must(self, *arguments):
        """The same where nothing makes sense without it."""
        done = self.call(*arguments)
        if done.returncode != 0:
            sys.exit(f"{self.name}: {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def score(self, *arguments):
        return json.loads(self.run("score", *arguments, "--format", "json"))

    def finish(self, least=1):
        print(f"{self.name}: {self.checks} checks, {self.failed} failed")
        sys.exit(1 if self.failed or self.checks < least else 0)
