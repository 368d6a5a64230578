// Why requests failed: the allocator's own reports, the latest one open.

import { formatTime } from '../base/format.ts';
import { h } from '../base/dom.ts';
import type { StepIndex } from '../model/step_index.ts';
import type { Device } from '../trace/overview.ts';

// Nothing where no request failed for lack of memory.
export function failuresView(device: Device, steps: StepIndex): HTMLElement[] {
  const reports = device.failure_reports ?? [];
  if (reports.length === 0) return [];
  const entries = reports.map(({ time_ns, text }, i) => {
    const step = steps.at(time_ns);
    const when = `${formatTime(time_ns, 1e6)}${step === null ? '' : `, step ${step}`}`;
    return h('details', { open: i === reports.length - 1 ? '' : undefined }, h('summary', {}, when), h('pre', {}, text));
  });
  return [
    h(
      'section',
      { class: 'failures', 'aria-labelledby': 'failures-title' },
      h('h2', { id: 'failures-title' }, 'Why requests failed'),
      ...entries.reverse(),
    ),
  ];
}
