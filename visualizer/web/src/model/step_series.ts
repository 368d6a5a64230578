// A quantity that changes at instants and stands still between them: exact at every zoom.
//
// The smallest and largest of any run of values come from a pyramid of groups of 16, so a picture costs per pixel, not per
// event. Times do not decrease. Pure, typed arrays only.

import { countAtMost } from '../base/search.ts';

const FAN = 16;

export class StepSeries {
  readonly times_ns: Float64Array;
  readonly values: Float64Array;
  readonly before: number; // the value before the first change
  private readonly least: Float64Array[] = [];
  private readonly most: Float64Array[] = [];

  constructor(times_ns: Float64Array, values: Float64Array, before: number) {
    this.times_ns = times_ns;
    this.values = values;
    this.before = before;
    let least = values;
    let most = values;
    while (least.length > FAN) {
      least = reduce(least, Math.min);
      most = reduce(most, Math.max);
      this.least.push(least);
      this.most.push(most);
    }
  }

  // How many changes have happened at `time_ns`.
  changesAt(time_ns: number): number {
    return countAtMost(this.times_ns, time_ns);
  }

  // The value after the first `changes` changes.
  valueAfter(changes: number): number {
    return changes === 0 ? this.before : this.values[changes - 1];
  }

  at(time_ns: number): number {
    return this.valueAfter(this.changesAt(time_ns));
  }

  // The smallest and largest of values[first .. last). Requires first < last.
  extent(first: number, last: number): { least: number; most: number } {
    let least = Infinity;
    let most = -Infinity;
    const take = (level: number, i: number): void => {
      least = Math.min(least, (level < 0 ? this.values : this.least[level])[i]);
      most = Math.max(most, (level < 0 ? this.values : this.most[level])[i]);
    };
    // Climbs while there are whole groups between the two ends.
    for (let level = -1; first < last; ++level) {
      if (level + 1 >= this.least.length) {
        for (; first < last; ++first) take(level, first);
        break;
      }
      for (; first < last && first % FAN !== 0; ++first) take(level, first);
      for (; last > first && last % FAN !== 0; --last) take(level, last - 1);
      first /= FAN;
      last /= FAN;
    }
    return { least, most };
  }

  // The smallest and largest value within each of `columns` equal slices of [begin, end), including the value with which
  // the slice begins.
  envelope(begin_ns: number, end_ns: number, columns: number): Envelope {
    const least = new Float64Array(columns);
    const most = new Float64Array(columns);
    let first = this.changesAt(begin_ns);
    for (let column = 0; column < columns; ++column) {
      const slice_end_ns = begin_ns + ((end_ns - begin_ns) * (column + 1)) / columns;
      const last = this.changesAt(slice_end_ns);
      const entry = this.valueAfter(first);
      least[column] = most[column] = entry;
      if (last > first) {
        const extent = this.extent(first, last);
        least[column] = Math.min(entry, extent.least);
        most[column] = Math.max(entry, extent.most);
      }
      first = last;
    }
    return { least, most };
  }
}

export interface Envelope {
  readonly least: Float64Array;
  readonly most: Float64Array;
}

function reduce(values: Float64Array, pick: (a: number, b: number) => number): Float64Array {
  const groups = new Float64Array(Math.ceil(values.length / FAN));
  for (let group = 0; group < groups.length; ++group) {
    const end = Math.min(values.length, (group + 1) * FAN);
    let picked = values[group * FAN];
    for (let i = group * FAN + 1; i < end; ++i) picked = pick(picked, values[i]);
    groups[group] = picked;
  }
  return groups;
}
