import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MIB } from '../../visualizer/web/src/base/format.ts';
import { sizeClasses, type Block } from '../../visualizer/web/src/model/blocks.ts';

function block(requested_bytes: number): Block {
  return { address: 0, requested_bytes, block_bytes: requested_bytes, allocated_ns: 0, freed_ns: null, pool: 0 };
}

test('every block is in one class, and the classes add up', () => {
  const sizes = [1, 512, MIB - 1, MIB, 2 * MIB - 1, 2 * MIB, 3 * MIB, 100 * MIB];
  const classes = sizeClasses(sizes.map(block));
  assert.deepEqual(classes.map((entry) => entry.blocks), [3, 2, 2, 0, 0, 0, 0, 1]);
  assert.equal(classes.reduce((sum, entry) => sum + entry.bytes, 0), sizes.reduce((sum, size) => sum + size, 0));
  for (const entry of classes) assert.ok(entry.to_bytes >= 2 * entry.from_bytes);
});

test('no blocks make no classes', () => {
  assert.deepEqual(sizeClasses([]), []);
});

test('empty classes below the smallest block are not listed', () => {
  assert.deepEqual(sizeClasses([block(5 * MIB)]).map((entry) => entry.from_bytes), [4 * MIB]);
});
