// Who, where and when: the head of the page, and the choice among what was recorded.

import { formatBytes, formatDate, formatDuration, groupDigits, plural } from '../base/format.ts';
import { h, svg, type Child } from '../base/dom.ts';
import type { Device, Overview } from '../trace/overview.ts';

export function headerView(overview: Overview, index: number, choose: (index: number) => void): Child[] {
  const device = overview.devices[index];
  const card = [device.device_name || 'unknown device', device.device_total_bytes > 0 ? formatBytes(device.device_total_bytes) : '']
    .filter((part) => part !== '')
    .join(' \u00b7 ');
  return [
    h(
      'div',
      { class: 'masthead' },
      h('div', { class: 'brand' }, logo(), h('span', {}, 'offcut')),
      overview.devices.length > 1 && chooser(overview, index, choose),
    ),
    h('h1', {}, overview.title || 'Memory report'),
    device.command_line !== '' && h('p', { class: 'command', title: device.command_line }, device.command_line),
    h(
      'dl',
      { class: 'facts' },
      ...fact('Device', `${card} \u00b7 device ${device.device}`),
      ...fact('Process', `pid ${device.pid} on ${device.host || 'unknown host'}`),
      ...fact('Recorded', device.epoch_unix_ms > 0 ? formatDate(device.epoch_unix_ms + device.begin_ns / 1e6) : ''),
      ...fact('Duration', formatDuration(device.end_ns - device.begin_ns)),
      ...fact('Events', device.honesty.dropped_events === 0 ? groupDigits(device.events) : `${groupDigits(device.events)}, and ${groupDigits(device.honesty.dropped_events)} dropped`),
      ...fact('Offcut', device.offcut_version),
    ),
  ];
}

function fact(name: string, value: string): HTMLElement[] {
  return value === '' ? [] : [h('div', {}, h('dt', {}, name), h('dd', {}, value))];
}

// A square with the piece that was left over when it was cut.
function logo(): Child {
  return svg(
    'svg',
    { viewBox: '0 0 20 20', width: 20, height: 20, 'aria-hidden': 'true' },
    svg('path', { d: 'M1 1h18v10h-8v8H1z', fill: 'currentColor' }),
    svg('path', { d: 'M13.5 13.5h5.5v5.5h-5.5z', class: 'offcut' }),
  );
}

function chooser(overview: Overview, index: number, choose: (index: number) => void): Child {
  const select = h(
    'select',
    { id: 'device' },
    ...overview.devices.map((device, i) =>
      h('option', { value: i, selected: i === index }, `${i + 1} of ${overview.devices.length}: ${nameOf(device)}`),
    ),
  );
  select.addEventListener('change', () => choose(Number(select.value)));
  return h('label', { class: 'chooser' }, h('span', {}, 'Process and device'), select);
}

function nameOf(device: Device): string {
  const peak = formatBytes(device.peak.accounting.reserved_bytes);
  return `${device.host || 'unknown host'}, pid ${device.pid}, device ${device.device} (${device.device_name}), peak ${peak}`;
}

// What a reader must know before believing the numbers. Empty for an honest recording.
export function bannerView(overview: Overview, device: Device): Node[] {
  const { dropped_events, inconsistencies, implausible_events, closed, problem } = device.honesty;
  const remarks: string[] = [];
  if (dropped_events > 0) {
    remarks.push(
      `${plural(dropped_events, 'event was', 'events were')} lost while recording (the disk was full or slow): from the first gap on, live memory may be wrong.`,
    );
  }
  if (problem !== '') remarks.push(`The recording could not be read to its end: ${problem}`);
  if (!closed && problem === '') {
    remarks.push('The recording was not closed: the process was killed, crashed, or was still running. All that it had recorded is here.');
  }
  if (inconsistencies > 0) remarks.push(`${plural(inconsistencies, 'event contradicts', 'events contradict')} those before them; \`offcut check\` says which.`);
  if (implausible_events > 0) remarks.push(`${plural(implausible_events, 'event holds', 'events hold')} numbers that cannot be true and ${implausible_events === 1 ? 'was' : 'were'} left out.`);
  for (const message of overview.unreadable) remarks.push(`Missing here, since it could not be read: ${message}`);
  if (remarks.length === 0) return [];
  return [h('strong', {}, 'Read this first'), h('ul', {}, ...remarks.map((remark) => h('li', {}, remark)))];
}
