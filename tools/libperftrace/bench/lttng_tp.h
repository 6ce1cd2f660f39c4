/* SPDX-License-Identifier: GPL-2.0 */
/* LTTng-UST's description of the event with which an event of perftrace is compared. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./lttng_tp.h"

#if !defined(_LTTNG_TP_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define _LTTNG_TP_H

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(bench, pair,
	LTTNG_UST_TP_ARGS(uint32_t, number, uint64_t, sum),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint32_t, number, number)
			    lttng_ust_field_integer(uint64_t, sum, sum)))

#endif

#include <lttng/tracepoint-event.h>
