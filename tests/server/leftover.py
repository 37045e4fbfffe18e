"""A file that clang's OpenMP of a dead process left in /dev/shm does not end the next process of that number.

    leftover.py PROGRAM     with TSAN_OPTIONS=ignore_noninstrumented_modules=1
"""
import os
import subprocess
import sys
import tempfile

PATH = "/dev/shm/__KMP_REGISTERED_LIB_%d_%d"


def leave_and_become(words):
    """In the child: an empty file of this very process, as a file limit leaves it; then the program."""
    open(PATH % (os.getpid(), os.getuid()), "w").close()
    os.execv(words[0], words)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "a.h5")
        words = [program, "trace", "generate", "--experts", "8", "--top-k", "2", "--ranks", "2", "--tokens-per-rank", "64", trace]
        child = os.fork()
        if child == 0:
            leave_and_become(words)
        _, state = os.waitpid(child, 0)
        assert state == 0, "with a file left by another: state %d" % state
        assert not os.path.exists(PATH % (child, os.getuid())), "the process left its file"
        assert subprocess.run([program, "trace", "verify", trace], stdout=subprocess.DEVNULL).returncode == 0
    print("openmp_leftover: a left file harms nobody, and its own is gone")


if __name__ == "__main__":
    main()
