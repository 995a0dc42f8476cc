"""A real server for each test file, and small helpers to talk to it."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import httpx
import pytest

BINARY = os.environ["HAUL_BIN"]


class Server:
    def __init__(self, *args, data=None):
        self.data = data or tempfile.mkdtemp(prefix="haul-http-")
        self.args = args
        self.start()

    def start(self):
        command = [BINARY, "serve", "--data", self.data, "--redis", "127.0.0.1:0", "--http", "127.0.0.1:0", *self.args]
        self.log = open(os.path.join(self.data + ".log"), "w+")
        self.process = subprocess.Popen(command, stderr=self.log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            self.log.seek(0)
            text = self.log.read()
            found = re.search(r"redis=(\S+) http=(\S+)", text)
            if found:
                self.redis, http = found.groups()
                self.url = "http://" + http
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start:\n" + text)
            time.sleep(0.02)

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(60)

    def remove(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.data, ignore_errors=True)
        os.unlink(self.data + ".log")


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.remove()


@pytest.fixture
def tenant():
    """Each test has jobs of its own."""
    return "t" + os.urandom(6).hex()


@pytest.fixture
def http(server, tenant):
    with httpx.Client(base_url=server.url, headers={"X-Haul-Tenant": tenant}, timeout=30) as client:
        yield client


@pytest.fixture
def api(http):
    """Calls the native interface: api("POST", "/jobs", {...}) answers (status, document)."""

    def call(method, path, document=None, **more):
        answer = http.request(method, "/api/v1" + path, json=document, **more)
        return answer.status_code, (answer.json() if answer.content else None)

    return call
