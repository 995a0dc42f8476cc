"""The table of bench/compare-qless: reads its measurements, prints figures and ratios, keeps a small JSON."""

import json
import os
import platform
import sys

work, result = sys.argv[1:]
with open(os.path.join(work, "all.jsonl")) as lines:
    measured = {entry["name"]: entry for entry in map(json.loads, lines)}


def phase(name):
    return measured[name]["phases"][0]


def version(server):
    with open(os.path.join(work, server + ".version")) as text:
        return text.read().strip()


def processor():
    with open("/proc/cpuinfo") as text:
        names = [line.split(":")[1].strip() for line in text if line.startswith("model name")]
    return "%s x %d" % (names[0] if names else platform.machine(), os.cpu_count())


rows = []
print("%-48s %10s %10s %8s %8s %9s %9s %7s" % ("", "per s", "cmds/s", "p50 ms", "p99 ms", "cpu us", "fsyncs", "bytes"))
for name, entry in measured.items():
    one = entry["phases"][0]
    worst = max(one["latency"], key=lambda latency: latency["p99_ms"])
    show = lambda value, form: "-" if value is None else form % value
    print("%-48s %10.0f %10.0f %8.2f %8.2f %9.1f %9s %7s" % (
        name, one["jobs_per_second"], one["commands_per_second"], worst["p50_ms"], worst["p99_ms"],
        one["server_cpu_micros_per_job"], show(one["fsyncs_per_job"], "%.4f"), show(one["bytes_written_per_job"], "%.0f")))
    rows.append({
        "name": name,
        "per_second": round(one["jobs_per_second"]),
        "commands_per_second": round(one["commands_per_second"]),
        "p50_ms": round(worst["p50_ms"], 3),
        "p99_ms": round(worst["p99_ms"], 3),
        "server_cpu_micros": round(one["server_cpu_micros_per_job"], 2),
        "fsyncs": one["fsyncs_per_job"],
        "bytes": one["bytes_written_per_job"],
        "generator_cpu_share": round(one["generator_cpu_share"], 2),
    })


def ratio(above, below, field="jobs_per_second"):
    return round(phase(above)[field] / phase(below)[field], 3)


ratios = {}
for dialect in ("qless-0.11.4", "native"):
    for setting, bar in (("always", 10), ("off", 5)):
        name = "haul %s / redis %s, qless-0.11.4 (at least %d)" % (dialect, setting, bar)
        ratios[name] = ratio("haul always, " + dialect, "redis %s, qless-0.11.4" % setting)
for setting in ("always", "off"):
    ratios["haul / redis %s, reqless-0.13.3" % setting] = ratio(
        "haul always, reqless-0.13.3", "redis %s, reqless-0.13.3" % setting)
for connections in (16, 256):
    name = "haul unpipelined lifecycle commands / ping, %d connections (at least 0.6)" % connections
    ratios[name] = ratio("haul always, native unpipelined, %d" % connections,
                         "haul always, ping unpipelined, %d" % connections, "commands_per_second")
ratios["haul lifecycle commands / ping, pipelines of 16"] = ratio(
    "haul always, native", "haul always, ping", "commands_per_second")
print()
for name, value in ratios.items():
    print("%-88s %8.2f" % (name, value))

with open(result, "w") as out:
    json.dump({
        "machine": processor(),
        "kernel": platform.release(),
        "versions": [version("haul"), version("redis")],
        "seconds_each": float(os.environ["SECONDS_EACH"]),
        "run_with": os.environ["RUN"],
        "ratios": ratios,
        "measured": rows,
    }, out, indent=1)
    out.write("\n")
