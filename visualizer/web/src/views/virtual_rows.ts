// A table body of any length of which only the visible rows exist.
//
// Rows have one fixed height. Browsers cannot lay out more than some ten million pixels, so beyond MAX_HEIGHT the scroll bar
// stands for proportionally more rows.

import { h } from '../base/dom.ts';

const ROW_HEIGHT = 26;
const MAX_HEIGHT = 4_000_000;
const MARGIN_ROWS = 8;

export class VirtualRows {
  readonly body = h('tbody', {});
  private readonly scroller: HTMLElement;
  private count = 0;
  private render: (index: number) => HTMLElement = () => h('tr');
  private shown_from = -1;
  private shown_to = -1;

  constructor(scroller: HTMLElement) {
    this.scroller = scroller;
    scroller.addEventListener('scroll', () => this.update(), { passive: true });
    new ResizeObserver(() => this.update()).observe(scroller);
    window.addEventListener('beforeprint', () => this.show(0, Math.min(this.count, 60)));
    window.addEventListener('afterprint', () => this.refresh());
  }

  setRows(count: number, render: (index: number) => HTMLElement): void {
    this.count = count;
    this.render = render;
    this.refresh();
  }

  private refresh(): void {
    this.shown_from = this.shown_to = -1;
    this.update();
  }

  private update(): void {
    const height = Math.min(this.count * ROW_HEIGHT, MAX_HEIGHT);
    const visible = Math.ceil((this.scroller.clientHeight || 400) / ROW_HEIGHT);
    const reach = Math.max(1, height - visible * ROW_HEIGHT);
    const share = Math.min(1, this.scroller.scrollTop / reach);
    const first = height < MAX_HEIGHT ? Math.floor(this.scroller.scrollTop / ROW_HEIGHT) : Math.round(share * Math.max(0, this.count - visible));
    this.show(Math.max(0, first - MARGIN_ROWS), Math.min(this.count, first + visible + MARGIN_ROWS));
  }

  private show(from: number, to: number): void {
    if (from === this.shown_from && to === this.shown_to) return;
    this.shown_from = from;
    this.shown_to = to;
    const height = Math.min(this.count * ROW_HEIGHT, MAX_HEIGHT);
    const rows = (to - from) * ROW_HEIGHT;
    const above = height < MAX_HEIGHT ? from * ROW_HEIGHT : (from / Math.max(1, this.count)) * (height - rows);
    const elements: HTMLElement[] = [spacer(above)];
    for (let i = from; i < to; ++i) {
      const row = this.render(i);
      row.setAttribute('aria-rowindex', String(i + 2));
      elements.push(row);
    }
    elements.push(spacer(Math.max(0, height - rows - above)));
    this.body.replaceChildren(...elements);
  }
}

function spacer(height: number): HTMLElement {
  const row = h('tr', { class: 'spacer', 'aria-hidden': 'true' });
  row.style.height = `${height}px`;
  return row;
}
