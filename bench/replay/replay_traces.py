"""What the arena layout makes of the traces of real runs: memory, time of moving, speed.

Each trace is replayed into the allocator over a simulated device that runs 0, 5 or 50 ms behind the
host. Times of the driver are modelled by measured costs (allocator/replay/driver_costs.h); only the
speed of replay is a time of this machine, by the CPU clock of the one thread. Writes everything as
JSON, and prints the bars.

  live/reserved      without a cap
  bound              the most that it could be without waits of the host, however granules move
  2nd half           time of moving granules in the second half of the trace / that half
  smallest cap       that completes without a wait of the host / peak live
  moves at 1.02      time of moving granules under a cap of 1.02 x peak live / the trace
  first growth       time of creating, mapping and opening granules, beside native's cudaMalloc
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _results import ROOT, provenance, results_folder, to_json

BUILD = Path(os.environ.get("OFFCUT_TEST_BUILD_DIR", ROOT / "build" / "release"))
TRACES = ROOT / "bench" / "traces"
# Of several streams; the others have one.
SEVERAL_STREAMS = ("fsdp1", "fsdp2", "ddp")
NAMES = ("llama_varlen", "llama_ckpt_varlen", "moe", "detect", "rlhf", *SEVERAL_STREAMS)

LIVE_OVER_RESERVED_MIN = 0.98
LIVE_OVER_RESERVED_MIN_SEVERAL = 0.95
REMAP_MAX = 0.01
SMALLEST_CAP_MAX = 1.02
EVENTS_PER_SECOND_MIN = 5e6


def bars(figures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every bar with the worst figure that it holds for, and where that was."""
    found: dict[str, dict[str, Any]] = {}

    def hold(bar: str, limit: float, figure: float, where: str, *, least: bool) -> None:
        worst = found.setdefault(bar, {"limit": limit, "worst": figure, "where": where})
        if (figure < worst["worst"]) if least else (figure > worst["worst"]):
            worst.update(worst=figure, where=where)
        worst["met"] = worst["worst"] >= limit if least else worst["worst"] <= limit

    for trace in figures:
        name = trace["trace"]
        several = name in SEVERAL_STREAMS
        for lag, at in trace["by_lag_ms"].items():
            where = f"{name}, lag {lag} ms"
            uncapped, capped = at["uncapped"], at["cap_1_02"]
            hold(
                f"live/reserved, {'several streams' if several else 'one stream'}",
                LIVE_OVER_RESERVED_MIN_SEVERAL if several else LIVE_OVER_RESERVED_MIN,
                uncapped["live_over_reserved"],
                where,
                least=True,
            )
            half = uncapped["second_half_remap_over_its_span"]
            hold("moving in the 2nd half", REMAP_MAX, half, where, least=False)
            if several:
                continue
            cap = at["smallest_cap"]["over_live"]
            hold("smallest cap / live", SMALLEST_CAP_MAX, cap, where, least=False)
            moving = capped["remap_over_span"] if capped["completed"] else float("inf")
            hold("moving at a cap of 1.02", REMAP_MAX, moving, where, least=False)
        speed = trace["speed"]["events_per_second_median"]
        hold("events per second", EVENTS_PER_SECOND_MIN, speed, name, least=True)
    return [{"bar": bar, **rest} for bar, rest in found.items()]


def table(figures: list[dict[str, Any]]) -> str:
    head = (
        f"{'trace':18} {'lag':>3} {'live/res':>8} {'bound':>6} {'2nd half':>8} {'moves':>7} "
        f"{'cap/live':>8} {'waiting':>8} {'at 1.02':>8} {'waits':>5}"
    )
    lines = [head]
    for trace in figures:
        for lag, at in trace["by_lag_ms"].items():
            uncapped, smallest, capped = at["uncapped"], at["smallest_cap"], at["cap_1_02"]
            moving = f"{capped['remap_over_span']:8.2%}" if capped["completed"] else "  failed"
            lines.append(
                f"{trace['trace']:18} {lag:>3} {uncapped['live_over_reserved']:8.4f} "
                f"{at['live_over_least_reserved']:6.3f} "
                f"{uncapped['second_half_remap_over_its_span']:8.2%} {uncapped['moves']:7} "
                f"{smallest['over_live']:8.4f} {smallest['over_live_with_waits']:8.4f} "
                f"{moving} {capped['waits']:5}"
            )
    lines.append(f"\n{'trace':18} {'first growth':>13} {'native':>9} {'M events/s':>10}")
    for trace in figures:
        growth = trace["first_growth"]
        lines.append(
            f"{trace['trace']:18} {growth['ms']:10.0f} ms {growth['native_cudamalloc_ms']:6.0f} ms "
            f"{trace['speed']['events_per_second_median'] / 1e6:10.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="of the speed")
    parser.add_argument("--conf", default="", help="options of the allocator, as in OFFCUT_CONF")
    parser.add_argument("--traces", nargs="+", default=NAMES, choices=NAMES, metavar="NAME")
    parser.add_argument("--out", type=Path, default=results_folder() / "replay_traces.json")
    arguments = parser.parse_args()

    done = subprocess.run(
        [
            *(BUILD / "bench" / "replay_figures", "--rounds", str(arguments.rounds)),
            *("--conf", arguments.conf),
            *(TRACES / f"{name}.csv.zst" for name in arguments.traces),
        ],
        stdout=subprocess.PIPE,
        check=True,
    )
    figures: list[dict[str, Any]] = json.loads(done.stdout)
    held = bars(figures)
    result = {
        "provenance": provenance("replay/replay_traces.py"),
        "conf": arguments.conf,
        "bars": held,
        "traces": figures,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(to_json(result))
    print(table(figures))
    print()
    for bar in held:
        print(
            f"{'met   ' if bar['met'] else 'NOT MET'} {bar['bar']:32} "
            f"worst {bar['worst']:.4g} ({bar['where']}), bar {bar['limit']:g}"
        )
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    main()
