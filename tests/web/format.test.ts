import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  formatBytes,
  formatBytesIn,
  formatDate,
  formatDuration,
  formatPercent,
  formatTime,
  GIB,
  groupDigits,
  MIB,
} from '../../visualizer/web/src/base/format.ts';

test('bytes have four significant digits, or fewer where those are exact', () => {
  assert.equal(formatBytes(38.654 * GIB), '38.65 GiB');
  assert.equal(formatBytes(29.004 * GIB), '29.00 GiB');
  assert.equal(formatBytes(560 * MIB), '560 MiB');
  assert.equal(formatBytes(1536), '1.5 KiB');
  assert.equal(formatBytes(1023), '1,023 B');
  assert.equal(formatBytes(0), '0 B');
  assert.equal(formatBytes(-2 * MIB), '\u22122 MiB');
});

test('a column of bytes keeps its unit and its decimals', () => {
  assert.equal(formatBytesIn(GIB / 2, { name: 'GiB', bytes: GIB }), '0.500');
  assert.equal(formatBytesIn(-GIB, { name: 'GiB', bytes: GIB }), '\u22121.000');
});

test('digits are grouped by thousands', () => {
  assert.equal(groupDigits(41500540928), '41,500,540,928');
  assert.equal(groupDigits(999), '999');
  assert.equal(groupDigits(-1000), '\u22121,000');
});

test('a small share is not rounded to nothing', () => {
  assert.equal(formatPercent(1, 1e6), '< 0.1 %');
  assert.equal(formatPercent(0, 10), '0.0 %');
  assert.equal(formatPercent(3, 4), '75.0 %');
  assert.equal(formatPercent(0, 0), '0 %');
  assert.equal(formatPercent(1, 0), '\u2013');
});

test('durations are told in the two units that matter', () => {
  assert.equal(formatDuration(830), '830 ns');
  assert.equal(formatDuration(12_500_000), '12.5 ms');
  assert.equal(formatDuration(16.3e9), '16.3 s');
  assert.equal(formatDuration(200e9), '3 min 20 s');
  assert.equal(formatDuration(7500e9), '2 h 5 min');
  assert.equal(formatDuration(100 * 3600e9), '4 d 4 h');
});

test('a time shows as many decimals as its step makes visible', () => {
  assert.equal(formatTime(1.5e9, 5e8), '1.5 s');
  assert.equal(formatTime(2e9, 1e9), '2 s');
  assert.equal(formatTime(12_345_678_901, 1), '12.345678901 s');
  assert.equal(formatTime(192.5e9, 1e8), '3:12.5');
  assert.equal(formatTime(3792e9, 1e9), '1:03:12');
  assert.equal(formatTime(59.9999e9, 1e9), '1:00');
});

test('dates are in UTC, and nonsense is no date', () => {
  assert.equal(formatDate(1_790_000_000_000), '2026-09-21 14:13:20 UTC');
  assert.equal(formatDate(1e300), '');
});
