// Every allocation of a recording, as columns by its number, and what was live after a given row. Pure.

import { BLOCK_UNIT } from '../trace/chunk.ts';

const NEVER = 0xffffffff;

export class Allocations {
  readonly count: number;
  readonly allocated_row: Uint32Array;
  readonly freed_row: Uint32Array; // by the program; NEVER if the recording ended first
  readonly addresses: Float64Array;
  readonly requested_bytes: Float64Array;
  readonly block_units: Uint32Array;
  readonly pools: Uint16Array;

  constructor(count: number) {
    this.count = count;
    this.allocated_row = new Uint32Array(count);
    this.freed_row = new Uint32Array(count).fill(NEVER);
    this.addresses = new Float64Array(count);
    this.requested_bytes = new Float64Array(count);
    this.block_units = new Uint32Array(count);
    this.pools = new Uint16Array(count);
  }

  blockBytes(allocation: number): number {
    return this.block_units[allocation] * BLOCK_UNIT;
  }

  isFreed(allocation: number): boolean {
    return this.freed_row[allocation] !== NEVER;
  }

  // The numbers of the allocations that were live after the first `rows` rows, oldest first.
  liveAfter(rows: number): Uint32Array {
    const live: number[] = [];
    for (let i = 0; i < this.count && this.allocated_row[i] < rows; ++i) {
      if (this.freed_row[i] >= rows) live.push(i);
    }
    return Uint32Array.from(live);
  }
}
