#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Compares the data that a real Prometheus has scraped from `pfc export` with expected data.

usage: prometheus.py same FILE         its samples are those of the text in FILE
       prometheus.py metadata FILE     its types, units and help texts are those of FILE
       prometheus.py dashboard FILE    each expression of a dashboard returns data
       prometheus.py rules             each alert was evaluated without an error
       prometheus.py times CPUS        all kinds of time add up to that many CPUs' time
"""

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families

API = "http://127.0.0.1:9090/api/v1/"
# Labels that Prometheus itself adds.
ADDED_LABELS = {"instance", "job", "__name__"}


def get(path, **parameters):
    query = urllib.parse.urlencode(parameters)
    try:
        with urllib.request.urlopen(f"{API}{path}?{query}", timeout=60) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        sys.exit(f"{path} {parameters}: {error.read().decode()}")


def run_query(expr):
    return get("query", query=expr)["result"]


def read_families(path):
    with open(path, encoding="utf-8") as file:
        return list(text_string_to_metric_families(file.read()))


def series_of(name, labels):
    rest = {k: v for k, v in labels.items() if k not in ADDED_LABELS}
    # The upper bound of a bucket is compared as a number, because it can be written in several
    # ways.
    if "le" in rest:
        rest["le"] = float(rest["le"])
    return name, tuple(sorted(rest.items()))


def compare_samples(path):
    expected = {}
    for family in read_families(path):
        for sample in family.samples:
            if family.name.startswith("perfcounters_") and not sample.name.endswith("_created"):
                expected[series_of(sample.name, sample.labels)] = sample.value
    found = {}
    for name in sorted({name for name, _ in expected}):
        for one in run_query(name):
            found[series_of(name, one["metric"])] = float(one["value"][1])
    wrong = [k for k in expected.keys() | found.keys() if expected.get(k) != found.get(k)]
    for k in wrong[:5]:
        print(k, "is", found.get(k), "not", expected.get(k))
    print(f"{len(expected)} samples, {len(wrong)} wrong")
    return bool(expected) and not wrong


def compare_metadata(path):
    known = get("metadata")
    wrong = 0
    all_families = read_families(path)
    for family in all_families:
        want = {"type": family.type, "unit": family.unit, "help": family.documentation}
        if known.get(family.name) != [want]:
            wrong += 1
            print(f"{family.name}: {known.get(family.name)}, not {want}")
    print(f"{len(all_families)} families, {wrong} wrong")
    return len(all_families) > 10 and not wrong


def check_dashboard(path):
    with open(path, encoding="utf-8") as file:
        board = json.load(file)
    variables = {"$__rate_interval": "20s", "$instance": ".*", "$job": ".*"}
    # Variables that Grafana replaces in expressions: those of the dashboard, and $__rate_interval.
    names = {f"${v['name']}" for v in board["templating"]["list"]} | {"$__rate_interval"}
    wrong = asked = 0
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            expr = target["expr"]
            unknown = set(re.findall(r"\$\w+", expr)) - names
            for word, value in variables.items():
                expr = expr.replace(word, value)
            asked += 1
            result = run_query(expr)
            labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            missing = labels - set(result[0]["metric"]) if result else set()
            if not result or unknown or missing:
                wrong += 1
                print(f"{panel['title']}: {expr}: {len(result)} results, {unknown} {missing}")
    for variable in board["templating"]["list"]:
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable.get("definition", ""))
        if match:
            asked += 1
            expr, label = match[1].replace("$job", ".*"), match[2]
            if not any(label in one["metric"] for one in run_query(expr)):
                wrong += 1
                print(f"variable {variable['name']}: no {label} in {expr}")
    print(f"{asked} expressions, {wrong} wrong")
    return asked > 40 and not wrong


def check_rules():
    found = [rule for group in get("rules")["groups"] for rule in group["rules"]]
    wrong = [r for r in found if r["health"] != "ok"]
    for rule in wrong:
        print(rule["name"], rule["health"], rule.get("lastError"))
    print(f"{len(found)} alerts, {len(wrong)} wrong")
    return len(found) >= 7 and not wrong


def check_times(cpus):
    """Checks by how much the sum of all kinds of time has increased between two scrapes.

    On each CPU the increase must be the time between the two scrapes. This time is only known
    within bounds: the timestamp of a scrape is its beginning, and the values are read at some
    time before its end.
    """
    kinds = "user|system|interrupt|idle"
    series = run_query(f'{{__name__=~"perfcounters_ppa_({kinds})_time_seconds_total"}}[30s]')
    scrapes = run_query('scrape_duration_seconds{job="perfcounters"}[30s]')[0]["values"]
    durations = {t: float(v) for t, v in scrapes}
    sums = {}
    for one in series:
        for stamp, value in one["values"]:
            sums.setdefault(stamp, []).append(float(value))
    stamps = sorted(t for t, v in sums.items() if t in durations and len(v) == len(series))
    first, last = stamps[0], stamps[-1]
    increase = (sum(sums[last]) - sum(sums[first])) / int(cpus)
    low, high = last - first - durations[first], last - first + durations[last]
    print(f"{len(series)} series: {increase} s a CPU in {low} to {high} s, {len(stamps)} scrapes")
    return len(series) >= 4 * int(cpus) and low > 15 and low * 0.995 <= increase <= high * 1.005


COMMANDS = {
    "same": compare_samples,
    "metadata": compare_metadata,
    "dashboard": check_dashboard,
    "rules": check_rules,
    "times": check_times,
}

if __name__ == "__main__":
    sys.exit(0 if COMMANDS[sys.argv[1]](*sys.argv[2:]) else 1)
