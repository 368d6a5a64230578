// The blocks that were live at the peak, in a form that the table shows: from the overview at first, all of them once the
// chunks are decoded. Pure.

import { readColumn, type Device } from '../trace/overview.ts';
import type { Recording } from './recording.ts';

export interface Block {
  readonly address: number;
  readonly requested_bytes: number;
  readonly block_bytes: number;
  readonly allocated_ns: number;
  readonly freed_ns: number | null; // null: not within the recording
  readonly pool: number;
}

export interface PeakBlocks {
  readonly blocks: readonly Block[];
  readonly complete: boolean; // all, or the largest only
}

export function firstBlocks(device: Device): PeakBlocks {
  const columns = device.peak.first_blocks;
  const requested = readColumn(columns.requested_bytes);
  const sizes = readColumn(columns.block_bytes);
  const times = readColumn(columns.allocated_ns);
  const pools = readColumn(columns.pool);
  const blocks = Array.from(readColumn(columns.address), (address, i) => ({
    address,
    requested_bytes: requested[i],
    block_bytes: sizes[i],
    allocated_ns: times[i],
    freed_ns: null,
    pool: pools[i],
  }));
  return { blocks, complete: blocks.length === device.peak.live_blocks };
}

export function allBlocks(device: Device, recording: Recording): PeakBlocks {
  const { allocations, times_ns } = recording;
  const blocks = Array.from(allocations.liveAfter(device.peak.rows), (i) => ({
    address: allocations.addresses[i],
    requested_bytes: allocations.requested_bytes[i],
    block_bytes: allocations.blockBytes(i),
    allocated_ns: times_ns[allocations.allocated_row[i]],
    freed_ns: allocations.isFreed(i) ? times_ns[allocations.freed_row[i]] : null,
    pool: allocations.pools[i],
  }));
  return { blocks, complete: true };
}

export interface SizeClass {
  readonly from_bytes: number; // a power of two, or 0
  readonly to_bytes: number;
  readonly blocks: number;
  readonly bytes: number;
}

const SMALLEST_CLASS = 1024 * 1024;

// Blocks by requested size: all below 1 MiB, then one class per doubling, without the empty ones at the ends.
export function sizeClasses(blocks: readonly Block[]): SizeClass[] {
  const classes: { blocks: number; bytes: number }[] = [];
  for (const block of blocks) {
    const index = Math.max(0, 1 + Math.floor(Math.log2(block.requested_bytes / SMALLEST_CLASS)));
    while (classes.length <= index) classes.push({ blocks: 0, bytes: 0 });
    ++classes[index].blocks;
    classes[index].bytes += block.requested_bytes;
  }
  const listed = classes.map((entry, i) => ({
    from_bytes: i === 0 ? 0 : SMALLEST_CLASS * 2 ** (i - 1),
    to_bytes: SMALLEST_CLASS * 2 ** i,
    ...entry,
  }));
  const first = listed.findIndex((entry) => entry.blocks > 0);
  return first < 0 ? [] : listed.slice(first);
}
