import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StepSeries } from '../../visualizer/web/src/model/step_series.ts';

// A small generator of its own: the same numbers in every run.
function randoms(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function makeSeries(count: number): { series: StepSeries; times: number[]; values: number[] } {
  const random = randoms(count);
  const times: number[] = [];
  const values: number[] = [];
  let time = 100;
  for (let i = 0; i < count; ++i) {
    time += Math.floor(random() * 3); // several changes at one instant happen
    times.push(time);
    values.push(Math.floor(random() * 1e9));
  }
  return { series: new StepSeries(Float64Array.from(times), Float64Array.from(values), 7), times, values };
}

for (const count of [1, 15, 16, 17, 255, 256, 257, 5000]) {
  test(`extents of any run of ${count} values agree with looking at each`, () => {
    const { series, values } = makeSeries(count);
    const random = randoms(1);
    for (let i = 0; i < 300; ++i) {
      const first = Math.floor(random() * count);
      const last = first + 1 + Math.floor(random() * (count - first));
      const run = values.slice(first, last);
      assert.deepEqual(series.extent(first, last), { least: Math.min(...run), most: Math.max(...run) });
    }
  });
}

test('the value at a time is that of the last change at or before it', () => {
  const series = new StepSeries(Float64Array.of(10, 20, 20, 30), Float64Array.of(1, 2, 3, 4), 7);
  assert.equal(series.at(9), 7);
  assert.equal(series.at(10), 1);
  assert.equal(series.at(20), 3);
  assert.equal(series.at(29.5), 3);
  assert.equal(series.at(1000), 4);
});

test('an envelope agrees with looking at each change', () => {
  const { series, times, values } = makeSeries(3000);
  const [begin, end, columns] = [50, times[times.length - 1] + 50, 97];
  const { least, most } = series.envelope(begin, end, columns);
  for (let column = 0; column < columns; ++column) {
    const from = begin + ((end - begin) * column) / columns;
    const to = begin + ((end - begin) * (column + 1)) / columns;
    const seen = [series.at(from), ...values.filter((_, i) => times[i] > from && times[i] <= to)];
    assert.equal(least[column], Math.min(...seen));
    assert.equal(most[column], Math.max(...seen));
  }
});

test('an empty series stands at its first value', () => {
  const series = new StepSeries(new Float64Array(), new Float64Array(), 5);
  assert.equal(series.at(3), 5);
  assert.deepEqual([...series.envelope(0, 10, 2).most], [5, 5]);
});
