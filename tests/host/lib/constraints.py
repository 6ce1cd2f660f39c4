# SPDX-License-Identifier: GPL-2.0
"""Extracts perf's event constraints for Intel: the counters that can count an event, and the events
that need a second register, for each CPU model.

Arguments: intel-family.h and core.c of arch/x86, and the release of their kernel.
Prints tools/perfmon/src/constraints/intel.rs.
"""

import re
import sys

TABLE = re.compile(r"^static struct event_constraint intel_([a-z0-9]+)_event_constraints\[\]")
RULE = re.compile(r"^\t([A-Z_]+)\(([^)]*)\)")
INIT = re.compile(r"^static .*void intel_pmu_init_([a-z_]+)\(")
EXTRAS = re.compile(r"^static struct extra_reg intel_([a-z0-9]+)_extra_regs\[\]")
EXTRA = re.compile(r"^\tINTEL_UEVENT_EXTRA_REG\((\w+), MSR_(\w+),")
LATENCY = re.compile(r"^\tINTEL_UEVENT_PEBS_LDLAT_EXTRA_REG\((\w+)\)")
SETS_RULES = re.compile(r"event_constraints\)? = intel_([a-z0-9]+)_event_constraints;")
SETS_EXTRAS = re.compile(r"\bextra_regs\)? = intel_([a-z0-9]+)_extra_regs;")
CALLS_INIT = re.compile(r"\tintel_pmu_init_([a-z_]+)\((?:NULL|pmu|&pmu->pmu)\)")

# The table leaves out the constraints of these two macros. pfc knows the fixed counters without the
# table, and does not support top-down metrics.
LEFT_OUT = {"FIXED_EVENT_CONSTRAINT", "METRIC_EVENT_CONSTRAINT"}


def parse_rule(macro, arguments):
    """Returns the first and the last event code, the mask of the codes, and the counters."""
    code, *rest = (int(a, 0) for a in arguments)
    counters = rest[-1]
    if macro in ("INTEL_EVENT_CONSTRAINT", "INTEL_EXCLEVT_CONSTRAINT"):
        return code, code, 0xFF, counters
    if macro == "INTEL_EVENT_CONSTRAINT_RANGE":
        return code, rest[0], 0xFF, counters
    if macro in ("INTEL_UEVENT_CONSTRAINT", "INTEL_EXCLUEVT_CONSTRAINT"):
        return code, code, 0xFFFF, counters
    if macro == "INTEL_UBIT_EVENT_CONSTRAINT":
        return code, code, 0xFF | code, counters
    sys.exit(f"constraints.py: unknown macro {macro}; add it to parse_rule()")


def read_models(path):
    """Returns family and model by name, from intel-family.h."""
    found = {}
    for line in open(path, encoding="utf-8"):
        match = re.match(r"#define (INTEL_\w+)\s+IFM\((\w+), (\w+)\)", line)
        if match and match[3].startswith("0x"):
            found[match[1]] = (int(match[2], 0), int(match[3], 0))
    return found


def read_constraints(path):
    """Returns the rules by table, the second registers by table, and the tables by model name."""
    tables, extras, sets, of_model = {}, {}, {}, {}
    table = extra = function = None
    cases, new_list, labels = [], True, {}

    def add_to_cases(found):
        for case in cases:
            of_model.setdefault(case, []).extend(f for f in found if f not in of_model[case])

    def tables_set_by(line):
        """Returns the tables that a line of code sets, directly or by calling an init function."""
        found = []
        if match := SETS_RULES.search(line):
            found.append(("rules", match[1]))
        if match := SETS_EXTRAS.search(line):
            found.append(("extras", match[1]))
        if match := CALLS_INIT.search(line):
            found += sets.get(match[1], {}).items()
        return found

    for line in open(path, encoding="utf-8"):
        if match := TABLE.match(line):
            table = match[1]
            tables[table] = []
        elif match := EXTRAS.match(line):
            extra = match[1]
            extras[extra] = []
        elif match := INIT.match(line):
            function = match[1]
        elif line.startswith("__init int intel_pmu_init("):
            function = "init"
        elif line.startswith("}"):
            table = extra = function = None
        elif table and (match := RULE.match(line)):
            if match[1] not in LEFT_OUT:
                tables[table].append(parse_rule(match[1], match[2].split(",")))
        elif extra and (match := EXTRA.match(line)):
            extras[extra].append((int(match[1], 0), match[2]))
        elif extra and (match := LATENCY.match(line)):
            extras[extra].append((int(match[1], 0), "PEBS_LD_LAT_THRESHOLD"))
        elif extra and "EXTRA_REG" in line:
            sys.exit(f"constraints.py: unknown macro in '{line.strip()}'; add a pattern for it")
        elif function == "init":
            if match := re.match(r"\tcase (INTEL_\w+):", line):
                cases = [] if new_list else cases
                new_list = False
                cases.append(match[1])
            elif line.startswith("\tdefault:"):
                cases = []
            elif match := re.match(r"\t\tgoto (\w+);", line):
                labels.setdefault(match[1], []).extend(cases)
                cases, new_list = [], False
            elif match := re.match(r"\t(\w+):$", line):
                cases = cases + labels.pop(match[1], [])
                new_list = False
            elif line.startswith("\t\tbreak;"):
                new_list = True
            else:
                add_to_cases(tables_set_by(line))
        elif function:
            # If several lines of an initialization function set a table of the same kind, the last
            # line counts.
            sets.setdefault(function, {}).update(tables_set_by(line))
    return tables, extras, of_model


def main():
    models = read_models(sys.argv[1])
    tables, extras, of_model = read_constraints(sys.argv[2])
    lines, used = [], set()
    for name, found in of_model.items():
        rules = [n for kind, n in found if kind == "rules" and tables.get(n)]
        more = [n for kind, n in found if kind == "extras"]
        if (rules or more) and name in models:
            used.update(("rules", n) for n in rules)
            used.update(("extras", n) for n in more)
            family, model = models[name]
            rules = ", ".join("&" + n.upper() for n in rules)
            more = ", ".join(f"&{n.upper()}_EXTRA" for n in more)
            lines.append((family, model, rules, more))
    print("// SPDX-License-Identifier: GPL-2.0\n")
    release = ".".join(sys.argv[3].split(".")[:2])
    print("//! The constraints of Intel processors. tests/host/constraints.sh made this file from perf's")
    print(f"//! arch/x86/events/intel/core.c in Linux {release}.\n")
    print("use super::{extra_msr, rule, CounterRule, ExtraMsr, Model};")
    for name, rules in tables.items():
        if ("rules", name) in used:
            print(f"\nstatic {name.upper()}: [CounterRule; {len(rules)}] = [")
            for first, last, mask, counters in rules:
                print(f"    rule({first:#x}, {last:#x}, {mask:#x}, {counters:#x}),")
            print("];")
    for name, codes in extras.items():
        if ("extras", name) in used:
            head = f"static {name.upper()}_EXTRA: [ExtraMsr; {len(codes)}] = ["
            items = [f'extra_msr({code:#x}, "{register}")' for code, register in codes]
            line = head + ", ".join(items) + "];"
            # Break the line where rustfmt would break it.
            if len(line) > 100:
                line = head + "".join(f"\n    {item}," for item in items) + "\n];"
            print(f"\n{line}")
    print(
        "\n/// The Intel processor models. Each entry has the family number, the model number, the tables of"
        "\n/// rules (which counters can count an event), and the tables of events that need a register in"
        "\n/// addition to the counter's control register."
    )
    print("pub(super) static INTEL_MODELS: &[Model] = &[")
    for family, model, rules, more in sorted(lines):
        print(f"    ({family}, {model:#x}, &[{rules}], &[{more}]),")
    print("];")


main()
