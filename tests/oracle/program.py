"""Calls of the program that a test makes by the thousand: answered by one process that forks for each (tests/server), where it was built."""
import array
import atexit
import os
import pathlib
import socket
import struct
import subprocess

_servers = {}


class _Server:
    def __init__(self, path):
        self.socket, its = socket.socketpair()
        self.process = subprocess.Popen([path, str(its.fileno())], pass_fds=[its.fileno()], stdin=subprocess.DEVNULL)
        its.close()
        self.nothing = os.open(os.devnull, os.O_RDONLY)
        self.owner = os.getpid()
        atexit.register(self.close)

    def close(self):
        self.socket.close()
        self.process.wait()

    def ask(self, words, folder, environment):
        texts = [os.fsencode(folder), *map(os.fsencode, words), *(os.fsencode(f"{k}={v}") for k, v in environment.items())]
        if any(b"\0" in text for text in texts):
            raise ValueError("embedded null byte")
        said = struct.pack("=II", len(words), len(environment)) + b"".join(text + b"\0" for text in texts)
        out, err = os.memfd_create("out"), os.memfd_create("err")
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.nothing, out, err]))]
            self.socket.sendmsg([struct.pack("=I", len(said))], rights)
            self.socket.sendall(said)
            state = self.socket.recv(4, socket.MSG_WAITALL)
            if len(state) != 4:
                raise RuntimeError(f"{self.process.args[0]} ended with {self.process.wait()}")
            return os.waitstatus_to_exitcode(struct.unpack("=i", state)[0]), _whole(out), _whole(err)
        finally:
            os.close(out)
            os.close(err)


def _whole(descriptor):
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb", closefd=False) as file:
        return file.read()


def _server_of(program):
    path = pathlib.Path(program).resolve().parent.parent / "tests" / "server" / "spillway-server"
    found = _servers.get(path)
    if found is None or found.owner != os.getpid():  # a child of multiprocessing has a server of its own
        found = _servers[path] = _Server(str(path)) if path.exists() else None
    return found


def call(words, cwd=None, env=None, text=True, **keywords):
    """subprocess.run(words, capture_output=True): of other programs, and with other keywords, as a file on standard input, that itself."""
    words = [os.fspath(word) for word in words]
    keywords.pop("capture_output", None)
    keywords.pop("check", None)
    server = None if keywords or os.path.basename(words[0]) != "spillway" else _server_of(words[0])
    if server is None:
        return subprocess.run(words, capture_output=True, text=text, check=False, cwd=cwd, env=env, **{"stdin": subprocess.DEVNULL, **keywords})
    code, out, err = server.ask(words, os.path.abspath(cwd or "."), os.environ if env is None else env)
    return subprocess.CompletedProcess(words, code, *((out.decode(), err.decode()) if text else (out, err)))


def run(program, *arguments, **keywords):
    """The same of one program; arguments may be numbers and paths."""
    return call([str(program), *map(str, arguments)], **keywords)
