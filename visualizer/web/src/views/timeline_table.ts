// The picture's twin: the same window as numbers, one row per step where there are steps, else per equal slice.

import { formatBytesEvenly, formatDuration, formatTime, plural } from '../base/format.ts';
import { h } from '../base/dom.ts';
import type { LevelSource } from '../model/levels.ts';
import type { StepIndex } from '../model/step_index.ts';
import { lengthOf, type Viewport } from '../model/viewport.ts';

const MAX_ROWS = 200;
const SLICES = 24;

interface Span {
  readonly name: string;
  readonly begin_ns: number;
  readonly end_ns: number;
}

export function timelineTable(levels: LevelSource, steps: StepIndex, view: Viewport, has_device_used: boolean): HTMLElement {
  const by_step = stepSpans(steps, view);
  const sliced = by_step.length < 2 || by_step.length > MAX_ROWS;
  const spans = sliced ? equalSpans(view) : by_step;
  const resolution = Math.max(1, lengthOf(view) / 1000);
  const body = spans.map((span) => {
    const live = levels.envelope('live', span.begin_ns, span.end_ns, 1);
    const reserved = levels.envelope('reserved', span.begin_ns, span.end_ns, 1);
    const device_used = levels.envelope('device_used', span.begin_ns, span.end_ns, 1);
    return h(
      'tr',
      {},
      h('th', { scope: 'row' }, span.name),
      ...[
        formatTime(span.begin_ns, resolution),
        formatDuration(span.end_ns - span.begin_ns),
        formatBytesEvenly(live.least[0]),
        formatBytesEvenly(live.most[0]),
        formatBytesEvenly(reserved.most[0]),
        has_device_used ? formatBytesEvenly(device_used.most[0]) : null,
      ].map((text) => text !== null && h('td', { class: 'number' }, text)),
    );
  });
  const titles = ['From', 'Length', 'Least live', 'Most live', 'Most reserved', ...(has_device_used ? ['Most device used'] : [])];
  return h(
    'div',
    { class: 'scroll-x' },
    h(
      'table',
      { class: 'twin-table' },
      h('caption', {}, sliced && by_step.length > MAX_ROWS ? `${plural(by_step.length, 'step')} are shown: in ${SLICES} equal spans. Zoom in for single steps.` : 'Follows the picture: zoom in for detail.'),
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, sliced ? 'Span' : 'Step'), ...titles.map((title) => h('th', { scope: 'col', class: 'number' }, title)))),
      h('tbody', {}, ...body),
    ),
  );
}

function stepSpans(steps: StepIndex, view: Viewport): Span[] {
  const spans: Span[] = [];
  const { times_ns, numbers } = steps;
  if (times_ns.length > 0 && view.begin_ns < times_ns[0]) {
    spans.push({ name: 'before the first', begin_ns: view.begin_ns, end_ns: Math.min(times_ns[0], view.end_ns) });
  }
  for (let i = 0; i < times_ns.length; ++i) {
    const begin_ns = Math.max(view.begin_ns, times_ns[i]);
    const end_ns = Math.min(view.end_ns, times_ns[i + 1] ?? view.end_ns);
    if (begin_ns < end_ns) spans.push({ name: String(numbers[i]), begin_ns, end_ns });
  }
  return spans;
}

function equalSpans(view: Viewport): Span[] {
  return Array.from({ length: SLICES }, (_, i) => ({
    name: String(i + 1),
    begin_ns: view.begin_ns + (i * lengthOf(view)) / SLICES,
    end_ns: view.begin_ns + ((i + 1) * lengthOf(view)) / SLICES,
  }));
}
