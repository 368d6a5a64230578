// Which step is under way at which time. Pure.

import { countAtMost } from '../base/search.ts';
import { readColumn, type Device } from '../trace/overview.ts';

export class StepIndex {
  readonly times_ns: Float64Array;
  readonly numbers: Float64Array;

  constructor(device: Device) {
    this.times_ns = readColumn(device.steps.time_ns);
    this.numbers = readColumn(device.steps.value);
  }

  // null before the first.
  at(time_ns: number): number | null {
    const begun = countAtMost(this.times_ns, time_ns);
    return begun === 0 ? null : this.numbers[begun - 1];
  }
}
