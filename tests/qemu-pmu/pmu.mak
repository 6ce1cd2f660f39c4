# SPDX-License-Identifier: GPL-2.0-or-later
# The machine of the guests, and nothing else.
CONFIG_Q35=y
# A slow kernel finds the pace of its time stamp counter by it.
CONFIG_HPET=y
CONFIG_ISA_DEBUG=y
CONFIG_TEST_DEVICES=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BLK=y
