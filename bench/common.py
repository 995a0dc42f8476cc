"""What the benchmarks share: servers on free ports of loopback, one `haul bench`, where results go."""

import datetime
import json
import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(HERE)
ENV = os.path.join(REPO, ".env", "bench")
PYTHON = os.path.join(ENV, "venv", "bin", "python")
RUN = shlex.split(os.environ.get("BENCH_RUN", ""))
# A temporary folder, removed at the end.
WORK = tempfile.mkdtemp(prefix="haul-bench-", dir=os.environ.get("BENCH_DIR"))


def say(*words):
    print("bench:", *words, file=sys.stderr, flush=True)


def run(*command, **more):
    return subprocess.run(command, check=True, text=True, **more)


def read(*command):
    return run(*command, stdout=subprocess.PIPE).stdout


def python_packages():
    """Makes the private Python environment, and goes on in it."""
    if sys.executable == PYTHON:
        return
    if not os.path.exists(PYTHON):
        say("making", os.path.join(ENV, "venv"))
        run(sys.executable, "-m", "venv", os.path.join(ENV, "venv"))
    pip("install", "-r", os.path.join(HERE, "peers", "requirements.txt"))
    shutil.rmtree(WORK)
    os.execv(PYTHON, [PYTHON, *sys.argv])


def pip(*words):
    run(PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *words)


def haul_binary():
    given = os.environ.get("HAUL_BIN")
    if given:
        return given
    say("building haul")
    run("cargo", "build", "--release", "-q", "-p", "haul", cwd=REPO)
    return os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(REPO, "target")), "release", "haul")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One server on a free port, for as long as the block lasts."""

    def __init__(self, name, command, before=None):
        self.port = free_port()
        self.folder = tempfile.mkdtemp(dir=WORK)
        if before:
            before(self)
        self.log = open(os.path.join(WORK, name.replace(" ", "-") + ".log"), "w")
        self.process = subprocess.Popen(
            RUN + command(self), stdout=self.log, stderr=self.log, cwd="/")
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        sys.exit("bench: %s does not answer: %s" % (name, self.log.name))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def serve(haul, name="haul", durability="always", folder=None, more=()):
    """Haul; in its own folder unless one is given."""
    return Server(name, lambda server: [
        haul, "serve", "--data", folder or server.folder + "/data", "--redis", "127.0.0.1:%d" % server.port, "--http", "off",
        "--durability", durability, *more])


def load(haul, port, *arguments):
    """One `haul bench`: its phases."""
    command = [haul, "bench", "--json", "--address", "127.0.0.1:%d" % port, *map(str, arguments)]
    return json.loads(read(*RUN, *command))["phases"]


def machine():
    with open("/proc/cpuinfo") as text:
        names = [line.split(":")[1].strip() for line in text if line.startswith("model name")]
    return "%s x %d, Linux %s" % (names[0] if names else platform.machine(), os.cpu_count(), platform.release())


def result(name):
    """Where a result goes, without its ending."""
    folder = os.path.join(HERE, "results")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name + "-" + datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"))


def write_json(path, content):
    with open(path, "w") as out:
        json.dump(content, out, indent=1)
        out.write("\n")
