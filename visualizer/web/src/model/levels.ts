// Live, reserved and device used over time: from the overview at first, exactly once the chunks are decoded.

import { readColumn, type Device, type Series } from '../trace/overview.ts';
import type { Envelope, StepSeries } from './step_series.ts';

export const LEVEL_NAMES = ['live', 'reserved', 'device_used'] as const;
export type LevelName = (typeof LEVEL_NAMES)[number];

export interface Levels {
  readonly live: number;
  readonly reserved: number;
  readonly device_used: number;
}

export interface LevelSource {
  readonly exact: boolean;
  envelope(level: LevelName, begin_ns: number, end_ns: number, columns: number): Envelope;
  // Of a source that is not exact: the largest values near that time.
  at(time_ns: number): Levels;
  // The changes themselves, where they are known.
  steps(level: LevelName): StepSeries | null;
}

export class ExactLevels implements LevelSource {
  readonly exact = true;
  private readonly series: Readonly<Record<LevelName, StepSeries>>;

  constructor(series: Readonly<Record<LevelName, StepSeries>>) {
    this.series = series;
  }

  envelope(level: LevelName, begin_ns: number, end_ns: number, columns: number): Envelope {
    return this.series[level].envelope(begin_ns, end_ns, columns);
  }

  at(time_ns: number): Levels {
    return {
      live: this.series.live.at(time_ns),
      reserved: this.series.reserved.at(time_ns),
      device_used: this.series.device_used.at(time_ns),
    };
  }

  steps(level: LevelName): StepSeries {
    return this.series[level];
  }
}

export class OverviewLevels implements LevelSource {
  readonly exact = false;
  private readonly begin_ns: number;
  private readonly slice_ns: number;
  private readonly columns: Readonly<Record<LevelName, Envelope>>;

  constructor(device: Device) {
    const series: Series = device.series;
    this.begin_ns = series.begin_ns;
    this.slice_ns = series.slice_ns;
    this.columns = {
      live: { least: readColumn(series.live_least), most: readColumn(series.live_most) },
      reserved: { least: readColumn(series.reserved_least), most: readColumn(series.reserved_most) },
      device_used: { least: readColumn(series.device_used_least), most: readColumn(series.device_used_most) },
    };
  }

  envelope(level: LevelName, begin_ns: number, end_ns: number, columns: number): Envelope {
    const source = this.columns[level];
    const least = new Float64Array(columns);
    const most = new Float64Array(columns);
    for (let column = 0; column < columns; ++column) {
      const from_ns = begin_ns + ((end_ns - begin_ns) * column) / columns;
      const to_ns = begin_ns + ((end_ns - begin_ns) * (column + 1)) / columns;
      const first = this.sliceAt(from_ns);
      const last = Math.max(first, this.sliceAt(to_ns));
      least[column] = source.least.length === 0 ? 0 : Infinity;
      for (let slice = first; slice <= last && slice < source.least.length; ++slice) {
        least[column] = Math.min(least[column], source.least[slice]);
        most[column] = Math.max(most[column], source.most[slice]);
      }
    }
    return { least, most };
  }

  at(time_ns: number): Levels {
    const slice = this.sliceAt(time_ns);
    const pick = (level: LevelName): number => this.columns[level].most[slice] ?? 0;
    return { live: pick('live'), reserved: pick('reserved'), device_used: pick('device_used') };
  }

  steps(): null {
    return null;
  }

  private sliceAt(time_ns: number): number {
    const slice = Math.floor((time_ns - this.begin_ns) / this.slice_ns);
    return Math.max(0, Math.min(this.columns.live.least.length - 1, slice));
  }
}
