import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GIB, MIB } from '../../visualizer/web/src/base/format.ts';
import { byteTicks, timeTicks } from '../../visualizer/web/src/model/ticks.ts';
import { lengthOf, panned, wholeOf, within, zoomed } from '../../visualizer/web/src/model/viewport.ts';

test('ticks of bytes are round in binary units', () => {
  assert.deepEqual(byteTicks(0, 42 * GIB, 5).values, [0, 10, 20, 30, 40].map((n) => n * GIB));
  assert.deepEqual(byteTicks(0, 700 * MIB, 4).values, [0, 200, 400, 600].map((n) => n * MIB));
});

test('ticks of times are what people count in', () => {
  assert.equal(timeTicks(0, 600e9, 10).step, 60e9);
  assert.equal(timeTicks(0, 3.5e9, 7).step, 5e8);
  assert.deepEqual(timeTicks(1e9, 1.0001e9, 2).step, 50_000);
});

test('an axis without extent has no ticks', () => {
  assert.deepEqual(byteTicks(5, 5, 4).values, []);
});

const WHOLE = wholeOf(1000, 1_001_000);

test('zooming keeps what is under the pointer in place', () => {
  const view = zoomed(WHOLE, WHOLE, 0.5, 251_000);
  assert.equal(lengthOf(view), 500_000);
  assert.equal((251_000 - view.begin_ns) / lengthOf(view), 0.25);
});

test('no view leaves the recording', () => {
  assert.deepEqual(zoomed(WHOLE, WHOLE, 8, 5000), WHOLE);
  const view = within({ begin_ns: 901_000, end_ns: 1_000_900 }, WHOLE);
  assert.equal(panned(view, WHOLE, 1e9).end_ns, WHOLE.end_ns);
  assert.equal(panned(view, WHOLE, -1e9).begin_ns, WHOLE.begin_ns);
});

test('zooming in ends before numbers lose their meaning', () => {
  let view = WHOLE;
  for (let i = 0; i < 100; ++i) view = zoomed(view, WHOLE, 0.5, 500_000);
  assert.equal(lengthOf(view), 100);
});

test('a recording of one instant has a window all the same', () => {
  assert.ok(lengthOf(wholeOf(5, 5)) > 0);
});
