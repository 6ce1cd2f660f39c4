# SPDX-License-Identifier: GPL-2.0-or-later
# The devices of the guests' machine, and no others.
CONFIG_Q35=y
# A slow kernel calibrates its time stamp counter with the HPET.
CONFIG_HPET=y
CONFIG_ISA_DEBUG=y
CONFIG_TEST_DEVICES=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BLK=y
