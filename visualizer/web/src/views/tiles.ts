// The key figures.

import { formatBytes, formatPercent, formatTime, groupDigits, plural } from '../base/format.ts';
import { h } from '../base/dom.ts';
import type { StepIndex } from '../model/step_index.ts';
import type { Device } from '../trace/overview.ts';

export function tilesView(device: Device, steps: StepIndex): HTMLElement {
  const { accounting } = device.peak;
  const when = (time_ns: number): string => {
    const step = steps.at(time_ns);
    return `at ${formatTime(time_ns, 1e6)}${step === null ? '' : `, step ${step}`}`;
  };
  const used = accounting.device_used_bytes;
  const failed = device.counts['RequestFailed'] ?? 0;
  return h(
    'section',
    { class: 'tiles', 'aria-label': 'Key figures' },
    tile('Peak live', formatBytes(device.live_peak.bytes), when(device.live_peak.time_ns), 'live'),
    tile('Peak reserved', formatBytes(accounting.reserved_bytes), when(device.peak.time_ns), 'reserved'),
    tile('Live / reserved', accounting.reserved_bytes > 0 ? formatPercent(device.live_peak.bytes, accounting.reserved_bytes) : '\u2013', `${formatBytes(Math.max(0, accounting.reserved_bytes - device.live_peak.bytes))} beyond peak live`, ''),
    tile('Device used at peak', used > 0 ? formatBytes(used) : '\u2013', noteOnUsed(device), 'device_used'),
    tile('Allocations', groupDigits(device.allocations), failed === 0 ? 'none failed' : `${groupDigits(failed)} failed`, failed === 0 ? '' : 'failure'),
    tile('Steps', groupDigits(steps.numbers.length), steps.numbers.length === 0 ? 'none marked' : `${plural(Math.round(device.allocations / steps.numbers.length), 'allocation')} each`, ''),
  );
}

function noteOnUsed(device: Device): string {
  const used = device.peak.accounting.device_used_bytes;
  if (used === 0) return 'never sampled';
  return device.device_total_bytes > 0 ? `${formatPercent(used, device.device_total_bytes)} of the device` : 'by all its users';
}

function tile(name: string, value: string, note: string, kind: string): HTMLElement {
  const [number, ...unit] = value.split(' ');
  return h(
    'div',
    { class: `tile ${kind}` },
    h('div', { class: 'name' }, name),
    h('div', { class: 'value' }, number, h('span', { class: 'unit' }, ` ${unit.join(' ')}`)),
    h('div', { class: 'note' }, note),
  );
}
