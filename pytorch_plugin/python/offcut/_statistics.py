"""Counters and accounting of one device, as the C interface has them.

The counters are read from the list from which the C struct is made (share/counters.def): there is
no second one that could drift.
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import NamedTuple

from offcut import _library
from offcut._paths import part

_ENTRY = re.compile(r"^OFFCUT_(GAUGE|COUNT|LEVEL)\((\w+),", re.MULTILINE)
_SIZES = ("all", "small", "large")


class Gauge(NamedTuple):
    """A level, its peak, and how much it rose and fell in all."""

    current: int
    peak: int
    risen: int
    fallen: int


class _CGauge(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in Gauge._fields)


class _CAccounting(ctypes.Structure):
    _fields_ = (
        ("live_bytes", ctypes.c_uint64),
        ("rounding_bytes", ctypes.c_uint64),
        ("pending_bytes", ctypes.c_uint64),
        ("private_pools_free_bytes", ctypes.c_uint64),
        ("pinned_bytes", ctypes.c_uint64),
        ("idle_bytes", ctypes.c_uint64),
        ("driver_pool_free_bytes", ctypes.c_uint64),
        ("outside_bytes", ctypes.c_int64),
        ("reserved_bytes", ctypes.c_uint64),
        ("device_used_bytes", ctypes.c_uint64),
        ("foreign_bytes", ctypes.c_uint64),
    )


@functools.cache
def _counters_struct() -> type[ctypes.Structure]:
    listed = _ENTRY.findall(part("share/counters.def").read_text())
    types = {"GAUGE": _CGauge * 3, "COUNT": ctypes.c_uint64, "LEVEL": ctypes.c_uint64}
    fields = [(name, types[kind]) for kind, name in listed]
    return type("offcut_counters", (ctypes.Structure,), {"_fields_": fields})


def counters(device: int = 0) -> dict[str, int | dict[str, Gauge]]:
    """All counters of a device; a gauge for ``all`` blocks, ``small`` and ``large`` ones."""
    struct = _counters_struct()()
    _library.check(_library.load().offcut_get_counters(device, ctypes.byref(struct)), "counters")
    result: dict[str, int | dict[str, Gauge]] = {}
    for field in struct._fields_:
        value = getattr(struct, field[0])
        if isinstance(value, ctypes.Array):
            gauges = (Gauge(*(getattr(gauge, name) for name in Gauge._fields)) for gauge in value)
            result[field[0]] = dict(zip(_SIZES, gauges, strict=True))
        else:
            result[field[0]] = value
    return result


def accounting(device: int = 0) -> dict[str, int]:
    """Where the memory of a device is, in bytes; the parts add up exactly."""
    struct = _CAccounting()
    _library.check(
        _library.load().offcut_get_accounting(device, ctypes.byref(struct)), "accounting"
    )
    return {field[0]: int(getattr(struct, field[0])) for field in struct._fields_}
