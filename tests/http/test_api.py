"""The native interface, route by route."""

import json
import signal
import threading
import time

import httpx
import pytest

from conftest import Server


def put(api, queue="q", **more):
    status, answer = api("POST", "/jobs", {"queue": queue, "klass": "K", **more})
    assert status == 201, answer
    return answer["jid"]


def pop(api, queue="q", worker="w", **more):
    status, answer = api("POST", "/pop", {"worker": worker, "queues": [queue], **more})
    assert status == 200, answer
    return answer["jobs"]


def refused(answer, status, code, word=""):
    got, document = answer
    assert got == status, document
    assert document["error"]["code"] == code
    assert word in document["error"]["message"]


def test_a_job_has_what_it_was_put_with(api):
    jid = put(api, data={"a": [1, "x"]}, priority=3, tags=["t", "u"], retries=2, delay=60)
    status, job = api("GET", f"/jobs/{jid}")
    assert status == 200
    assert job["data"] == {"a": [1, "x"]} and job["priority"] == 3 and job["tags"] == ["t", "u"]
    assert job["retries"] == 2 and job["state"] == "scheduled" and job["queue"] == "q" and job["klass"] == "K"
    assert job["due"] > time.time() + 50


def test_data_is_kept_as_it_was_written(api, http):
    text = '{"queue":"q","klass":"K","jid":"j","data":{"n": 12345678901234567890.10, "s":"\\u00e9é"}}'
    headers = {"content-type": "application/json"}
    assert http.post("/api/v1/jobs", content=text, headers=headers).status_code == 201
    assert '"data":{"n": 12345678901234567890.10, "s":"\\u00e9é"}' in http.get("/api/v1/jobs/j").text


def test_a_list_is_put_whole_or_not_at_all(api):
    status, answer = api("POST", "/jobs", [{"queue": "q", "klass": "K", "jid": jid} for jid in "abc"])
    assert status == 201 and answer == {"jids": ["a", "b", "c"]}
    new = [{"queue": "q", "klass": "K", "jid": "d"}, {"queue": "q", "klass": "K", "jid": "a", "nx": True}]
    refused(api("POST", "/jobs", new), 409, "EXISTS")
    assert api("GET", "/jobs/d")[0] == 404
    wrong = [{"queue": "q", "klass": "K", "jid": "e"}, {"queue": "q" * 1025, "klass": "K"}]
    refused(api("POST", "/jobs", wrong), 400, "BADARG", "job 2")
    assert api("GET", "/jobs/e")[0] == 404
    assert api("POST", "/jobs", []) == (201, {"jids": []})


def test_a_list_holds_put_jobs_max(api):
    job = {"queue": "q", "klass": "K"}
    assert api("POST", "/jobs", [job] * 10_000)[0] == 201
    refused(api("POST", "/jobs", [job] * 10_001), 400, "BADARG", "put-jobs-max")


def test_lines_are_put_each_for_itself(http, api):
    good = [json.dumps({"queue": "lines", "klass": "K", "data": n}) for n in range(2500)]
    lines = good[:1200] + ["", "not json", '{"queue":"lines"}'] + good[1200:]
    answer = http.post("/api/v1/jobs", content="\n".join(lines), headers={"content-type": "application/x-ndjson"})
    assert answer.status_code == 200
    document = answer.json()
    assert document["put"] == 2500 and document["refused"] == 2
    assert [error["line"] for error in document["errors"]] == [1202, 1203]
    assert api("GET", "/queues/lines")[1]["waiting"] == 2500


def test_what_is_put_together_is_taken_in_its_order(http, api):
    jobs = [{"queue": "o", "klass": "K", "data": n} for n in range(300)]
    assert api("POST", "/jobs", jobs[:100])[0] == 201
    lines = "\n".join(json.dumps(job) for job in jobs[100:])
    answer = http.post("/api/v1/jobs", content=lines, headers={"content-type": "application/x-ndjson"})
    assert answer.json()["put"] == 200
    popped = api("POST", "/pop", {"worker": "w", "queues": ["o"], "count": 300})[1]["jobs"]
    assert [job["data"] for job in popped] == list(range(300))


def test_lines_come_from_a_generator(http, api):
    def lines():
        for n in range(20_000):
            yield json.dumps({"queue": "g", "klass": "K", "data": "x" * 100}).encode() + b"\n"

    answer = http.post("/api/v1/jobs", content=lines(), headers={"content-type": "application/x-ndjson"})
    assert answer.json() == {"put": 20_000, "refused": 0, "errors": []}
    assert api("GET", "/queues/g")[1]["waiting"] == 20_000


class TestPuttingWhatExists:
    def test_a_jid_replaces_refuses_or_returns_as_asked(self, api, http):
        put(api, jid="j", data=1)
        put(api, jid="j", data=2)
        assert api("GET", "/jobs/j")[1]["data"] == 2
        document = {"queue": "q", "klass": "K", "jid": "j", "data": 3}
        refused(api("POST", "/jobs?if_exists=refuse", document), 409, "EXISTS", "exists already")
        refused(api("POST", "/jobs", {**document, "nx": True}), 409, "EXISTS")
        refused(api("POST", "/jobs", document, headers={"If-None-Match": "*"}), 412, "EXISTS")
        refused(api("POST", "/jobs", document, headers={"If-None-Match": '"x"'}), 400, "BADARG")
        assert api("POST", "/jobs?if_exists=return", document) == (200, {"jid": "j", "existing": True})
        assert api("GET", "/jobs/j")[1]["data"] == 2
        assert api("POST", "/jobs?if_exists=replace", document)[0] == 201
        assert api("GET", "/jobs/j")[1]["data"] == 3
        refused(api("POST", "/jobs?if_exists=perhaps", document), 400, "BADARG")

    def test_a_unique_key_makes_one_job(self, api):
        document = {"queue": "q", "klass": "K", "unique": "order 7"}
        status, first = api("POST", "/jobs", document)
        assert status == 201 and not first["existing"]
        assert api("POST", "/jobs", document) == (200, {"jid": first["jid"], "existing": True})
        refused(api("POST", "/jobs?if_exists=refuse", document), 409, "EXISTS")
        assert api("GET", "/unique/order%207")[1]["jid"] == first["jid"]
        refused(api("GET", "/unique/other"), 404, "NOJOB")
        status, answer = api("POST", "/jobs", [document, {"queue": "q", "klass": "K", "unique": "order 8"}])
        assert status == 201 and answer["jids"][0] == first["jid"]
        assert api("GET", "/queues/q")[1]["waiting"] == 2

    def test_an_idempotency_key_is_a_unique_key(self, api):
        document = {"queue": "q", "klass": "K"}
        headers = {"Idempotency-Key": "k1"}
        status, first = api("POST", "/jobs", document, headers=headers)
        assert status == 201
        assert api("POST", "/jobs", document, headers=headers) == (200, {"jid": first["jid"], "existing": True})
        refused(api("POST", "/jobs", {**document, "unique": "other"}, headers=headers), 400, "BADARG", "differ")
        refused(api("POST", "/jobs", {**document, "jid": "j"}, headers=headers), 400, "BADARG", "exclude")


class TestWorking:
    def test_a_whole_life(self, api):
        jid = put(api, data="d")
        (job,) = pop(api)
        assert job["jid"] == jid and job["worker"] == "w" and job["attempt"] == 1
        status, beat = api("POST", f"/jobs/{jid}/heartbeat", {"worker": "w", "attempt": 1, "lock": 100, "data": {"at": 5}})
        assert status == 200 and 95 < beat["expires"] - time.time() < 105
        assert api("POST", f"/jobs/{jid}/complete", {"worker": "w", "result": {"ok": True}}) == (200, {"state": "complete"})
        assert api("GET", f"/jobs/{jid}")[1]["data"] == {"at": 5}
        assert api("GET", f"/jobs/{jid}/result") == (200, {"ok": True})

    def test_order_of_queues_and_counts(self, api):
        for queue in ("a", "b"):
            for n in range(3):
                put(api, queue, jid=f"{queue}{n}")
        status, answer = api("POST", "/pop", {"worker": "w", "queues": ["a", "b"], "count": 4, "order": "round-robin"})
        assert sorted(job["queue"] for job in answer["jobs"]) == ["a", "a", "b", "b"]
        status, answer = api("POST", "/pop", {"worker": "w", "queues": ["a", "b"], "count": 9})
        assert [job["queue"] for job in answer["jobs"]] == ["a", "b"]
        assert pop(api, "a") == []
        assert api("POST", "/pop", {"worker": "w", "queues": ["a"], "count": 0})[1] == {"jobs": []}

    def test_a_lost_lock_is_told_and_changes_nothing(self, api):
        jid = put(api)
        pop(api, lock=0)
        (again,) = pop(api, worker="other")
        assert again["attempt"] == 2
        for path, document in (
            ("heartbeat", {"worker": "w"}),
            ("complete", {"worker": "w"}),
            ("fail", {"worker": "w", "group": "g", "message": "m"}),
            ("retry", {"worker": "w"}),
            ("complete", {"worker": "other", "attempt": 1}),
        ):
            refused(api("POST", f"/jobs/{jid}/{path}", document), 409, "NOTHELD", "other")
        assert api("GET", f"/jobs/{jid}")[1] == again
        refused(api("POST", "/jobs/none/complete", {"worker": "w"}), 404, "NOJOB")

    def test_fail_retry_requeue_and_release(self, api):
        jid = put(api, retries=1)
        pop(api)
        assert api("POST", f"/jobs/{jid}/retry", {"worker": "w", "delay": 0}) == (200, {"remaining": 0})
        pop(api)
        refused(api("POST", f"/jobs/{jid}/retry", {"worker": "w", "group": "g"}), 400, "BADARG", "together")
        assert api("POST", f"/jobs/{jid}/release", None)[0] == 204
        pop(api)
        assert api("POST", f"/jobs/{jid}/fail", {"worker": "w", "group": "g", "message": "trace"})[0] == 204
        job = api("GET", f"/jobs/{jid}")[1]
        assert job["state"] == "failed" and job["failure"]["group"] == "g" and job["failure"]["message"] == "trace"
        refused(api("GET", f"/jobs/{jid}/result"), 409, "FAILED", "trace")
        assert api("POST", f"/jobs/{jid}/requeue", {})[0] == 200
        assert api("GET", f"/jobs/{jid}")[1]["state"] == "waiting"
        assert api("POST", f"/jobs/{jid}/requeue", {"queue": "r", "priority": 9, "data": 7, "tags": ["n"]})[0] == 200
        job = api("GET", f"/jobs/{jid}")[1]
        assert (job["queue"], job["priority"], job["data"], job["tags"]) == ("r", 9, 7, ["n"])
        refused(api("POST", "/jobs/none/requeue", {"queue": "q"}), 404, "NOJOB")
        assert api("GET", "/jobs/none")[0] == 404

    def test_moving_on_to_the_next_queue(self, api):
        jid = put(api)
        pop(api)
        refused(api("POST", f"/jobs/{jid}/complete", {"worker": "w", "delay": 1}), 400, "BADARG", "next")
        answer = api("POST", f"/jobs/{jid}/complete", {"worker": "w", "next": "n", "delay": 60})
        assert answer == (200, {"state": "scheduled"})

    def test_many_at_once(self, api):
        jids = [put(api, jid=f"m{n}") for n in range(3)]
        pop(api, count=2)
        status, answer = api("POST", "/heartbeat", {"worker": "w", "jids": jids + ["none"]})
        assert [outcome["ok"] for outcome in answer["outcomes"]].count(True) == 2
        jobs = [{"jid": jid, "result": "r"} for jid in jids]
        status, answer = api("POST", "/complete", {"worker": "w", "jobs": jobs})
        assert [outcome["ok"] for outcome in answer["outcomes"]].count(True) == 2
        codes = [outcome["error"]["code"] for outcome in answer["outcomes"] if not outcome["ok"]]
        assert codes == ["NOTRUNNING"]

    def test_a_waiting_pop_is_served_by_a_put(self, api):
        threading.Timer(0.3, lambda: put(api, jid="late")).start()
        began = time.monotonic()
        (job,) = pop(api, wait=20)
        assert job["jid"] == "late" and time.monotonic() - began < 10
        assert pop(api, wait=0.2) == []

    def test_a_pop_whose_client_left_takes_nothing(self, server, tenant, api):
        headers = {"X-Haul-Tenant": tenant}
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + "/api/v1/pop", json={"worker": "gone", "queues": ["q"], "wait": 60},
                       headers=headers, timeout=0.3)
        time.sleep(0.5)
        put(api, jid="j")
        (job,) = pop(api)
        assert job["attempt"] == 1

    def test_limits(self, api):
        assert api("POST", "/pop", {"worker": "w", "queues": ["q"], "count": 10_000})[0] == 200
        refused(api("POST", "/pop", {"worker": "w", "queues": ["q"], "count": 10_001}), 400, "BADARG", "pop-count-max")
        refused(api("POST", "/pop", {"worker": "w", "queues": ["q"], "wait": 86_401}), 400, "BADARG", "wait-seconds-max")
        refused(api("POST", "/pop", {"worker": "w", "queues": []}), 400, "BADARG", "empty")
        refused(api("POST", "/pop", {"worker": "w" * 1025, "queues": ["q"]}), 400, "BADARG", "name-bytes-max")
        assert api("POST", "/pop", {"worker": "w" * 1024, "queues": ["q"]})[0] == 200
        put(api, data="d" * (16 * 1024 * 1024 - 2))
        document = {"queue": "q", "klass": "K", "data": "d" * (16 * 1024 * 1024 - 1)}
        refused(api("POST", "/jobs", document), 400, "BADARG", "data-bytes-max")


class TestResults:
    def test_a_result_is_waited_for(self, api):
        jid = put(api)
        assert api("GET", f"/jobs/{jid}/result")[0] == 204

        def finish():
            pop(api)
            api("POST", f"/jobs/{jid}/complete", {"worker": "w", "result": {"n": 1}})

        threading.Timer(0.2, finish).start()
        began = time.monotonic()
        assert api("GET", f"/jobs/{jid}/result?wait=20") == (200, {"n": 1})
        assert time.monotonic() - began < 10

    def test_text_and_json(self, http, api):
        jid = put(api)
        pop(api)
        api("POST", f"/jobs/{jid}/complete", {"worker": "w", "result": "plain text"})
        answer = http.get(f"/api/v1/jobs/{jid}/result?wait=5")
        assert answer.content == b"plain text" and answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-haul-state"] == "complete"
        refused(api("GET", f"/jobs/{jid}/result?wait=3601"), 400, "BADARG", "result-wait-max")
        refused(api("GET", "/jobs/none/result?wait=1"), 404, "NOJOB")


class TestChanging:
    def test_cancel_also_while_running(self, api):
        jid = put(api)
        pop(api)
        assert api("DELETE", f"/jobs/{jid}") == (204, None)
        refused(api("DELETE", f"/jobs/{jid}"), 404, "NOJOB")
        refused(api("POST", f"/jobs/{jid}/complete", {"worker": "w"}), 404, "NOJOB")

    def test_what_others_wait_for_is_cancelled_with_them(self, api):
        put(api, jid="a")
        put(api, jid="b", depends=["a"])
        refused(api("DELETE", "/jobs/a"), 409, "NEEDED", "b")
        assert api("POST", "/jobs/cancel", {"jids": ["a", "b"]}) == (200, {"jobs": 2})

    def test_priority_tags_tracking_and_log(self, api):
        put(api, jid="low")
        put(api, jid="high")
        assert api("PUT", "/jobs/high/priority", {"priority": 5})[0] == 204
        assert pop(api)[0]["jid"] == "high"
        assert api("POST", "/jobs/low/tags", {"tags": ["a", "b"]}) == (200, {"tags": ["a", "b"]})
        assert api("DELETE", "/jobs/low/tags/a") == (200, {"tags": ["b"]})
        assert api("PUT", "/jobs/low/track") == (200, {"changed": True})
        assert [job["jid"] for job in api("GET", "/tracked")[1]["jobs"]] == ["low"]
        assert api("DELETE", "/jobs/low/track") == (200, {"changed": True})
        assert api("DELETE", "/jobs/low/track") == (200, {"changed": False})
        assert api("POST", "/jobs/low/log", {"message": "half way", "data": {"percent": 50}})[0] == 204
        assert api("GET", "/jobs/low")[1]["history"][-1]["percent"] == 50
        refused(api("POST", "/jobs/low/log", {"message": "m", "data": 7}), 400, "BADARG", "object")
        for path in ("tags", "log"):
            body = {"tags": ["x"]} if path == "tags" else {"message": "m"}
            refused(api("POST", f"/jobs/none/{path}", body), 404, "NOJOB")
        refused(api("PUT", "/jobs/none/track"), 404, "NOJOB")

    def test_dependencies(self, api):
        for jid in "abc":
            put(api, jid=jid)
        put(api, jid="d", depends=["a"])
        assert api("POST", "/jobs/d/dependencies", {"jids": ["b", "c"]})[0] == 204
        assert api("GET", "/jobs/d")[1]["dependencies"] == ["a", "b", "c"]
        assert api("DELETE", "/jobs/d/dependencies/b")[0] == 204
        assert api("GET", "/jobs/d")[1]["dependencies"] == ["a", "c"]
        assert api("DELETE", "/jobs/d/dependencies")[0] == 204
        assert api("GET", "/jobs/d")[1]["state"] == "waiting"
        refused(api("POST", "/jobs/d/dependencies", {"jids": ["a"]}), 409, "NOTDEPENDS")

    def test_getting_many(self, api):
        put(api, jid="a")
        put(api, jid="b")
        assert [job["jid"] for job in api("POST", "/jobs/get", {"jids": ["b", "none", "a"]})[1]["jobs"]] == ["b", "a"]


class TestSearch:
    def fill(self, api):
        put(api, "s1", jid="w1", data={"text": "Grüße to Alice"}, tags=["red"])
        put(api, "s1", jid="w2", tags=["red", "blue"])
        put(api, "s2", jid="later", delay=1000)
        put(api, "s2", jid="dep", depends=["w1"])
        put(api, "run", jid="r1")
        pop(api, "run", worker="me")
        put(api, "fail", jid="f1")
        pop(api, "fail")
        api("POST", "/jobs/f1/fail", {"worker": "w", "group": "boom", "message": "it BROKE badly"})
        put(api, "done", jid="c1")
        pop(api, "done")
        api("POST", "/jobs/c1/complete", {"worker": "w"})

    def find(self, api, query):
        status, page = api("GET", "/jobs?" + query)
        assert status == 200, page
        return sorted(job["jid"] for job in page["jobs"])

    def test_by_everything(self, api):
        self.fill(api)
        assert self.find(api, "") == ["c1", "dep", "f1", "later", "r1", "w1", "w2"]
        assert self.find(api, "queue=s1") == ["w1", "w2"]
        assert self.find(api, "state=waiting") == ["w1", "w2"]
        assert self.find(api, "state=scheduled") == ["later"]
        assert self.find(api, "state=depends") == ["dep"]
        assert self.find(api, "state=running") == ["r1"]
        assert self.find(api, "state=failed") == ["f1"]
        assert self.find(api, "state=complete") == ["c1"]
        assert self.find(api, "state=stalled") == []
        assert self.find(api, "tag=red&queue=s1") == ["w1", "w2"]
        assert self.find(api, "tag=blue") == ["w2"]
        assert self.find(api, "worker=me") == ["r1"]
        assert self.find(api, "group=boom") == ["f1"]
        assert self.find(api, "klass=K&state=waiting") == ["w1", "w2"]
        assert self.find(api, "klass=none") == []
        assert self.find(api, "text=alice") == ["w1"]
        assert self.find(api, "text=GRÜSSE") == [] and self.find(api, "text=grüße") == ["w1"]
        assert self.find(api, "text=broke") == ["f1"]
        now = time.time()
        assert self.find(api, f"since={now - 100}&until={now + 100}&queue=s1") == ["w1", "w2"]
        assert self.find(api, f"since={now + 100}") == []
        assert self.find(api, f"until={now - 100}") == []

    def test_pages_hold_every_job_once(self, api):
        self.fill(api)
        for n in range(60):
            put(api, f"p{n % 7}", jid=f"page{n:02}", priority=n % 3)
        for query in ("", "&text=k", "&state=waiting"):
            seen, cursor = [], ""
            for _ in range(100):
                status, page = api("GET", f"/jobs?limit=4{query}{cursor}")
                assert status == 200 and len(page["jobs"]) <= 4
                seen += [job["jid"] for job in page["jobs"]]
                if page["next"] is None:
                    break
                cursor = "&cursor=" + page["next"]
            assert len(seen) == len(set(seen))
            assert len(seen) == {"": 67, "&text=k": 67, "&state=waiting": 62}[query]

    def test_jobs_put_meanwhile_do_not_disturb_the_pages(self, api):
        for n in range(20):
            put(api, jid=f"a{n:02}")
        first = api("GET", "/jobs?limit=10&queue=q")[1]
        for n in range(20):
            put(api, jid=f"b{n:02}", priority=9)
        rest = api("GET", f"/jobs?limit=100&queue=q&cursor={first['next']}")[1]
        seen = [job["jid"] for job in first["jobs"] + rest["jobs"]]
        assert sorted(jid for jid in seen if jid.startswith("a")) == [f"a{n:02}" for n in range(20)]
        assert len(seen) == len(set(seen))

    def test_limits(self, api):
        assert api("GET", "/jobs?limit=1000")[0] == 200
        refused(api("GET", "/jobs?limit=1001"), 400, "BADARG", "page-rows-max")
        refused(api("GET", "/jobs?limit=0"), 400, "BADARG")
        refused(api("GET", "/jobs?state=sleeping"), 400, "BADARG", "waiting")
        refused(api("GET", "/jobs?cursor=zz"), 400, "BADARG", "cursor")
        refused(api("GET", "/jobs?nonsense=1"), 400, "BADARG", "nonsense")


class TestQueues:
    def test_counts_pause_and_options(self, api):
        put(api, jid="a")
        put(api, delay=100)
        (queue,) = api("GET", "/queues")[1]["queues"]
        assert queue["name"] == "q" and queue["waiting"] == 1 and queue["scheduled"] == 1
        assert api("PATCH", "/queues/q", {"paused": True})[0] == 204
        assert pop(api) == [] and api("GET", "/queues/q")[1]["paused"]
        assert api("PATCH", "/queues/q", {"paused": False, "heartbeat": 7, "concurrency": 1})[0] == 204
        (job,) = pop(api, count=5)
        assert 5 < job["expires"] - time.time() < 9
        put(api)
        assert pop(api) == []
        assert api("PATCH", "/queues/q", {"concurrency": None})[0] == 204
        assert len(pop(api)) == 1
        refused(api("PATCH", "/queues/q", {}), 400, "BADARG", "paused")
        refused(api("PATCH", "/queues/q", {"heartbeat": -1}), 400, "BADARG")
        refused(api("PATCH", "/queues/q", {"paused": 1}), 422, "BADARG")

    def test_peek_stats_backlog_and_forget(self, api):
        put(api, jid="a")
        assert [job["jid"] for job in api("GET", "/queues/q/peek?count=5")[1]["jobs"]] == ["a"]
        refused(api("GET", "/queues/q/peek?count=1001"), 400, "BADARG")
        assert api("GET", "/queues/q/backlog")[1] == {"backlog": 1, "running": 0}
        pop(api)
        api("POST", "/jobs/a/complete", {"worker": "w"})
        stats = api("GET", "/queues/q/stats")[1]
        assert stats["wait"]["count"] == 1 and stats["run"]["count"] == 1 and len(stats["run"]["histogram"]) == 148
        assert api("GET", "/queues/q/stats?date=0")[1]["wait"]["count"] == 0
        assert api("DELETE", "/queues/q")[0] == 204
        assert api("GET", "/queues")[1] == {"queues": [], "total": 0, "next": None}
        assert api("GET", "/queues/unknown")[1]["waiting"] == 0

    def test_names_with_every_character(self, api, http):
        for name in ("a/b", "ü ñ", "%", "a?b#c", "..", "q\n", "\U0001f69a"):
            put(api, name)
            quoted = "".join(f"%{byte:02X}" for byte in name.encode())
            assert api("GET", "/queues/" + quoted)[1]["waiting"] == 1
        assert http.get("/api/v1/queues/%ff").status_code == 400


class TestFailures:
    def fail(self, api, count, group="g", queue="q"):
        for _ in range(count):
            put(api, queue)
        for job in pop(api, queue, count=count):
            api("POST", f"/jobs/{job['jid']}/fail", {"worker": "w", "group": group, "message": "m"})

    def test_a_whole_group_is_retried_moved_or_cancelled(self, api):
        self.fail(api, 1200)
        self.fail(api, 3, "h", "other")
        assert api("GET", "/failures")[1]["groups"] == [{"name": "g", "jobs": 1200}, {"name": "h", "jobs": 3}]
        assert api("POST", "/failures/g/retry", {"limit": 700}) == (200, {"jobs": 700})
        assert api("GET", "/queues/q")[1]["waiting"] == 700
        assert api("POST", "/failures/g/cancel", {"limit": 10}) == (200, {"jobs": 10})
        assert api("POST", "/failures/g/move", {"queue": "elsewhere"}) == (200, {"jobs": 490})
        assert api("GET", "/queues/elsewhere")[1]["waiting"] == 490
        assert api("GET", "/failures")[1]["groups"] == [{"name": "h", "jobs": 3}]
        assert api("POST", "/failures/none/retry", {}) == (200, {"jobs": 0})

    def test_what_others_wait_for_is_left(self, api):
        self.fail(api, 2)
        first = api("GET", "/jobs?group=g")[1]["jobs"][0]["jid"]
        put(api, jid="waits", depends=[first])
        assert api("POST", "/failures/g/cancel", {}) == (200, {"jobs": 1})
        assert api("GET", "/failures")[1]["groups"] == [{"name": "g", "jobs": 1}]


def test_workers(api):
    put(api, jid="a")
    pop(api, worker="me")
    (worker,) = api("GET", "/workers")[1]["workers"]
    assert worker["name"] == "me" and worker["jobs"] == 1
    assert api("GET", "/workers/me")[1] == {"jobs": ["a"], "stalled": [], "total": 1, "next": None}
    assert api("DELETE", "/workers/me")[0] == 204
    assert api("GET", "/workers")[1] == {"workers": [], "total": 0, "next": None}


def test_recurring_jobs(api):
    document = {"queue": "q", "klass": "K", "jid": "r", "interval": 60, "data": {"n": 1}, "tags": ["t"]}
    assert api("POST", "/recurring", document) == (201, {"jid": "r", "existing": False})
    recur = api("GET", "/recurring/r")[1]
    assert recur["interval"] == 60 and recur["data"] == {"n": 1} and recur["count"] == 0
    (job,) = pop(api)
    assert job["spawned_from"] == "r" and job["data"] == {"n": 1}
    assert api("PATCH", "/recurring/r", {"interval": 30, "queue": "p", "priority": 3})[0] == 204
    (listed,) = api("GET", "/recurring")[1]["recurring"]
    assert listed["queue"] == "p" and listed["interval"] == 30 and listed["count"] == 1
    assert api("GET", "/recurring?queue=q")[1] == {"recurring": [], "total": 0, "next": None}
    assert api("DELETE", "/recurring/r")[0] == 204
    for answer in (api("GET", "/recurring/r"), api("DELETE", "/recurring/r"), api("PATCH", "/recurring/r", {"priority": 1})):
        refused(answer, 404, "NORECUR")
    refused(api("POST", "/recurring", {**document, "interval": 0}), 400, "BADARG", "interval")


def test_throttles(api):
    assert api("PUT", "/throttles/db", {"maximum": 1})[0] == 204
    for jid in "ab":
        put(api, jid=jid, throttles=["db"])
    assert len(pop(api, count=5)) == 1
    throttle = api("GET", "/throttles/db")[1]
    assert throttle["maximum"] == 1 and len(throttle["locks"]) == 1 and len(throttle["pending"]) == 1
    assert api("GET", "/throttles")[1]["throttles"] == [{"id": "db", "maximum": 1, "ttl": -1}]
    assert api("POST", "/throttles/db/release", {"jids": throttle["locks"]})[0] == 204
    assert len(pop(api, count=5)) == 1
    assert api("DELETE", "/throttles/db")[0] == 204
    refused(api("GET", "/throttles/db"), 404, "NOTHROTTLE")
    refused(api("PUT", "/throttles/db", {"maximum": 1.5}), 400, "BADARG")


def test_options(api):
    assert api("GET", "/config")[1]["options"]["heartbeat"] == "60"
    assert api("GET", "/config/heartbeat")[1] == {"value": "60"}
    assert api("PUT", "/config/heartbeat", {"value": "10"})[0] == 204
    assert api("GET", "/config/heartbeat")[1] == {"value": "10"}
    assert api("DELETE", "/config/heartbeat")[0] == 204
    assert api("GET", "/config/heartbeat")[1] == {"value": "60"}
    refused(api("GET", "/config/nothing"), 404, "NOOPTION")


def test_tags(api):
    for n in range(3):
        put(api, tags=["often"])
    put(api, tags=["once"])
    assert api("GET", "/tags")[1] == {"tags": ["often"]}


class TestWrongRequests:
    @pytest.mark.parametrize("content", ["", "{", "[1,", '{"queue":', "\x00", '{"a":1}x', "[" * 3000])
    def test_what_is_not_json(self, http, content):
        answer = http.post("/api/v1/jobs", content=content, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422) and answer.json()["error"]["message"]

    @pytest.mark.parametrize("document", [
        7, "x", None, {}, {"queue": "q"}, {"queue": 7, "klass": "K"}, {"queue": "q", "klass": "K", "tags": "t"},
        {"queue": "q", "klass": "K", "unknown": 1}, {"queue": "q", "klass": "K", "priority": "high"}, [1], [[]],
        {"queue": "", "klass": "K"}, {"queue": "q", "klass": "K", "tags": [""]},
    ])
    def test_json_of_another_shape(self, api, document):
        status, answer = api("POST", "/jobs", document) if document is not None else (422, {"error": {"message": "x"}})
        assert status == 422 and answer["error"]["message"]
        assert api("GET", "/queues")[1] == {"queues": [], "total": 0, "next": None}

    def test_type_method_and_path(self, http):
        assert http.post("/api/v1/jobs", content="{}").status_code == 415
        assert http.put("/api/v1/jobs", json={}).status_code == 405
        assert http.get("/api/v1/nothing").status_code == 404
        assert http.get("/nothing").json()["error"]["code"] == "NOROUTE"
        for name in ("", "x" * 1025):
            answer = httpx.get(str(http.base_url) + "/api/v1/info", headers={"X-Haul-Tenant": name})
            assert answer.status_code == 400


class TestTenants:
    def test_default_is_a_name_for_the_one_without(self, server):
        one = httpx.get(server.url + "/api/v1/info").json()
        two = httpx.get(server.url + "/api/v1/info", headers={"X-Haul-Tenant": "default"}).json()
        assert one["tenant"] == two["tenant"] == "default"


class TestStopping:
    def test_who_waits_is_answered_and_nothing_is_lost(self):
        server = Server()
        try:
            url = server.url + "/api/v1"
            jid = httpx.post(url + "/jobs", json={"queue": "q", "klass": "K"}).json()["jid"]
            answers = []

            def wait():
                answers.append(httpx.post(url + "/pop", json={"worker": "w", "queues": ["none"], "wait": 60}, timeout=30))

            waiters = [threading.Thread(target=wait) for _ in range(5)]
            for waiter in waiters:
                waiter.start()
            time.sleep(0.5)
            began = time.monotonic()
            assert server.stop(signal.SIGTERM) == 0
            for waiter in waiters:
                waiter.join(10)
            assert time.monotonic() - began < 10
            assert [answer.status_code for answer in answers] == [503] * 5
            assert answers[0].json()["error"]["code"] == "STOPPING" and answers[0].headers["retry-after"]
            server.start()
            assert httpx.get(server.url + f"/api/v1/jobs/{jid}").json()["state"] == "waiting"
        finally:
            server.remove()
