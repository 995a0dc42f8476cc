"""Requests made from /openapi.json, good and bad ones: every answer must be as it is described there."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from conftest import Server

@pytest.fixture(scope="module")
def described():
    server = Server()
    yield schemathesis.openapi.from_url(server.url + "/openapi.json")
    server.remove()


schema = schemathesis.pytest.from_fixture("described")


@schemathesis.hook
def before_call(context, case, kwargs):
    """Nobody waits long in a test."""
    if isinstance(case.body, dict) and isinstance(case.body.get("wait"), (int, float)):
        case.body["wait"] = min(case.body["wait"], 0.01)
    for name in ("wait",):
        if isinstance(case.query, dict) and name in case.query:
            try:
                case.query[name] = min(float(case.query[name]), 0.01)
            except (TypeError, ValueError):
                pass


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_answers_are_as_described(case):
    case.call_and_validate()
