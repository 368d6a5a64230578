// Folds decoded chunks into what the pictures read: the exact levels and the table of allocations.
//
// Each chunk must begin with the state in which the one before it ended, as the exporter recorded it; anything else is a
// damaged file, and said so.

import { KIND, type Chunk } from '../trace/chunk.ts';
import type { ChunkEntry } from '../trace/overview.ts';
import { Allocations } from './allocations.ts';
import { ExactLevels } from './levels.ts';
import { StepSeries } from './step_series.ts';

export interface Recording {
  readonly levels: ExactLevels;
  readonly allocations: Allocations;
  readonly times_ns: Float64Array; // per row
}

export class RecordingBuilder {
  private readonly entries: readonly ChunkEntry[];
  private readonly times_ns: Float64Array;
  private readonly live: Float64Array;
  private readonly reserved = new Changes();
  private readonly device_used = new Changes();
  private readonly allocations: Allocations;
  private live_now: number;
  private next_chunk = 0;
  private row = 0;
  private allocated = 0;

  constructor(entries: readonly ChunkEntry[]) {
    const rows = sum(entries.map((entry) => entry.rows));
    this.entries = entries;
    this.times_ns = new Float64Array(rows);
    this.live = new Float64Array(rows);
    this.allocations = new Allocations(sum(entries.map((entry) => entry.allocations)));
    this.live_now = entries[0]?.live_before ?? 0;
    this.reserved.now = entries[0]?.reserved_before ?? 0;
    this.device_used.now = entries[0]?.device_used_before ?? 0;
  }

  add(chunk: Chunk): void {
    const entry = this.entries[this.next_chunk];
    this.expect('live', entry.live_before, this.live_now);
    this.expect('reserved', entry.reserved_before, this.reserved.now);
    this.expect('device used', entry.device_used_before, this.device_used.now);
    this.expect('the number of allocations', entry.first_allocation, this.allocated);
    this.times_ns.set(chunk.times_ns, this.row);
    this.addAllocations(chunk);
    this.fold(chunk);
    ++this.next_chunk;
  }

  finish(): Recording {
    const before = this.entries[0];
    return {
      levels: new ExactLevels({
        live: new StepSeries(this.times_ns, this.live, before?.live_before ?? 0),
        reserved: this.reserved.toSeries(before?.reserved_before ?? 0),
        device_used: this.device_used.toSeries(before?.device_used_before ?? 0),
      }),
      allocations: this.allocations,
      times_ns: this.times_ns,
    };
  }

  private addAllocations(chunk: Chunk): void {
    this.allocations.addresses.set(chunk.addresses, this.allocated);
    this.allocations.requested_bytes.set(chunk.requested_bytes, this.allocated);
    this.allocations.block_units.set(chunk.block_units, this.allocated);
    this.allocations.pools.set(chunk.pools, this.allocated);
  }

  private fold(chunk: Chunk): void {
    const { allocated_row, freed_row, requested_bytes } = this.allocations;
    let free = 0;
    let value = 0;
    for (let i = 0; i < chunk.kinds.length; ++i) {
      switch (chunk.kinds[i]) {
        case KIND.BlockAllocated:
          allocated_row[this.allocated] = this.row;
          this.live_now += requested_bytes[this.allocated++];
          break;
        case KIND.BlockFreed:
        case KIND.BlockFreePended: {
          const allocation = this.allocated - chunk.ages[free++];
          if (!(allocation >= 0 && allocation < this.allocated)) throw this.damaged('a free names no allocation');
          freed_row[allocation] = this.row;
          this.live_now -= requested_bytes[allocation];
          break;
        }
        case KIND.PendingFreeFinished:
          ++free;
          break;
        case KIND.GranuleCreated:
          this.reserved.change(this.times_ns[this.row], this.reserved.now + chunk.values[value++]);
          break;
        case KIND.GranuleReleased:
          this.reserved.change(this.times_ns[this.row], this.reserved.now - chunk.values[value++]);
          break;
        case KIND.DeviceUsedSampled:
          this.device_used.change(this.times_ns[this.row], chunk.values[value++]);
          break;
        default:
          throw this.damaged(`kind ${chunk.kinds[i]} is unknown`);
      }
      this.live[this.row++] = this.live_now;
    }
  }

  private expect(what: string, stated: number, found: number): void {
    if (stated !== found) throw this.damaged(`${what} should be ${stated} and is ${found}`);
  }

  private damaged(why: string): Error {
    return new Error(`chunk ${this.next_chunk} is damaged: ${why}`);
  }
}

// A quantity that changes at few of the rows.
class Changes {
  now = 0;
  private readonly times_ns: number[] = [];
  private readonly values: number[] = [];

  change(time_ns: number, value: number): void {
    if (value === this.now) return;
    this.now = value;
    this.times_ns.push(time_ns);
    this.values.push(value);
  }

  toSeries(before: number): StepSeries {
    return new StepSeries(Float64Array.from(this.times_ns), Float64Array.from(this.values), before);
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
