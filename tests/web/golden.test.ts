// The report that C++ has written, read by the viewer's own code, against what C++ says must be found in it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { allBlocks, firstBlocks } from '../../visualizer/web/src/model/blocks.ts';
import { RecordingBuilder, type Recording } from '../../visualizer/web/src/model/recording.ts';
import { decodeChunk } from '../../visualizer/web/src/trace/chunk.ts';
import { inflate } from '../../visualizer/web/src/trace/inflate.ts';
import { parseOverview, type Overview } from '../../visualizer/web/src/trace/overview.ts';

interface Expected {
  readonly levels_after_each_event: readonly [number, number, number, number][];
  readonly live_at_peak: readonly Record<string, number>[];
}

const folder = new URL('../golden/report/', import.meta.url);
const html = readFileSync(new URL('report.html', folder), 'utf8');
const expected = JSON.parse(readFileSync(new URL('expected.json', folder), 'utf8')) as Expected;

function readOverview(): Overview {
  return parseOverview(/id="offcut-overview">(.*?)<\/script>/s.exec(html)?.[1] ?? '');
}

async function readRecording(overview: Overview): Promise<Recording> {
  const tags = [...html.matchAll(/class="offcut-data">(.*?)<\/script>/gs)].map((match) => match[1]);
  const { chunks } = overview.devices[0];
  const builder = new RecordingBuilder(chunks);
  for (const chunk of chunks) {
    const text = tags[chunk.tag].slice(chunk.offset, chunk.offset + chunk.length);
    builder.add(decodeChunk(await inflate(text), chunk.rows, chunk.begin_ns));
  }
  return builder.finish();
}

test('the levels after each event are those that C++ has computed', async () => {
  const { levels } = await readRecording(readOverview());
  assert.ok(expected.levels_after_each_event.length > 20);
  for (const [time_ns, live, reserved, device_used] of expected.levels_after_each_event) {
    assert.deepEqual(levels.at(time_ns), { live, reserved, device_used }, `at ${time_ns} ns`);
  }
});

test('the blocks at the peak are those that C++ has listed, before and after decoding', async () => {
  const overview = readOverview();
  const device = overview.devices[0];
  const byAddress = (blocks: readonly { readonly address: number }[]): unknown[] =>
    [...blocks].sort((a, b) => a.address - b.address).map((block) => ({ ...block, freed_ns: undefined }));
  const wanted = byAddress(expected.live_at_peak as unknown as { address: number }[]);
  assert.ok(wanted.length > 0);
  assert.deepEqual(byAddress(firstBlocks(device).blocks), wanted);
  assert.deepEqual(byAddress(allBlocks(device, await readRecording(overview)).blocks), wanted);
});

test('the sum at the peak adds up', () => {
  const sum = readOverview().devices[0].peak.accounting;
  assert.equal(
    sum.live_bytes + sum.rounding_bytes + sum.pending_bytes + sum.private_pools_free_bytes + sum.pinned_bytes + sum.idle_bytes + sum.driver_pool_free_bytes,
    sum.reserved_bytes,
  );
  assert.equal(sum.reserved_bytes + sum.outside_bytes, sum.device_used_bytes);
});

test('hostile text arrives as it was', () => {
  const device = readOverview().devices[0];
  assert.equal(device.command_line, 'python <!--train.py--> & "more"');
  assert.equal(device.host, 'host</script>');
});

test('a report of another version is refused with the remedy', () => {
  assert.throws(() => parseOverview('{"format":"offcut-report","version":99,"devices":[]}'), /version 99.*Make it again/);
});

test('an overview that was cut short is refused with the reason', () => {
  assert.throws(() => parseOverview('{"format":"offcut-re'), /cut short/);
});

test('another page is refused', () => {
  assert.throws(() => parseOverview('{"format":"something"}'), /no Offcut report/);
});
