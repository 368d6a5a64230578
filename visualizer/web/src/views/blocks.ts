// What was live at the reserved peak: every block, and how they are distributed over sizes.

import { formatAddress, formatBytes, formatBytesEvenly, formatDuration, formatPercent, formatTime, groupDigits, plural } from '../base/format.ts';
import { h, replaceChildren } from '../base/dom.ts';
import { sizeClasses, type Block, type PeakBlocks } from '../model/blocks.ts';
import type { StepIndex } from '../model/step_index.ts';
import type { Device, Pool } from '../trace/overview.ts';
import { VirtualRows } from './virtual_rows.ts';

interface ColumnSpec {
  readonly title: string;
  readonly kind: 'number' | 'text';
  readonly hint: string;
  readonly text: (block: Block, context: RowContext) => string;
  readonly key: (block: Block, context: RowContext) => number; // for sorting
  readonly descending: boolean; // at the first click
}

interface RowContext {
  readonly peak_ns: number;
  readonly steps: StepIndex;
  readonly pools: ReadonlyMap<number, Pool>;
}

const COLUMNS: readonly ColumnSpec[] = [
  { title: 'Requested', kind: 'number', hint: 'What the program asked for', text: (b) => formatBytesEvenly(b.requested_bytes), key: (b) => b.requested_bytes, descending: true },
  { title: 'Bytes', kind: 'number', hint: 'The same, exactly', text: (b) => groupDigits(b.requested_bytes), key: (b) => b.requested_bytes, descending: true },
  { title: 'Rounding', kind: 'number', hint: 'Block size minus what was asked for', text: (b) => groupDigits(b.block_bytes - b.requested_bytes), key: (b) => b.block_bytes - b.requested_bytes, descending: true },
  { title: 'Allocated at', kind: 'number', hint: 'When the program asked for it', text: (b) => formatTime(b.allocated_ns, 1e6), key: (b) => b.allocated_ns, descending: false },
  { title: 'Step', kind: 'number', hint: 'The step that was under way then', text: (b, c) => String(c.steps.at(b.allocated_ns) ?? '\u2013'), key: (b, c) => c.steps.at(b.allocated_ns) ?? -1, descending: false },
  { title: 'Age at peak', kind: 'number', hint: 'How long it had been live', text: (b, c) => formatDuration(c.peak_ns - b.allocated_ns), key: (b, c) => c.peak_ns - b.allocated_ns, descending: true },
  { title: 'Lived on for', kind: 'number', hint: 'How long after the peak it was freed', text: (b, c) => livedOn(b, c), key: (b) => b.freed_ns ?? Infinity, descending: true },
  { title: 'Stream', kind: 'number', hint: 'Index of the stream that its pool serves', text: (b, c) => String(c.pools.get(b.pool)?.stream ?? '\u2013'), key: (b, c) => c.pools.get(b.pool)?.stream ?? -1, descending: false },
  { title: 'Pool', kind: 'text', hint: 'The pool it came from', text: (b, c) => poolName(b, c), key: (b) => b.pool, descending: false },
  { title: 'Address', kind: 'text', hint: 'Where it lay', text: (b) => formatAddress(b.address), key: (b) => b.address, descending: false },
];

function livedOn(block: Block, context: RowContext): string {
  return block.freed_ns === null ? 'to the end' : formatDuration(block.freed_ns - context.peak_ns);
}

function poolName(block: Block, context: RowContext): string {
  const id = context.pools.get(block.pool)?.private_pool_id ?? '0';
  return id === '0' ? 'default' : `private ${id}`;
}

export class BlocksView {
  readonly element: HTMLElement;
  private readonly device: Device;
  private readonly context: RowContext;
  private readonly rows: VirtualRows;
  private readonly head = h('tr', { 'aria-rowindex': 1 });
  private readonly note = h('span', { class: 'aside', role: 'status' });
  private readonly classes = h('div', { class: 'classes' });
  private readonly table: HTMLTableElement;
  private blocks: Block[] = [];
  private sorted_by = 0;
  private descending = true;

  constructor(device: Device, steps: StepIndex) {
    this.device = device;
    this.context = { peak_ns: device.peak.time_ns, steps, pools: new Map(device.pools.map((pool) => [pool.index, pool])) };
    const scroller = h('div', { class: 'scroller', tabindex: 0, role: 'region', 'aria-label': 'Blocks that were live at the reserved peak' });
    this.rows = new VirtualRows(scroller);
    this.table = h('table', { class: 'blocks' }, h('thead', {}, this.head), this.rows.body);
    scroller.append(this.table);
    this.element = h(
      'section',
      { class: 'live-blocks', 'aria-labelledby': 'blocks-title' },
      h('div', { class: 'section-head' }, h('h2', { id: 'blocks-title' }, 'What was live at the peak'), this.note),
      h('div', { class: 'blocks-body' }, scroller, this.classes),
    );
  }

  show({ blocks, complete }: PeakBlocks): void {
    this.blocks = [...blocks];
    const bytes = blocks.reduce((sum, block) => sum + block.requested_bytes, 0);
    const all = this.device.peak.live_blocks;
    const live = this.device.peak.accounting.live_bytes;
    this.note.textContent = complete
      ? `${plural(all, 'block')}, ${formatBytes(live)}, ${groupDigits(live)} bytes: all of them are listed`
      : `the ${groupDigits(blocks.length)} largest of ${plural(all, 'block')}; the other ${groupDigits(all - blocks.length)}, ${formatBytes(live - bytes)} together, are being read\u2026`;
    if (complete) this.showClasses();
    this.table.setAttribute('aria-rowcount', String(blocks.length + 1));
    this.sort();
  }

  // The blocks that could not be read stay summed.
  fail(): void {
    this.note.textContent = this.note.textContent?.replace('are being read\u2026', 'could not be read') ?? '';
  }

  private sort(): void {
    const column = COLUMNS[this.sorted_by];
    const keys = new Map(this.blocks.map((block) => [block, column.key(block, this.context)]));
    const sign = this.descending ? -1 : 1;
    // Equal ones lie in order of address.
    this.blocks.sort((a, b) => (keys.get(a) === keys.get(b) ? a.address - b.address : sign * (keys.get(a)! < keys.get(b)! ? -1 : 1)));
    replaceChildren(this.head, ...COLUMNS.map((_, i) => this.headCell(i)));
    this.rows.setRows(this.blocks.length, (i) => this.row(this.blocks[i]));
  }

  private headCell(index: number): HTMLElement {
    const column = COLUMNS[index];
    const sorted = index === this.sorted_by;
    const button = h('button', { type: 'button', title: column.hint }, column.title, h('span', { 'aria-hidden': 'true' }, sorted ? (this.descending ? ' \u2193' : ' \u2191') : ''));
    button.addEventListener('click', () => {
      this.descending = sorted ? !this.descending : column.descending;
      this.sorted_by = index;
      this.sort();
      this.head.querySelectorAll('button')[index]?.focus();
    });
    return h('th', { scope: 'col', class: column.kind, 'aria-sort': sorted ? (this.descending ? 'descending' : 'ascending') : undefined }, button);
  }

  private row(block: Block): HTMLElement {
    return h('tr', {}, ...COLUMNS.map((column) => h('td', { class: column.kind }, column.text(block, this.context))));
  }

  private showClasses(): void {
    const classes = sizeClasses(this.blocks);
    const most = Math.max(1, ...classes.map((entry) => entry.bytes));
    const live = this.device.peak.accounting.live_bytes;
    replaceChildren(
      this.classes,
      classes.length > 0 &&
        h(
          'table',
          { class: 'histogram' },
          h('caption', {}, 'By size of request'),
          h('thead', {}, h('tr', {}, h('th', { scope: 'col', class: 'number' }, 'Up to'), h('th', { scope: 'col', class: 'number' }, 'Blocks'), h('th', { scope: 'col', class: 'number' }, 'Together'), h('th', { scope: 'col', class: 'number' }, 'of live'), h('td', {}))),
          h(
            'tbody',
            {},
            ...[...classes].reverse().map((entry) => {
              const bar = h('div', { class: 'term live_bytes' });
              bar.style.width = `${(100 * entry.bytes) / most}%`;
              return h(
                'tr',
                { class: entry.blocks === 0 ? 'zero' : undefined },
                h('th', { scope: 'row', class: 'number' }, `${entry.from_bytes === 0 ? 'under ' : ''}${formatBytes(entry.to_bytes)}`),
                h('td', { class: 'number' }, groupDigits(entry.blocks)),
                h('td', { class: 'number' }, formatBytesEvenly(entry.bytes)),
                h('td', { class: 'number' }, formatPercent(entry.bytes, live)),
                h('td', { class: 'bar' }, h('div', { class: 'track' }, bar)),
              );
            }),
          ),
        ),
    );
  }
}
