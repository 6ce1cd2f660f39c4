#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Checks that the output of `pfc export --openmetrics` is valid OpenMetrics with the right values.

usage: openmetrics.py SOURCE [LATER] [--json BEFORE [AFTER]]

SOURCE and LATER are files or http:// addresses, read in this order. The JSON
files are the output of `pfc read --json --per-cpu` for the same instances, read
before and after SOURCE: instances that did not change between the two must be
in SOURCE with exactly these values. Without AFTER no instance may have changed.

Prints what was checked, and each fault. The exit status is 1 if there was one.
"""

import argparse
import itertools
import json
import sys
import time
import urllib.request
from decimal import Decimal

from prometheus_client.openmetrics.parser import text_string_to_metric_families

PREFIX = "perfcounters_"
OWN = "pfc_"
MEDIA = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Units of instances that are exported as units of metrics; the others are plain numbers.
UNITS = {"bytes", "seconds", "cycles", "sectors", "packets", "pages"}
TYPES = {
    "counter": "counter",
    "time": "counter",
    "gauge": "gauge",
    "peak": "gauge",
    "histogram": "histogram",
}
# The year 2020: a machine's clock may be wrong, but not by that much.
EARLIEST = 1577836800

faults = 0


def fault(text):
    global faults
    faults += 1
    if faults <= 10:
        print("fault:", text)


def fetch(source):
    """Returns the text, and the time after it was read."""
    if source.startswith("http://"):
        request = urllib.request.Request(source, headers={"Accept": MEDIA})
        with urllib.request.urlopen(request, timeout=60) as answer:
            kind = answer.headers["Content-Type"]
            if kind != MEDIA:
                fault(f"{source}: Content-Type is {kind!r}")
            text = answer.read().decode("utf-8")
    else:
        with open(source, "rb") as file:
            text = file.read().decode("utf-8")
    return text, time.time()


class Scrape:
    """A text: its families as the parser returns them, its samples and its descriptions."""

    def __init__(self, source):
        self.source = source
        self.text, self.taken = fetch(source)
        if not self.text.endswith("\n# EOF\n") and self.text != "# EOF\n":
            fault(f"{source}: does not end with # EOF")
        self.described = {"TYPE": {}, "UNIT": {}, "HELP": {}}
        for line in self.text.split("\n"):
            if line.startswith("# ") and line != "# EOF":
                _, word, name, text = line.split(" ", 3)
                self.described[word][name] = text
        try:
            self.families = list(text_string_to_metric_families(self.text))
        except ValueError as error:
            fault(f"{source}: the parser says: {error}")
            self.families = []
        self.samples = {}
        for family in self.families:
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                if key in self.samples:
                    fault(f"{source}: {key} is there twice")
                self.samples[key] = sample.value
        print(f"{source}: {len(self.families)} families, {len(self.samples)} samples")
        if not any(f.name.startswith(PREFIX) for f in self.families):
            fault(f"{source}: no family begins with {PREFIX}")

    def check(self):
        for family in self.families:
            if not family.name.startswith((PREFIX, OWN)):
                fault(f"{family.name}: not a name of ours")
            if family.type not in set(TYPES.values()):
                fault(f"{family.name}: its type is {family.type}")
            if self.described["TYPE"].get(family.name) != family.type:
                fault(f"{family.name}: no # TYPE")
            if not family.documentation:
                fault(f"{family.name}: no # HELP")
            if self.described["UNIT"].get(family.name, "") != family.unit:
                fault(f"{family.name}: no # UNIT")
            if family.unit and not family.name.endswith("_" + family.unit):
                fault(f"{family.name}: does not end with {family.unit}")
            # A name that ends like one with a unit must have that unit.
            if family.name.endswith(("_seconds", "_bytes")) and not family.unit:
                fault(f"{family.name}: a unit in the name, but no # UNIT")
            self.check_births(family)
        own = {name: value for (name, _), value in self.samples.items() if name.startswith(OWN)}
        print(f"{self.source}: {own}")

    def check_births(self, family):
        """Checks that everything that only increases has the time since when."""
        if family.type == "gauge" or not family.name.startswith(PREFIX):
            return
        bare = lambda labels: tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        born = {bare(s.labels): s.value for s in family.samples if s.name.endswith("_created")}
        seen = {bare(s.labels) for s in family.samples if not s.name.endswith("_created")}
        if set(born) != seen:
            fault(f"{family.name}: _created is missing or alone: {set(born) ^ seen}")
        for labels, created in born.items():
            if not EARLIEST < created <= self.taken:
                fault(f"{family.name}{dict(labels)}: created at {created}, it is {self.taken}")


def compare_scrapes(first, later):
    """Checks that what only increases has not decreased, unless it was created again."""
    kinds = {f.name: f.type for f in later.families}
    grown = 0
    for (name, labels), value in later.samples.items():
        family, _, suffix = name.rpartition("_")
        if suffix not in ("total", "bucket") or (name, labels) not in first.samples:
            continue
        if kinds.get(family) not in ("counter", "histogram"):
            continue
        bare = tuple((k, v) for k, v in labels if k != "le")
        birth = (family + "_created", bare)
        if first.samples.get(birth) != later.samples.get(birth):
            if later.samples.get(birth, 0) < first.samples.get(birth, 0):
                fault(f"{name}{dict(labels)}: its birth went back")
            continue
        before = first.samples[(name, labels)]
        if value < before:
            fault(f"{name}{dict(labels)}: fell from {before} to {value}")
        grown += value > before
    print(f"{later.source}: {grown} samples have grown")


def exact(value, exponent):
    """Returns the float nearest to value * 10^exponent, computed in exact decimals."""
    return float(Decimal(value).scaleb(exponent))


def compare_values(scrape, before, after):
    """Checks that the text has the exact values of the instances that did not change."""
    by_name = {}
    for family in scrape.families:
        for sample in family.samples:
            if "name" in sample.labels and not sample.name.endswith("_created"):
                by_name.setdefault(sample.labels["name"], []).append((family, sample))
    same = {i["name"]: i for i in after["instances"]}
    cpus = [str(cpu) for cpu in before["cpus"]]
    compared = 0
    for instance in before["instances"]:
        name = instance["name"]
        other = same.get(name, {})
        idle = [other.get(k) for k in ("per_cpu", "incarnation")] == [
            instance[k] for k in ("per_cpu", "incarnation")
        ]
        # A gauge may have changed and returned to its old value.
        if not idle or (before is not after and instance["kind"] == "gauge"):
            continue
        found = by_name.get(name)
        if not found:
            fault(f"{name}: not in the text")
            continue
        family = found[0][0]
        if any(f is not family for f, _ in found):
            fault(f"{name}: in several families")
        if family.type != TYPES[instance["kind"]]:
            fault(f"{name}: a {instance['kind']}, exported as {family.type}")
        unit = instance["unit"] if instance["unit"] in UNITS else ""
        if family.unit != unit:
            fault(f"{name}: in {instance['unit']}, exported in {family.unit!r}")
        compare_instance(instance, cpus, [s for _, s in found])
        compared += 1
    print(f"{scrape.source}: {compared} instances compared with pfc read")
    if not compared:
        fault("nothing was idle, so nothing was compared")


def compare_instance(instance, cpus, samples):
    name, exponent = instance["name"], instance["exponent"]
    histogram = instance["kind"] == "histogram"
    if any("cpu" in s.labels for s in samples):
        wanted = dict(zip(cpus, instance["per_cpu"]))
    else:
        wanted = {None: instance["buckets"] if histogram else instance["value"]}
    got = {}
    for sample in samples:
        got.setdefault(sample.labels.get("cpu"), []).append(sample)
    if set(got) != set(wanted):
        fault(f"{name}: CPUs {sorted(map(str, got))}, not {sorted(map(str, wanted))}")
        return
    for cpu, value in wanted.items():
        if not histogram:
            have = [s.value for s in got[cpu]]
            if have != [exact(value, exponent)]:
                fault(f"{name} of CPU {cpu}: {have}, not {exact(value, exponent)}")
            continue
        bounds = [exact((1 << b) - 1, exponent) for b in range(len(value) - 1)]
        want = list(zip(bounds + [float("inf")], itertools.accumulate(value)))
        have = [(float(s.labels["le"]), s.value) for s in got[cpu]]
        if have != want:
            fault(f"{name} of CPU {cpu}: {have}, not {want}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source")
    parser.add_argument("later", nargs="?")
    parser.add_argument("--json", nargs="+", metavar="FILE", default=[])
    args = parser.parse_args()
    scrape = Scrape(args.source)
    scrape.check()
    if args.later:
        later = Scrape(args.later)
        later.check()
        compare_scrapes(scrape, later)
    if args.json:
        documents = []
        for path in args.json:
            with open(path, encoding="utf-8") as file:
                documents.append(json.load(file))
        compare_values(scrape, documents[0], documents[-1])
    print(f"{faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
