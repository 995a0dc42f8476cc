"""Requests made from /openapi.json, good and bad ones: every answer must be as it is described there. Event streams, which
have no end, are tested for themselves."""

import os
import subprocess
import sys


def test_answers_are_as_described(server):
    here = os.path.dirname(os.path.abspath(__file__))
    command = [
        os.path.join(os.path.dirname(sys.executable), "st"), "--config-file", os.path.join(here, "schemathesis.toml"), "run",
        server.url + "/openapi.json", "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "15",
        "--generation-deterministic", "--exclude-path", "/api/v1/events", "--request-timeout", "20", "--no-color",
    ]
    environment = dict(os.environ, SCHEMATHESIS_HOOKS="openapi_hooks", PYTHONPATH=here)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, cwd=server.data)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]
