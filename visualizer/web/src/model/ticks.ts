// Where an axis has its ticks. Pure.

import { byteUnitFor, type ByteUnit } from '../base/format.ts';

export interface Ticks {
  readonly step: number;
  readonly values: readonly number[];
}

// Round steps of 1, 2 or 5 times a power of ten, in units of `unit`; about `count` of them.
export function linearTicks(from: number, to: number, count: number, unit = 1): Ticks {
  if (!(to > from)) return { step: unit, values: [] };
  const rough = (to - from) / unit / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999)! * unit;
  return { step, values: multiples(from, to, step) };
}

export interface ByteTicks extends Ticks {
  readonly unit: ByteUnit;
}

// In the unit that suits the far end of the axis.
export function byteTicks(from: number, to: number, count: number): ByteTicks {
  const unit = byteUnitFor(to);
  return { unit, ...linearTicks(from, to, count, unit.bytes) };
}

const NS_PER_S = 1e9;
// From a second on people count in these.
const LONG_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];

export function timeTicks(from_ns: number, to_ns: number, count: number): Ticks {
  const rough_s = (to_ns - from_ns) / NS_PER_S / Math.max(1, count);
  const long = LONG_STEPS_S.find((step) => step >= rough_s);
  if (rough_s <= 0.5 || long === undefined) return linearTicks(from_ns, to_ns, count);
  return { step: long * NS_PER_S, values: multiples(from_ns, to_ns, long * NS_PER_S) };
}

function multiples(from: number, to: number, step: number): number[] {
  const values: number[] = [];
  for (let i = Math.ceil(from / step - 1e-9) + 0 /* not -0 */; i * step <= to * (1 + 1e-12) && values.length < 1000; ++i) values.push(i * step);
  return values;
}
