"""Events as they happen, and figures for Prometheus."""

import json
import threading

import httpx


def put(api, **more):
    status, answer = api("POST", "/jobs", {"queue": "q", "klass": "K", **more})
    assert status == 201
    return answer["jid"]


class Stream:
    """The messages of an event stream, read in a thread of their own."""

    def __init__(self, server, tenant, query="", last=None):
        headers = {"X-Haul-Tenant": tenant}
        if last is not None:
            headers["Last-Event-ID"] = last
        self.client = httpx.Client(timeout=20)
        self.cm = self.client.stream("GET", f"{server.url}/api/v1/events{query}", headers=headers)
        self.answer = self.cm.__enter__()
        assert self.answer.status_code == 200
        assert self.answer.headers["content-type"].startswith("text/event-stream")
        self.lines = self.answer.iter_lines()
        self.id = None

    def next(self):
        """The next message that has data, as (event, document)."""
        event, data = "message", None
        for line in self.lines:
            if line.startswith("event:"):
                event = line[6:].strip()
            elif line.startswith("id:"):
                self.id = line[3:].strip()
            elif line.startswith("data:"):
                data = line[5:].strip()
            elif line == "":
                if data is not None:
                    return event, json.loads(data) if data.startswith("{") else data
                event = "message"
        raise AssertionError("the stream ended")

    def close(self):
        self.client.close()


def test_a_job_is_followed_through_its_life(server, tenant, api):
    stream = Stream(server, tenant)
    try:
        def work():
            jid = put(api, jid="j")
            api("POST", "/pop", {"worker": "w", "queues": ["q"]})
            api("POST", f"/jobs/{jid}/complete", {"worker": "w"})

        worker = threading.Timer(0.2, work)
        worker.start()
        seen = [stream.next()[1] for _ in range(3)]
        assert [event["kind"] for event in seen] == ["put", "popped", "completed"]
        assert all(event["jid"] == "j" and event["queue"] == "q" for event in seen)
        assert seen[1]["worker"] == "w"
        worker.join()
    finally:
        stream.close()


def test_filters_and_tenants(server, tenant, api):
    stream = Stream(server, tenant, "?queue=other&kind=put")
    try:
        def work():
            httpx.post(server.url + "/api/v1/jobs", json={"queue": "other", "klass": "K"})  # another tenant
            put(api)
            api("POST", "/jobs", {"queue": "other", "klass": "K", "jid": "wanted"})

        worker = threading.Timer(0.2, work)
        worker.start()
        assert stream.next()[1]["jid"] == "wanted"
        worker.join()
    finally:
        stream.close()


def test_a_stream_goes_on_where_it_broke_off(server, tenant, api):
    stream = Stream(server, tenant)
    putter = threading.Timer(0.2, lambda: put(api, jid="first"))
    putter.start()
    assert stream.next()[1]["jid"] == "first"
    putter.join()
    last = stream.id
    stream.close()
    put(api, jid="second")
    again = Stream(server, tenant, last=last)
    try:
        assert again.next()[1]["jid"] == "second"
    finally:
        again.close()
    old = Stream(server, tenant, last="1-1")
    try:
        assert old.next()[0] in ("reset", "lost")
    finally:
        old.close()


def test_wrong_filters_are_named(server, http):
    answer = http.get("/api/v1/events?kind=nonsense")
    assert answer.status_code == 400 and "completed" in answer.json()["error"]["message"]
    assert http.get("/api/v1/events?colour=red").status_code == 400


def test_metrics(server):
    httpx.post(server.url + "/api/v1/jobs", json={"queue": "metered", "klass": "K"})
    page = httpx.get(server.url + "/metrics")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/plain")
    line = next(line for line in page.text.splitlines() if 'queue="metered"' in line and 'state="waiting"' in line)
    assert line.endswith(" 1")
    assert httpx.get(server.url + "/readyz").status_code == 200
