"""What every judge shares: sessions of the emulated adapter, processes with captured output, a table of cases.

A judge is a program that is not ours, run unmodified under `softhca run`. A case is a function that gets a Session,
starts programs on its nodes and raises Failure (by check() or expect()) if what they print is not what real adapters
make them print. Skip means that a case cannot say anything here, and why; ctest reports it as skipped.
"""

import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77  # exit code that ctest shows as "Skipped"
ON_TERMINAL = os.path.join(SOURCE, "tests", "judges", "on-terminal")  # what starts ucx_perftest
TAIL = 60     # lines of each program's output that a failure shows

# The modelled ones by file name in config/fabrics. A case's n-th program or rank runs on the fabric's n-th place: on
# four-path the places alternate between the two pairs of leaf switches, or no spine would ever be used.
FABRICS = {
    "ideal": (None, range(256)),
    "modelled": ("two-rail", range(16)),
    "four-path": ("four-path", (0, 4, 1, 5, 2, 6, 3, 7)),
    "sixteen-rail": ("sixteen-rail", range(4)),
}


def fabric_file(fabric):
    name = FABRICS[fabric][0]
    return name and os.path.join(SOURCE, "config", "fabrics", name + ".yaml")


class Failure(Exception):
    """The judge's verdict is no."""


class Skip(Exception):
    """The judge cannot judge here."""


def check(condition, message):
    if not condition:
        raise Failure(message)


def clean_environment(extra=None):
    """The caller's environment without anything that steers UCX, Open MPI or the adapter, plus `extra`."""
    env = {k: v for k, v in os.environ.items()
           if not re.match(r"(UCX|OMPI|PMIX|PRTE|SOFTHCA|IBV|RDMAV|MLX5|SLURM)_", k) and k != "LD_PRELOAD"}
    env.update({"LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"})
    env.update(extra or {})
    return env


def free_port():
    """A TCP port that nobody listens on now, outside the range that the kernel gives to outgoing connections."""
    for _ in range(1000):
        port = 10000 + int.from_bytes(os.urandom(2), "little") % 20000
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("::", port))
                return port
            except OSError:
                continue
    raise Failure("no free TCP port")


def listening(port):
    """Whether someone on this host listens on `port`; asks the kernel, a test connection would disturb the server."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[1].endswith(wanted) and fields[3] == "0A":
                    return True
    return False


class Program:
    """A started program; its output (both streams) goes to a file."""

    def __init__(self, argv, folder, env, stdin=subprocess.DEVNULL):
        self.argv = argv
        self.path = tempfile.mkstemp(prefix="out-", dir=folder)[1]
        self.started = time.monotonic()
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=stdin, cwd=folder,
                                            env=env, start_new_session=True)

    def output(self):
        with open(self.path, encoding="utf-8", errors="replace") as text:
            return text.read()

    def running(self):
        return self.process.poll() is None

    def wait(self, seconds, code=0):
        """Waits for the end; Failure if it takes longer or exits with something else than `code` (None: any)."""
        try:
            got = self.process.wait(timeout=max(0.1, seconds - (time.monotonic() - self.started)))
        except subprocess.TimeoutExpired:
            print(f"after {seconds} s still running:\n{self.stacks()}", flush=True)
            raise Failure(f"still running after {seconds} s: {self}") from None
        check(code is None or got == code, f"exit code {got}, expected {code}: {self}")
        return self.output()

    def wait_for(self, pattern, seconds):
        """Waits until the output matches `pattern`; returns the match."""
        end = time.monotonic() + seconds
        while True:
            alive = self.running()
            match = re.search(pattern, self.output())
            if match:
                return match
            check(alive, f"ended without printing /{pattern}/: {self}")
            check(time.monotonic() < end, f"did not print /{pattern}/ within {seconds} s: {self}")
            time.sleep(0.02)

    def stacks(self):
        """What each process that it started does now: state, command line and, where there is a gdb, the stack of its first thread."""
        lines, end = [], time.monotonic() + 20
        for folder in sorted(glob.glob("/proc/[0-9]*")):
            pid = int(os.path.basename(folder))
            try:
                if os.getsid(pid) != self.process.pid:
                    continue
                with open(folder + "/cmdline", "rb") as words, open(folder + "/stat", encoding="utf-8") as stat:
                    words, state = words.read().replace(b"\0", b" "), stat.read().rpartition(")")[2].split()[0]
            except OSError:
                continue # it has ended
            lines.append(f"process {pid}, state {state}: {words.decode(errors='replace')[:200]}")
            if not shutil.which("gdb") or time.monotonic() > end:
                continue
            try:
                asked = subprocess.run(["gdb", "-batch", "-nx", "-p", str(pid), "-ex", "thread apply 1 backtrace 16"],
                                       capture_output=True, text=True, timeout=10, check=False)
            except subprocess.TimeoutExpired:
                continue
            lines += ["  " + line[:140] for line in asked.stdout.splitlines() if line.startswith("#")]
        return "\n".join(lines)

    def stop(self):
        """Ends the program and all that it started. No error if it is gone."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
            try:
                self.process.wait(timeout=3)
            except subprocess.TimeoutExpired:
                continue
        self.process.poll()

    def __str__(self):
        return " ".join(self.argv)


class Session:
    """One session of the emulated adapter (or, without a build folder, of the plain host: for baselines)."""

    def __init__(self, build, fabric, folder):
        self.fabric = fabric
        self.build = build
        self.folder = folder
        self.name = f"judge-{os.getpid()}-{os.urandom(3).hex()}"
        self.programs = []
        self.faults = None  # a fault script: takes effect with the session's first program

    @property
    def softhca(self):
        return os.path.join(self.build, "bin", "softhca")

    @property
    def modelled(self):
        return self.fabric != "ideal"

    @property
    def places(self):
        """The node of the n-th program."""
        return FABRICS[self.fabric][1]

    def wrap(self, argv, node=None):
        """The command line that runs `argv` in this session."""
        if self.build is None:
            return list(argv)
        file = fabric_file(self.fabric)
        fabric = ["--fabric", file] if file else []
        # Of a job without a node of its own ranks are placed; on the other fabrics a rank's number is its node's.
        places = [] if isinstance(self.places, range) else ["--place", ",".join(map(str, self.places))]
        where = places if node is None else ["--node", str(node)]
        faults = ["--faults", self.faults] if self.faults else []
        return [self.softhca, "run", "--session", self.name, *fabric, *faults, *where, "--", *argv]

    def start(self, argv, node=None, env=None, stdin=subprocess.DEVNULL):
        """`env`: a dictionary, or a function that gets the session and returns one (see preloaded)."""
        env = clean_environment(env(self) if callable(env) else env)
        program = Program(self.wrap(argv, node), self.folder, env, stdin)
        self.programs.append(program)
        return program

    def run(self, argv, node=None, env=None, seconds=30, code=0):
        """Runs to the end; returns the output."""
        return self.start(argv, node, env).wait(seconds, code)

    def control(self, *argv, seconds=10):
        """A command of the adapter on this session: control("port", "down", "0:softhca_0:1")."""
        program = Program([self.softhca, argv[0], "--session", self.name, *argv[1:]], self.folder, clean_environment())
        self.programs.append(program)
        return program.wait(seconds)

    def pair(self, argv, port_option="-p", server=(), client=(), env=None, seconds=30, nodes=None, peer="127.0.0.1",
             peer_first=False, client_code=0):
        """Runs a client/server program as two processes on two nodes; returns (server output, client output).

        `server` and `client` are extra arguments of one side. The client starts when the server listens.
        """
        port = free_port()
        nodes = nodes or self.places
        common = [*argv, port_option, str(port)]
        first = self.start([*common, *server], nodes[0], env)
        end = time.monotonic() + 20
        while not listening(port):
            check(first.running(), f"the server ended before the client started: {first}")
            check(time.monotonic() < end, f"the server does not listen on port {port}: {first}")
            time.sleep(0.01)
        second_argv = [common[0], peer, *common[1:], *client] if peer_first else [*common, *client, peer]
        second = self.start(second_argv, nodes[1], env)
        output = second.wait(seconds, client_code)
        return first.wait(seconds), output

    def tails(self):
        """The last lines of every program's output, for a failure."""
        parts = []
        for program in self.programs:
            state = "running" if program.running() else f"exit code {program.process.returncode}"
            lines = program.output().splitlines()
            cut = [f"... {len(lines) - TAIL} lines before"] if len(lines) > TAIL else []
            parts.append("\n".join([f"--- {program} ({state})", *cut, *lines[-TAIL:]]))
        return "\n".join(parts)

    def close(self):
        for program in self.programs:
            program.stop()

    def leftovers(self):
        """What the session left behind: processes that belong to it, names in shared memory and run-time folders."""
        found = []
        mine = self.name.encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if int(pid) == os.getpid():
                continue
            for kind in ("cmdline", "environ"):
                try:
                    with open(f"/proc/{pid}/{kind}", "rb") as text:
                        if mine in text.read():
                            found.append(f"process {pid}")
                            break
                except OSError:
                    pass
        for folder in ("/dev/shm", "/tmp", "/run", os.environ.get("XDG_RUNTIME_DIR", "/run")):
            try:
                found += [f"{folder}/{name}" for name in os.listdir(folder) if self.name in name]
            except OSError:
                pass
        return sorted(set(found))

    def check_clean(self):
        """The session must vanish with its last program."""
        end = time.monotonic() + 5
        while True:
            found = self.leftovers()
            if not found:
                return
            check(time.monotonic() < end, "the session left behind: " + ", ".join(found))
            time.sleep(0.05)


def preloaded(tls, **more):
    """The environment in which UCX has our transport: UCX_TLS is `tls`, and what else is given."""
    def env(session):
        library = os.path.join(session.build, "lib", "libuct_mp.so")
        if not os.path.exists(library):
            raise Skip("libuct_mp.so is not built: UCX's source is missing (cmake/install-deps)")
        return {"LD_PRELOAD": library, "UCX_TLS": tls, "UCX_LOG_LEVEL": "warn", **more}
    return env


class Case:
    def __init__(self, function, name, fabrics, seconds, alone, long):
        self.function = function
        self.name = name
        self.fabrics = fabrics
        self.seconds = seconds  # time limit of the whole case
        self.alone = alone      # spins on both of two cores: nothing beside it
        self.long = long        # fabrics on which it only runs when asked for: ctest -C long


class Group:
    """The cases of one kind of judge, in the order in which they were added. seldom: fabrics on which they are long ones."""

    def __init__(self, seldom=()):
        self.cases = {}
        self.seldom = seldom

    def add(self, function, name, fabrics=("ideal", "modelled"), seconds=40, alone=True, long=False):
        assert name not in self.cases, name
        self.cases[name] = Case(function, name, fabrics, seconds, alone, set(fabrics) if long else set(self.seldom))

    def case(self, *args, **kwargs):
        def decorate(function):
            self.add(function, function.__name__, *args, **kwargs)
            return function
        return decorate
