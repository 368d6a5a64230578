// Where the memory went at the reserved peak: a sum that visibly adds up.

import { byteUnitFor, formatBytes, formatBytesIn, formatPercent, formatTime, groupDigits, type ByteUnit } from '../base/format.ts';
import { h } from '../base/dom.ts';
import type { StepIndex } from '../model/step_index.ts';
import type { Accounting, Device } from '../trace/overview.ts';

interface Term {
  readonly key: Exclude<keyof Accounting, 'foreign_bytes'>;
  readonly name: string;
  readonly meaning: string;
}

// In the order of the definition: each byte belongs to the first that fits.
const RESERVED_TERMS: readonly Term[] = [
  { key: 'live_bytes', name: 'live', meaning: 'Asked for by the program and not yet freed.' },
  { key: 'rounding_bytes', name: 'rounding', meaning: 'Added to live blocks to make their sizes multiples of 512 bytes, or to avoid slivers.' },
  { key: 'pending_bytes', name: 'pending', meaning: 'Freed by the program, but another stream may still be using it.' },
  { key: 'private_pools_free_bytes', name: 'private pools, free', meaning: 'Free inside the pools of CUDA graphs and MemPools; nobody else may use it.' },
  { key: 'pinned_bytes', name: 'pinned', meaning: 'Free, but held down by a block in use in the same granule or segment.' },
  { key: 'idle_bytes', name: 'idle', meaning: 'Free and held by nothing: could be given back to the device or moved.' },
  { key: 'driver_pool_free_bytes', name: 'driver pool, free', meaning: 'Free inside the pools of the driver (cudaMallocAsync).' },
];
const OUTSIDE: Term = {
  key: 'outside_bytes',
  name: 'outside',
  meaning: 'Used on the device by others: the CUDA context, libraries such as NCCL, other processes.',
};

export function accountingView(device: Device, steps: StepIndex): HTMLElement {
  const { accounting, time_ns } = device.peak;
  const heading = h('h2', { id: 'accounting-title' }, 'Where the memory went');
  if (accounting.reserved_bytes === 0) {
    return section(heading, h('p', { class: 'empty' }, 'Nothing was reserved in this recording.'));
  }
  const step = steps.at(time_ns);
  const when = `at the reserved peak, ${formatTime(time_ns, 1e6)}${step === null ? '' : `, step ${step}`}`;
  return section(
    h('div', { class: 'section-head' }, heading, h('span', { class: 'aside' }, when)),
    stackedBar(accounting),
    sumTable(accounting),
  );
}

function section(...children: HTMLElement[]): HTMLElement {
  return h('section', { class: 'accounting', 'aria-labelledby': 'accounting-title' }, ...children);
}

function isSampled(accounting: Accounting): boolean {
  return accounting.device_used_bytes > 0;
}

function stackedBar(accounting: Accounting): HTMLElement {
  const terms = isSampled(accounting) ? [...RESERVED_TERMS, OUTSIDE] : RESERVED_TERMS;
  const shown = terms.filter((term) => accounting[term.key] > 0);
  const whole = shown.reduce((sum, term) => sum + accounting[term.key], 0);
  const description = shown.map((term) => `${term.name} ${formatPercent(accounting[term.key], whole)}`).join(', ');
  const bar = h('div', { class: 'stack', role: 'img', 'aria-label': `The sum as one bar: ${description}` });
  for (const term of shown) {
    const share = accounting[term.key] / whole;
    const label = share > 0.13 ? `${term.name} ${formatBytes(accounting[term.key])}` : share > 0.06 ? term.name : '';
    const part = h('div', { class: `part term ${term.key}`, title: `${term.name}: ${formatBytes(accounting[term.key])}` }, h('span', {}, label));
    part.style.flexGrow = String(share);
    bar.append(part);
  }
  return bar;
}

function sumTable(accounting: Accounting): HTMLElement {
  const reserved = accounting.reserved_bytes;
  const unit = byteUnitFor(Math.max(reserved, accounting.device_used_bytes));
  const sum = RESERVED_TERMS.reduce((total, term) => total + accounting[term.key], 0);
  const rows = RESERVED_TERMS.map((term) => termRow(term, accounting, unit, ''));
  rows.push(sumRow('reserved', '=', reserved, reserved, unit, sum === reserved ? 'Physical memory that the process held from the driver.' : `The terms add up to ${groupDigits(sum)} bytes: the recording is incomplete.`));
  if (isSampled(accounting)) {
    rows.push(termRow(OUTSIDE, accounting, unit, '+'));
    rows.push(sumRow('device used', '=', accounting.device_used_bytes, reserved, unit, 'As the driver reported at the last growth or release before.'));
  }
  const foreign = accounting.foreign_bytes ?? 0;
  if (foreign > 0) {
    rows.push(sumRow('foreign', '', foreign, reserved, unit, 'Beside the sum: memory of private pools that an allocator of somebody else\'s gave.'));
  }
  return h(
    'div',
    { class: 'scroll-x' },
    h(
      'table',
      { class: 'sum' },
      h('caption', { class: 'visually-hidden' }, 'Every byte of the device at the reserved peak, by what it was used for'),
      h(
        'thead',
        {},
        h('tr', {}, th(''), th('Term'), th(unit.name, 'number'), th('bytes', 'number exact'), th('of reserved', 'number'), th('', 'bar'), th('What it is')),
      ),
      h('tbody', {}, ...rows),
    ),
  );
}

function th(text: string, kind?: string): HTMLElement {
  return text === '' ? h('td', { class: kind }) : h('th', { scope: 'col', class: kind }, text);
}

function termRow(term: Term, accounting: Accounting, unit: ByteUnit, sign: string): HTMLElement {
  const bytes = accounting[term.key];
  const whole = accounting.reserved_bytes;
  const bar = h('div', { class: `term ${term.key}` });
  bar.style.width = `${Math.max(0, Math.min(100, (100 * bytes) / whole))}%`;
  const meaning = bytes < 0 ? 'Less than nothing: device used was last sampled before the last growth.' : term.meaning;
  return h(
    'tr',
    { class: bytes === 0 ? 'zero' : undefined },
    h('td', { class: 'sign' }, sign),
    h('th', { scope: 'row' }, h('i', { class: `swatch term ${term.key}` }), term.name),
    ...numbers(bytes, whole, unit),
    h('td', { class: 'bar' }, h('div', { class: 'track' }, bar)),
    h('td', { class: 'meaning' }, meaning),
  );
}

function sumRow(name: string, sign: string, bytes: number, whole: number, unit: ByteUnit, meaning: string): HTMLElement {
  return h(
    'tr',
    { class: 'total' },
    h('td', { class: 'sign' }, sign),
    h('th', { scope: 'row' }, name),
    ...numbers(bytes, whole, unit),
    h('td', { class: 'bar' }),
    h('td', { class: 'meaning' }, meaning),
  );
}

function numbers(bytes: number, whole: number, unit: ByteUnit): HTMLElement[] {
  return [
    h('td', { class: 'number' }, formatBytesIn(bytes, unit)),
    h('td', { class: 'number exact' }, groupDigits(bytes)),
    h('td', { class: 'number' }, formatPercent(bytes, whole)),
  ];
}
