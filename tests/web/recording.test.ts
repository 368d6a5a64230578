import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RecordingBuilder } from '../../visualizer/web/src/model/recording.ts';
import { KIND, type Chunk } from '../../visualizer/web/src/trace/chunk.ts';
import type { ChunkEntry } from '../../visualizer/web/src/trace/overview.ts';

function chunk(kinds: number[], requested: number[], ages: number[], values: number[], begin_ns: number): Chunk {
  return {
    kinds: Uint8Array.from(kinds),
    times_ns: Float64Array.from(kinds, (_, i) => begin_ns + i),
    addresses: Float64Array.from(requested, (_, i) => 512 * (i + 1)),
    requested_bytes: Float64Array.from(requested),
    block_units: Uint32Array.from(requested, (bytes) => Math.ceil(bytes / 512)),
    pools: new Uint16Array(requested.length),
    ages: Float64Array.from(ages),
    values: Float64Array.from(values),
  };
}

function entry(from: Chunk, before: Partial<ChunkEntry>): ChunkEntry {
  return {
    tag: 0,
    offset: 0,
    length: 0,
    rows: from.kinds.length,
    allocations: from.requested_bytes.length,
    first_allocation: 0,
    begin_ns: from.times_ns[0],
    end_ns: 0,
    live_before: 0,
    reserved_before: 0,
    device_used_before: 0,
    ...before,
  };
}

const FIRST = chunk(
  [KIND.GranuleCreated, KIND.DeviceUsedSampled, KIND.BlockAllocated, KIND.BlockAllocated],
  [100, 200],
  [],
  [4096, 9000],
  10,
);
const SECOND = chunk(
  [KIND.BlockFreePended, KIND.BlockAllocated, KIND.PendingFreeFinished, KIND.BlockFreed, KIND.GranuleReleased],
  [50],
  [2, 3, 2],
  [4096],
  20,
);
const SECOND_BEFORE = { first_allocation: 2, live_before: 300, reserved_before: 4096, device_used_before: 9000 };

test('frees find the allocations of earlier chunks', () => {
  const builder = new RecordingBuilder([entry(FIRST, {}), entry(SECOND, SECOND_BEFORE)]);
  builder.add(FIRST);
  builder.add(SECOND);
  const { levels, allocations } = builder.finish();
  const live = (time_ns: number): number => levels.at(time_ns).live;
  assert.deepEqual([9, 11, 12, 13, 20, 21, 22, 23, 24].map(live), [0, 0, 100, 300, 200, 250, 250, 50, 50]);
  assert.equal(levels.at(10).reserved, 4096);
  assert.equal(levels.at(24).reserved, 0);
  assert.equal(levels.at(24).device_used, 9000);
  assert.deepEqual([...allocations.liveAfter(4)], [0, 1]);
  assert.deepEqual([...allocations.liveAfter(5)], [1]);
  assert.deepEqual([...allocations.liveAfter(9)], [2]);
});

test('a chunk that does not begin where the last one ended is an error', () => {
  for (const wrong of [{ live_before: 301 }, { reserved_before: 0 }, { device_used_before: 1 }, { first_allocation: 1 }]) {
    const builder = new RecordingBuilder([entry(FIRST, {}), entry(SECOND, { ...SECOND_BEFORE, ...wrong })]);
    builder.add(FIRST);
    assert.throws(() => builder.add(SECOND), /chunk 1 is damaged/);
  }
});

test('a free of what was never allocated is an error', () => {
  const broken = chunk([KIND.BlockFreed], [], [1], [], 0);
  const builder = new RecordingBuilder([entry(broken, {})]);
  assert.throws(() => builder.add(broken), /names no allocation/);
});

test('a recording without chunks is empty', () => {
  const { levels, allocations } = new RecordingBuilder([]).finish();
  assert.deepEqual(levels.at(5), { live: 0, reserved: 0, device_used: 0 });
  assert.equal(allocations.count, 0);
});
