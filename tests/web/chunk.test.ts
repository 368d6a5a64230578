import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeChunk, KIND } from '../../visualizer/web/src/trace/chunk.ts';

// A column as CONTAINER.md specifies it, written plainly.
function column(values: number[], width: number): number[] {
  const bytes = [width];
  for (let plane = 0; plane < width; ++plane) {
    for (const value of values) bytes.push(Math.floor(value / 256 ** plane) % 256);
  }
  return bytes;
}

const SMALL = [
  ...column([KIND.GranuleCreated, KIND.BlockAllocated, KIND.BlockAllocated, KIND.BlockFreed], 1),
  ...column([0, 5, 0, 2 ** 33], 5),
  ...column([2 * 300, 2 * 100 - 1], 2), // +300, then -100
  ...column([1000, 70_000], 3),
  ...column([2, 137], 1),
  ...column([0, 0], 0),
  ...column([2], 1),
  ...column([2 ** 31], 4),
];

test('each column is what was written', () => {
  const chunk = decodeChunk(Uint8Array.from(SMALL), 4, 1000);
  assert.deepEqual([...chunk.kinds], [10, 3, 3, 4]);
  assert.deepEqual([...chunk.times_ns], [1000, 1005, 1005, 1005 + 2 ** 33]);
  assert.deepEqual([...chunk.addresses], [300 * 512, 200 * 512]);
  assert.deepEqual([...chunk.requested_bytes], [1000, 70_000]);
  assert.deepEqual([...chunk.block_units], [2, 137]);
  assert.deepEqual([...chunk.pools], [0, 0]);
  assert.deepEqual([...chunk.ages], [2]);
  assert.deepEqual([...chunk.values], [2 ** 31]);
});

test('a chunk that is cut anywhere is an error', () => {
  for (let length = 0; length < SMALL.length; ++length) {
    assert.throws(() => decodeChunk(Uint8Array.from(SMALL.slice(0, length)), 4, 0), /damaged/);
  }
});

test('a chunk with bytes left over is an error', () => {
  assert.throws(() => decodeChunk(Uint8Array.from([...SMALL, 0]), 4, 0), /1 bytes too many/);
});

test('a column wider than numbers are exact is an error', () => {
  assert.throws(() => decodeChunk(Uint8Array.from([8, ...SMALL]), 4, 0), /damaged/);
});
