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
OWN_PREFIX = "pfc_"
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Units of instances that pfc export keeps as units of metrics. Instances in other units are
# exported as plain numbers.
UNITS = {"bytes", "seconds", "cycles", "sectors", "packets", "pages"}
TYPES = {
    "counter": "counter",
    "time": "counter",
    "gauge": "gauge",
    "peak": "gauge",
    "histogram": "histogram",
}
# The earliest creation time that is accepted, in seconds since 1970: the beginning of 2020. The
# clock of a machine may be wrong, but not by years.
MIN_CREATED = 1577836800

faults = 0


def report_fault(text):
    global faults
    faults += 1
    if faults <= 10:
        print("fault:", text)


def fetch(source):
    """Returns the text of a source, and the time after the text was read."""
    if source.startswith("http://"):
        request = urllib.request.Request(source, headers={"Accept": CONTENT_TYPE})
        with urllib.request.urlopen(request, timeout=60) as answer:
            kind = answer.headers["Content-Type"]
            if kind != CONTENT_TYPE:
                report_fault(f"{source}: Content-Type is {kind!r}")
            text = answer.read().decode("utf-8")
    else:
        with open(source, "rb") as file:
            text = file.read().decode("utf-8")
    return text, time.time()


class Scrape:
    """An exported text: the families that the parser returns, the samples and the descriptions."""

    def __init__(self, source):
        self.source = source
        self.text, self.read_at = fetch(source)
        if not self.text.endswith("\n# EOF\n") and self.text != "# EOF\n":
            report_fault(f"{source}: does not end with # EOF")
        self.comments = {"TYPE": {}, "UNIT": {}, "HELP": {}}
        for line in self.text.split("\n"):
            if line.startswith("# ") and line != "# EOF":
                _, word, name, text = line.split(" ", 3)
                self.comments[word][name] = text
        try:
            self.families = list(text_string_to_metric_families(self.text))
        except ValueError as error:
            report_fault(f"{source}: the parser says: {error}")
            self.families = []
        self.samples = {}
        for family in self.families:
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                if key in self.samples:
                    report_fault(f"{source}: {key} is there twice")
                self.samples[key] = sample.value
        print(f"{source}: {len(self.families)} families, {len(self.samples)} samples")
        if not any(f.name.startswith(PREFIX) for f in self.families):
            report_fault(f"{source}: no family begins with {PREFIX}")

    def check(self):
        for family in self.families:
            if not family.name.startswith((PREFIX, OWN_PREFIX)):
                report_fault(f"{family.name}: not a name of ours")
            if family.type not in set(TYPES.values()):
                report_fault(f"{family.name}: its type is {family.type}")
            if self.comments["TYPE"].get(family.name) != family.type:
                report_fault(f"{family.name}: no # TYPE")
            if not family.documentation:
                report_fault(f"{family.name}: no # HELP")
            if self.comments["UNIT"].get(family.name, "") != family.unit:
                report_fault(f"{family.name}: no # UNIT")
            if family.unit and not family.name.endswith("_" + family.unit):
                report_fault(f"{family.name}: does not end with {family.unit}")
            # A metric whose name ends with a unit must have that unit.
            if family.name.endswith(("_seconds", "_bytes")) and not family.unit:
                report_fault(f"{family.name}: a unit in the name, but no # UNIT")
            self.check_created(family)
        own = {k[0]: v for k, v in self.samples.items() if k[0].startswith(OWN_PREFIX)}
        print(f"{self.source}: {own}")

    def check_created(self, family):
        """Checks that each sample of a family that only increases has a creation time."""
        if family.type == "gauge" or not family.name.startswith(PREFIX):
            return
        series = lambda labels: tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        created_at, seen = {}, set()
        for s in family.samples:
            if s.name.endswith("_created"):
                created_at[series(s.labels)] = s.value
            else:
                seen.add(series(s.labels))
        if set(created_at) != seen:
            report_fault(f"{family.name}: _created is missing or alone: {set(created_at) ^ seen}")
        for labels, created in created_at.items():
            if not MIN_CREATED < created <= self.read_at:
                name = f"{family.name}{dict(labels)}"
                report_fault(f"{name}: created at {created}, it is {self.read_at}")


def compare_scrapes(first, later):
    """Checks that no counter or bucket has decreased, unless it was created again."""
    kinds = {f.name: f.type for f in later.families}
    nr_increased = 0
    for (name, labels), value in later.samples.items():
        family, _, suffix = name.rpartition("_")
        if suffix not in ("total", "bucket") or (name, labels) not in first.samples:
            continue
        if kinds.get(family) not in ("counter", "histogram"):
            continue
        series = tuple((k, v) for k, v in labels if k != "le")
        created_key = (family + "_created", series)
        if first.samples.get(created_key) != later.samples.get(created_key):
            if later.samples.get(created_key, 0) < first.samples.get(created_key, 0):
                report_fault(f"{name}{dict(labels)}: its creation time decreased")
            continue
        before = first.samples[(name, labels)]
        if value < before:
            report_fault(f"{name}{dict(labels)}: fell from {before} to {value}")
        nr_increased += value > before
    print(f"{later.source}: {nr_increased} samples have grown")


def scale(value, exponent):
    """Returns the float nearest to value * 10^exponent, computed in exact decimals."""
    return float(Decimal(value).scaleb(exponent))


def compare_values(scrape, before, after):
    """Checks that the text has the exact values of the instances that did not change."""
    by_name = {}
    for family in scrape.families:
        for sample in family.samples:
            if "name" in sample.labels and not sample.name.endswith("_created"):
                by_name.setdefault(sample.labels["name"], []).append((family, sample))
    instances_after = {i["name"]: i for i in after["instances"]}
    cpus = [str(cpu) for cpu in before["cpus"]]
    compared = 0
    for instance in before["instances"]:
        name = instance["name"]
        other = instances_after.get(name, {})
        idle = [other.get(k) for k in ("per_cpu", "incarnation")] == [
            instance[k] for k in ("per_cpu", "incarnation")
        ]
        # If there are two reads, a gauge is not compared: between the reads it may have changed and
        # returned to its old value.
        if not idle or (before is not after and instance["kind"] == "gauge"):
            continue
        found = by_name.get(name)
        if not found:
            report_fault(f"{name}: not in the text")
            continue
        family = found[0][0]
        if any(f is not family for f, _ in found):
            report_fault(f"{name}: in several families")
        if family.type != TYPES[instance["kind"]]:
            report_fault(f"{name}: a {instance['kind']}, exported as {family.type}")
        unit = instance["unit"] if instance["unit"] in UNITS else ""
        if family.unit != unit:
            report_fault(f"{name}: in {instance['unit']}, exported in {family.unit!r}")
        compare_instance(instance, cpus, [s for _, s in found])
        compared += 1
    print(f"{scrape.source}: {compared} instances compared with pfc read")
    if not compared:
        report_fault("nothing was idle, so nothing was compared")


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
        report_fault(f"{name}: CPUs {sorted(map(str, got))}, not {sorted(map(str, wanted))}")
        return
    for cpu, value in wanted.items():
        if not histogram:
            have = [s.value for s in got[cpu]]
            if have != [scale(value, exponent)]:
                report_fault(f"{name} of CPU {cpu}: {have}, not {scale(value, exponent)}")
            continue
        bounds = [scale((1 << b) - 1, exponent) for b in range(len(value) - 1)]
        want = list(zip(bounds + [float("inf")], itertools.accumulate(value)))
        have = [(float(s.labels["le"]), s.value) for s in got[cpu]]
        if have != want:
            report_fault(f"{name} of CPU {cpu}: {have}, not {want}")


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
