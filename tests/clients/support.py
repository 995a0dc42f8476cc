"""What all suites share: connections, a raw wire, subscriptions, and real worker processes."""

import collections
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

import redis

HERE = os.path.dirname(os.path.abspath(__file__))
ADDRESS = os.environ.get("HAUL_ADDRESS", "127.0.0.1:4286")
HOST, PORT = ADDRESS.rpartition(":")[0], int(ADDRESS.rpartition(":")[2])
URL = "redis://%s:%d" % (HOST, PORT)

# redis-py, as a tuple: (2, 10, 6), (5, 3, 1), (8, 1, 0)
REDIS_PY = tuple(int(part) for part in redis.__version__.split(".")[:3])

# How long anything awaited may take before the test fails. Nothing ever waits this long when all is well.
PATIENCE = 10.0


def connect(**options):
    """A plain client. redis-py 2 had its present behaviour under another name."""
    options.setdefault("decode_responses", True)
    kind = redis.StrictRedis if REDIS_PY < (3,) else redis.Redis
    return kind(host=HOST, port=PORT, **options)


def until(condition, timeout=PATIENCE):
    """For what announces itself by no event: look until it is so."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "waited %gs in vain" % timeout
        time.sleep(0.005)


def unwrap(value):
    """A JSON answer; some releases encode a list twice."""
    while isinstance(value, (str, bytes)):
        value = json.loads(value)
    return value


Event = collections.namedtuple("Event", "channel data")


class Ear(object):
    """Hears everything published on the channels given as patterns."""

    def __init__(self, *patterns):
        self.connection = connect()
        self.pubsub = self.connection.pubsub()
        self.pubsub.psubscribe(*(patterns or ("ql:*",)))
        for _ in patterns or ("ql:*",):
            message = self._message(PATIENCE)
            assert message and message["type"] == "psubscribe", message

    def _message(self, timeout):
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            message = self.pubsub.get_message(timeout=max(left, 0.001))
            if message is not None or left <= 0:
                return message

    def next(self, timeout=PATIENCE):
        message = self._message(timeout)
        assert message is not None, "nothing was published"
        assert message["type"] == "pmessage", message
        data = message["data"]
        try:
            data = json.loads(data)
        except ValueError:
            pass
        return Event(message["channel"], data)

    def text(self, timeout=PATIENCE):
        """As next, but the payload as it was sent."""
        message = self._message(timeout)
        assert message is not None, "nothing was published"
        return Event(message["channel"], message["data"])

    def take(self, count):
        return [self.next() for _ in range(count)]

    def quiet(self):
        """Asserts that nothing (more) was published: a marker of our own must be the next thing heard."""
        self.connection.publish("ql:silence", "silence")
        event = self.next()
        assert event.channel == "ql:silence", "published although nothing should be: %r" % (event,)

    def close(self):
        self.pubsub.close()


class Wire(object):
    """A connection without a client library: sends commands, returns replies with their type."""

    Error = collections.namedtuple("Error", "text")
    Status = collections.namedtuple("Status", "text")
    Push = collections.namedtuple("Push", "items")
    Map = collections.namedtuple("Map", "pairs")
    Set = collections.namedtuple("Set", "items")
    Double = collections.namedtuple("Double", "value")
    Null = collections.namedtuple("Null", "")

    def __init__(self):
        self.socket = socket.create_connection((HOST, PORT), timeout=PATIENCE)
        self.file = self.socket.makefile("rb")

    def send(self, *args):
        parts = [b"*%d\r\n" % len(args)]
        for arg in args:
            arg = arg if isinstance(arg, bytes) else str(arg).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(arg), arg))
        self.socket.sendall(b"".join(parts))

    def raw(self, data):
        self.socket.sendall(data)

    def call(self, *args):
        self.send(*args)
        return self.read()

    def read(self):
        line = self.file.readline()
        assert line.endswith(b"\r\n"), "the server closed the connection"
        kind, rest = line[:1], line[1:-2].decode("utf-8", "surrogateescape")
        if kind == b"+":
            return Wire.Status(rest)
        if kind == b"-":
            return Wire.Error(rest)
        if kind == b":":
            return int(rest)
        if kind == b",":
            return Wire.Double(float(rest))
        if kind == b"#":
            return rest == "t"
        if kind == b"_":
            return Wire.Null()
        if kind == b"$":
            if int(rest) < 0:
                return None
            data = self.file.read(int(rest) + 2)[:-2]
            return data.decode("utf-8", "surrogateescape")
        if kind == b"*" and int(rest) < 0:
            return None
        if kind in (b"*", b">", b"~"):
            items = [self.read() for _ in range(int(rest))]
            return {b"*": items, b">": Wire.Push(items), b"~": Wire.Set(items)}[kind]
        if kind == b"%":
            return Wire.Map([(self.read(), self.read()) for _ in range(int(rest))])
        raise AssertionError("not a reply: %r" % line)

    def closed(self):
        return self.file.readline() == b""

    def close(self):
        self.file.close()
        self.socket.close()


class Desk(object):
    """Where jobs running in worker processes report, and wait for an answer. A report is a JSON line on a unix
    socket; the job goes on when it is answered. So nobody has to sleep."""

    def __init__(self, path):
        self.path = path
        self.reports = queue.Queue()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(64)
        self.open = []
        self.early = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            self.open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        def answer(word="go"):
            connection.sendall((word + "\n").encode())

        try:
            for line in connection.makefile("r"):
                self.reports.put(dict(json.loads(line), answer=answer))
        except OSError:
            pass  # the job was killed, or the test is over

    def next(self, expected):
        """The next report of that kind. Reports come from several processes, so others may arrive before it; they are
        kept for when they are asked for."""
        for report in self.early:
            if report["what"] == expected:
                self.early.remove(report)
                return report
        while True:
            try:
                report = self.reports.get(timeout=PATIENCE)
            except queue.Empty:
                raise AssertionError("no report %r; there came %r" % (expected, self.early))
            if report["what"] == expected:
                return report
            self.early.append(report)

    def close(self):
        # Whoever still waits for an answer gets "end of file".
        self.listener.close()
        for connection in self.open:
            connection.close()


class Process(object):
    """A worker program of one of the packages, as its users run it."""

    def __init__(self, program, folder, queues, name="worker", workers=1, greenlets=0, resume=False, interval=1):
        # Through the shell of this environment's bin folder, with our jobs importable.
        args = [sys.executable, os.path.join(os.path.dirname(sys.executable), program)]
        args += ["--host", URL, "--name", name, "--path", os.path.join(HERE, "work")]
        args += ["--workers", str(workers), "--workdir", str(folder), "--interval", str(interval)]
        for one in queues:
            args += ["--queue", one]
        if greenlets:
            args += ["--greenlets", str(greenlets)]
        if resume:
            args += ["--resume"]
        self.log = open(os.path.join(str(folder), "worker.log"), "w+")
        self.process = subprocess.Popen(args, stdout=self.log, stderr=self.log, start_new_session=True)

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self):
        return self.process.wait(timeout=PATIENCE)

    def output(self):
        self.log.flush()
        with open(self.log.name) as file:
            return file.read()

    def close(self):
        # The whole session: the program and what it forked.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            pass
        self.process.wait()
        self.log.close()
