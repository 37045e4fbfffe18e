"""Which process this is, and that no other one captures in its name."""
import contextlib
import errno
import fcntl
import operator
import os
import pathlib
import sys
import warnings
from typing import Optional, Tuple

MOST_RANKS = 65536  # docs/trace_format.md, limits
# What launchers say of a process: torchrun, Open MPI, MPICH and Intel MPI, srun.
LAUNCHERS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
             ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))
# A file system without locks, or one that is full: the files themselves are still refused when they exist.
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, errno.ENOSPC, errno.EDQUOT)


def whole(name: str, value, least: int, most: int) -> int:
    """`value` as an int. ValueError names what it must be."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} {value!r}: a whole number would be right") from None
    if not least <= number <= most:
        raise ValueError(f"{name} {number}: {least} to {most} would be right")
    return number


def _launched() -> Optional[Tuple[int, int]]:
    """Rank and ranks as torch.distributed, JAX or the launcher say."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    jax = sys.modules.get("jax")
    if jax is not None and getattr(getattr(jax, "distributed", None), "is_initialized", lambda: False)():
        return jax.process_index(), jax.process_count()
    for rank, ranks in LAUNCHERS:
        if os.environ.get(rank, "").isdigit() and os.environ.get(ranks, "").isdigit():
            return int(os.environ[rank]), int(os.environ[ranks])
    return None


def place_of(rank, ranks) -> Tuple[int, int]:
    """Rank and ranks; what is not said is asked of torch.distributed, JAX and the launcher, and is rank 0 of 1 without them."""
    found = _launched() if rank is None or ranks is None else None
    if rank is None and ranks is not None and found is None and ranks != 1:
        raise ValueError(f"ranks={ranks} without rank=; say both")
    found = found or (0, 1)
    rank, ranks = found[0] if rank is None else rank, found[1] if ranks is None else ranks
    ranks = whole("ranks", ranks, 1, MOST_RANKS)
    return whole(f"rank, of {ranks} ranks,", rank, 0, ranks - 1), ranks


class Claim:
    """A rank of a folder is captured by one process at a time. The kernel gives the lock back when the process ends, however."""

    def __init__(self, folder: pathlib.Path, rank: int):
        self._path, self._file = folder / f".rank{rank:05}.lock", -1
        try:
            while not self._lock():
                pass
        except BlockingIOError:
            os.close(self._file)
            raise RuntimeError(f"{folder}: another Capture writes as rank {rank} here now; is rank= forgotten? Give every process its own "
                               "rank= and the same ranks=") from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                self.release()
                raise
            warnings.warn(f"{self._path}: no lock ({error.strerror}): a rank= that two processes share is only noticed by its files", stacklevel=4)

    def _lock(self) -> bool:
        """False where whoever held the lock has just removed the file."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            if os.stat(self._path).st_ino == os.fstat(self._file).st_ino:
                return True
        except FileNotFoundError:
            pass
        os.close(self._file)
        return False

    def release(self) -> None:
        if self._file < 0:
            return
        file, self._file = self._file, -1
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)  # also of copies of the descriptor in forked children
        os.close(file)
