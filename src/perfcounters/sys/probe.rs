// SPDX-License-Identifier: GPL-2.0

//! Probes on tracepoints, for providers.
