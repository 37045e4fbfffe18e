"""Processes that a test starts, on a machine that others use too: no limit here is shorter than a hang.

A test asks for what must be true when processes have ended, or for processor time; how long a step takes on a busy machine says nothing."""
import os
import pathlib
import pty
import resource
import signal
import subprocess
import time

for _sign in (signal.SIGINT, signal.SIGQUIT):  # a shell ignores them in what it runs in its background, and so would what tests start
    if signal.getsignal(_sign) == signal.SIG_IGN:
        signal.signal(_sign, signal.SIG_DFL)

HANG_S = 1800  # a command that takes longer hangs; CTest's own limit is above this one


def processor_s():
    """Processor time of all children that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stat_of(pid):
    """State, parent and group of a process; None when it is gone."""
    try:
        state, parent, group = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:3]
        return state, int(parent), int(group)
    except OSError:
        return None


def is_gone(pid):
    """Also of one that has ended and that nobody has waited for."""
    found = stat_of(pid)
    return found is None or found[0] == "Z"


def group_of(leader):
    """The processes that run in the group of `leader`, which was started with start_new_session."""
    found = ((int(entry), stat_of(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return [pid for pid, stat in found if stat and stat[2] == leader and stat[0] != "Z"]


def wait_until(true):
    """Whether it became true before a hang is assumed."""
    end = time.monotonic() + HANG_S
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def wait_for_group(leader):
    """Whether all processes of the group have ended: a worker outlives the program that was killed for a moment."""
    return wait_until(lambda: not group_of(leader))


def drawn_on_terminal(words, pattern, to_end=True, tries=40, **keywords):
    """What the program writes to a terminal that is its standard error, from the first of some runs in which `pattern` (compiled, of bytes) is
    found, or from the last; and how that run ended. A bar is drawn after a second of work, so each run is held for longer than that, a little
    later each time: one of them is held at work, however fast or busy the machine is. to_end: else a run is ended once it has drawn."""
    for held_after in range(tries):
        ours, its = pty.openpty()
        running = subprocess.Popen(words, stderr=its, start_new_session=True, **{"stdout": subprocess.DEVNULL, **keywords})
        os.close(its)
        time.sleep(0.04 * held_after)
        for sign, seconds in ((signal.SIGSTOP, 1.2), (signal.SIGCONT, 0.0)):
            try:
                os.killpg(running.pid, sign)
            except ProcessLookupError:
                break
            time.sleep(seconds)
        said = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            said += piece
            if not to_end and pattern.search(said):
                os.killpg(running.pid, signal.SIGKILL)
                break
        os.close(ours)
        status = running.wait()
        if pattern.search(said) or status != 0:
            break
    return said.decode(), status
