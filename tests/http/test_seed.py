"""The endpoints of the HTTP document, with its own example conversations."""

import json

import requests


def results(answer, status=200):
    assert answer.status_code == status, answer.text
    document = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert document["time"]["total"] >= 0
    assert document["load"]["cpu"] >= 0 and document["load"]["memory"] > 0
    assert "error" not in document or document["results"] is None
    return document["results"]


def error(answer, status):
    assert answer.status_code == status, answer.text
    document = answer.json()
    assert document["results"] is None
    assert document["error"]
    return document["error"]


def add(http, queue, *items, host="worker-1"):
    return results(http.post(f"/add/{queue}", json={"host": host, "data": list(items)}))


def test_adding_work(http):
    first, second = add(http, "work", {"meta": "foo", "id": "deedee"}, {"meta": "bar"})
    assert first == "deedee"
    assert len(second) == 32 and int(second, 16)


def test_getting_work_as_in_the_document(http):
    add(http, "work", {"meta": "foo", "id": "deadbeef1"}, {"meta": {"name": "howdy"}, "id": "aed292fed"})
    units = results(http.get("/get/work/2"))
    assert {unit["id"] for unit in units} == {"deadbeef1", "aed292fed"}
    by_id = {unit["id"]: unit for unit in units}
    assert by_id["deadbeef1"] == {"meta": "foo", "id": "deadbeef1", "queue": "work", "heartbeat": 60}
    assert by_id["aed292fed"]["meta"] == {"name": "howdy"}
    assert results(http.get("/get/work/2")) == []


def test_one_unit_is_a_dictionary_and_none_is_null(http):
    add(http, "crawl", {"meta": 1}, {"meta": 2}, {"meta": 3})
    assert results(http.get("/get/crawl"))["queue"] == "crawl"
    assert results(http.get("/get/crawl/1"))["queue"] == "crawl"
    assert [unit["meta"] for unit in results(http.get("/crawl/5"))] in ([1], [2], [3])
    assert results(http.get("/get/crawl")) is None
    assert results(http.get("/get/crawl/1")) is None
    assert results(http.get("/crawl/5")) == []
    assert results(http.get("/crawl/0")) == []


def test_heartbeat_and_cutoff_come_with_the_unit(http, api):
    assert api("PUT", "/config/heartbeat", {"value": "300"})[0] == 204
    assert api("PUT", "/config/work-cutoff", {"value": "900"})[0] == 204
    add(http, "work", {"meta": "foo"})
    unit = results(http.get("/get/work"))
    assert unit["heartbeat"] == 300 and unit["cutoff"] == 900


def test_the_conversation_about_heartbeats(http, api):
    assert api("PUT", "/config/heartbeat", {"value": "300"})[0] == 204
    add(http, "work", {"meta": 1, "id": "aed292fed"})
    results(http.get("/get/work?host=worker-1"))
    add(http, "work", {"meta": 2, "id": "deadbeef1"})
    results(http.get("/get/work?host=worker-2"))
    for path in ("/hearbeat/work", "/heartbeat/work"):
        answer = http.post(path, json={"host": "worker-1", "data": ["aed292fed", "deadbeef1"]})
        assert results(answer) == [300, False]
    assert results(http.post("/heartbeat/other", json={"host": "worker-1", "data": ["aed292fed"]})) == [False]
    assert results(http.post("/heartbeat/work", json={"host": "worker-1", "data": []})) == []


def test_completing_work(http):
    add(http, "work", {"meta": "foo", "id": "deadbeef1"}, {"meta": 2, "id": "aed292fed"})
    results(http.get("/get/work/2?host=worker-1"))
    data = [{"meta": {"page": 1}, "id": "deadbeef1"}, {"meta": None, "id": "aed292fed"}, {"meta": 0, "id": "unknown"}]
    answer = http.post("/complete/work", json={"host": "worker-2", "data": data})
    assert results(answer) == []
    answer = http.post("/complete/elsewhere", json={"host": "worker-1", "data": data})
    assert results(answer) == []
    answer = http.post("/complete/work", json={"host": "worker-1", "data": data})
    assert results(answer) == ["deadbeef1", "aed292fed"]
    done = results(http.get("/job/deadbeef1"))
    assert done == {"id": "deadbeef1", "state": "complete", "queue": None, "meta": {"page": 1}}


def test_the_peer_is_the_worker_where_no_host_is_given(http, api):
    add(http, "work", {"meta": 1, "id": "a"})
    results(http.get("/get/work"))
    assert api("GET", "/jobs/a")[1]["worker"] == "127.0.0.1"
    assert results(http.post("/complete/work", json={"data": [{"id": "a", "meta": 2}]})) == ["a"]


def test_what_cannot_be_added_is_false(http):
    answer = add(http, "work", {"meta": 1}, {"id": "x"}, 7, "text", {"meta": 2, "id": "n" * 2000}, {"meta": None, "id": "z"})
    assert [bool(jid) for jid in answer] == [True, False, False, False, False, True]


def test_queues(http):
    add(http, "work", {"meta": 1}, {"meta": 2})
    results(http.get("/get/work"))
    (queue,) = results(http.get("/queues"))
    assert queue["name"] == "work" and queue["waiting"] == 1 and queue["running"] == 1


def test_the_states_of_a_job(http, api):
    add(http, "work", {"meta": {"a": 1}, "id": "j"})
    assert results(http.get("/job/j")) == {"id": "j", "state": "waiting", "queue": "work", "meta": {"a": 1}}
    results(http.get("/get/work?host=w"))
    assert results(http.get("/job/j"))["state"] == "pending"
    assert api("POST", "/jobs/j/fail", {"worker": "w", "group": "g", "message": "m"})[0] == 204
    assert results(http.get("/job/j"))["state"] == "failed"


def test_errors_have_the_envelope(http):
    assert "no job" in error(http.get("/job/nothing"), 404)
    assert "JSON" in error(http.post("/add/work", content="{", headers={"content-type": "application/json"}), 400)
    assert "application/json" in error(http.post("/add/work", content="{}"), 415)
    assert "data" in error(http.post("/add/work", json={}), 422)
    assert "sequence" in error(http.post("/add/work", json={"data": 7}), 422)
    assert "id" in error(http.post("/complete/work", json={"data": [{"meta": 1}]}), 400)
    assert "number of jobs" in error(http.get("/get/work/many"), 400)
    assert "number of jobs" in error(http.get("/get/work/10001"), 400)
    assert "number of jobs" in error(http.get("/get/work/-1"), 400)
    assert error(http.get("/get/" + "q" * 1025), 400)
    assert results(http.get("/get/" + "q" * 1024)) is None


def test_with_requests(server, tenant):
    with requests.Session() as session:
        session.headers["X-Haul-Tenant"] = tenant
        session.post(server.url + "/add/work", data=json.dumps({"data": [{"meta": 1, "id": "r"}]}),
                     headers={"Content-Type": "application/json; charset=utf-8"}).raise_for_status()
        assert session.get(server.url + "/get/work").json()["results"]["id"] == "r"


def test_the_page(http):
    answer = http.get("/ui/")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert http.get("/ui/", headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
