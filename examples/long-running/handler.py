#!/usr/bin/env python3
"""haul work events --serve 2 -- python3 handler.py"""
import json
import sys


def handle(job):
    """Your code: returns the result, or raises."""
    return "hello, " + str(job["data"])


while True:
    line = sys.stdin.readline()
    if not line:
        break
    job = json.loads(line)
    if "cancel" in job:
        continue
    try:
        answer = {"id": job["id"], "result": handle(job)}
    except Exception as error:  # the job's failure, not the worker's
        answer = {"id": job["id"], "fail": str(error), "group": type(error).__name__}
    print(json.dumps(answer), flush=True)
