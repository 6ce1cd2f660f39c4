/*
 * The events of the emulated PMU.
 *
 * The events are synthetic: each one occurs at a fixed rate per instruction, so
 * that a test knows every count in advance. Documentation/emulated-pmu.md has
 * the same table, and tests/host/pmu_events.sh compares the two.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "qemu/osdep.h"
#include "internal.h"

static const X86PMUEvent events[] = {
    /* name              Intel  AMD          events per instructions */
    { "instructions",     0x00c0, 0x0c0,       1, 1 },
    { "cycles",           0x003c, 0x076,       5, 4 },
    { "reference cycles", 0x013c, 0x100000120, 1, 1 },
    { "slots",            0x01a4, 0,           5, 1 },
    { "branches",         0x00c4, 0x0c2,       1, 8 },
    { "branch misses",    0x00c5, 0x0c3,       1, 128 },
    { "cache references", 0x4f2e, 0xff60,      1, 64 },
    { "cache misses",     0x412e, 0x0964,      1, 1024 },
    { "cache references", 0,      0x077d,      1, 64 },
    { "cache misses",     0,      0x077e,      1, 1024 },
    { "pending misses",   0x0148, 0,           1, 16 },
    { "precise",          0x01c0, 0,           1, 2 },
};

/* The events of fixed counters 0 to 3. */
static const uint32_t fixed[X86_PMU_MAX_FIXED] = {
    0x00c0, 0x003c, 0x013c, 0x01a4
};

const X86PMUEvent *x86_pmu_event_intel(uint64_t select)
{
    int i;

    select &= SELECT_EVENT | SELECT_UMASK;
    for (i = 0; i < ARRAY_SIZE(events); i++) {
        if (events[i].intel && events[i].intel == select) {
            return &events[i];
        }
    }
    return NULL;
}

/* AMD's event number has four more bits, 32 to 35. */
const X86PMUEvent *x86_pmu_event_amd(uint64_t select)
{
    int i;

    select &= SELECT_EVENT | SELECT_UMASK | 0xf00000000ull;
    for (i = 0; i < ARRAY_SIZE(events); i++) {
        if (events[i].amd && events[i].amd == select) {
            return &events[i];
        }
    }
    return NULL;
}

/*
 * With pmu-constrained, these events can be counted by some general counters only,
 * as on Haswell. Each bit of @counters stands for a general counter that can count
 * the event. The other counters do not count the event.
 */
static const struct {
    uint32_t intel;
    uint32_t counters;
} constrained[] = {
    { 0x0148, 0x4 },
    { 0x01c0, 0x2 },
};

bool x86_pmu_event_counts_on(const X86PMUEvent *event, unsigned int counter)
{
    int i;

    for (i = 0; event && i < ARRAY_SIZE(constrained); i++) {
        if (constrained[i].intel == event->intel) {
            return constrained[i].counters & BIT(counter);
        }
    }
    return true;
}

const X86PMUEvent *x86_pmu_event_fixed(unsigned int n)
{
    return x86_pmu_event_intel(fixed[n]);
}
