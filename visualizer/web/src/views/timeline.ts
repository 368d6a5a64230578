// Memory over time: the picture, its controls, what it says under the pointer, and its twin as a table.

import { formatBytes, formatTime, groupDigits } from '../base/format.ts';
import { h, replaceChildren } from '../base/dom.ts';
import { Canvas } from '../draw/canvas.ts';
import { drawMinimap, minimapTime } from '../draw/minimap.ts';
import { drawPlot, PlotScale, type PlotScene } from '../draw/plot.ts';
import { readTheme } from '../draw/theme.ts';
import type { LevelSource } from '../model/levels.ts';
import type { StepIndex } from '../model/step_index.ts';
import { lengthOf, panned, wholeOf, within, zoomed, type Viewport } from '../model/viewport.ts';
import { readColumn, type Device } from '../trace/overview.ts';
import { listenToPlot } from './timeline_input.ts';
import { timelineTable } from './timeline_table.ts';

const HELP =
  'Wheel or + and \u2212: zoom. Drag: zoom into a span. Shift-drag or \u2190 \u2192: move. Shift-\u2190 \u2192: the event before or after. P: the peak. F: fit the height. Home or double-click: everything.';

export class TimelineView {
  readonly element: HTMLElement;
  private readonly device: Device;
  private readonly steps: StepIndex;
  private readonly whole: Viewport;
  private readonly failures_ns: Float64Array;
  private readonly drops_ns: Float64Array;
  private readonly plot: Canvas;
  private readonly overlay: Canvas;
  private readonly minimap: Canvas;
  private readonly readout = h('div', { class: 'readout', hidden: true });
  private readonly spoken = h('div', { class: 'visually-hidden', 'aria-live': 'polite' });
  private readonly state = h('span', { class: 'aside', role: 'status' });
  private readonly fit_button: HTMLButtonElement;
  private readonly table_place = h('div', {});
  private readonly table_details: HTMLDetailsElement;
  private levels: LevelSource;
  private view: Viewport;
  private cursor_ns: number | null = null;
  private brush: { from_ns: number; to_ns: number } | null = null;
  private fits = false;
  private scheduled = false;

  constructor(device: Device, steps: StepIndex, levels: LevelSource) {
    this.device = device;
    this.steps = steps;
    this.levels = levels;
    this.whole = wholeOf(device.begin_ns, device.end_ns);
    this.view = this.whole;
    this.failures_ns = readColumn(device.failures.time_ns);
    this.drops_ns = readColumn(device.drops.time_ns);
    this.plot = new Canvas(h('canvas', { class: 'plot', role: 'img', 'aria-label': this.describe() }));
    this.overlay = new Canvas(h('canvas', { class: 'overlay', 'aria-hidden': 'true' }));
    this.minimap = new Canvas(h('canvas', { class: 'minimap', 'aria-hidden': 'true' }));
    this.fit_button = this.button('Fit height', 'Let what is shown fill the height (F)', () => this.toggleFit());
    this.table_details = h('details', { class: 'twin' }, h('summary', {}, 'The same as a table'), this.table_place);
    this.table_details.addEventListener('toggle', () => this.updateTable());
    const stage = h(
      'div',
      { class: 'stage', tabindex: 0, role: 'group', 'aria-label': 'Memory over time. Arrow keys move, plus and minus zoom.', 'aria-describedby': 'chart-help' },
      this.plot.element,
      this.overlay.element,
      this.readout,
    );
    this.element = this.assemble(stage);
    listenToPlot(stage, this.minimap.element, {
      zoom: (factor, x) => this.setView(zoomed(this.view, this.whole, factor, x === null ? this.focus_ns() : this.scale().timeAt(x))),
      pan: (share) => this.setView(panned(this.view, this.whole, share * lengthOf(this.view))),
      panPixels: (pixels) => this.setView(panned(this.view, this.whole, (pixels / this.scale().width) * lengthOf(this.view))),
      hover: (x) => this.setCursor(x === null ? null : this.clampTime(this.scale().timeAt(x))),
      brush: (from, to) => this.setBrush(from, to),
      select: (from, to) => this.select(from, to),
      reset: () => this.reset(),
      peak: () => this.goToPeak(),
      fit: () => this.toggleFit(),
      stepEvent: (by) => this.stepEvent(by),
      centerMinimap: (x) => this.center(minimapTime(x, this.minimap.width, this.whole)),
    });
    const observer = new ResizeObserver(() => this.draw());
    observer.observe(stage);
    window.addEventListener('beforeprint', () => this.draw());
  }

  setLevels(levels: LevelSource): void {
    this.levels = levels;
    this.setState('');
    this.schedule();
  }

  setState(text: string): void {
    this.state.textContent = text;
  }

  // At once, for the first picture.
  draw(): void {
    if (!this.plot.resize()) return;
    const theme = readTheme(this.element);
    drawPlot(this.plot, this.scene(), theme);
    if (this.minimap.resize()) drawMinimap(this.minimap, this.levels, this.whole, this.view, this.highest() * 1.04, theme);
    this.drawOverlay();
  }

  private assemble(stage: HTMLElement): HTMLElement {
    const device_used = this.device.device_used_peak.bytes > 0;
    return h(
      'section',
      { class: 'timeline', 'aria-labelledby': 'timeline-title' },
      h(
        'div',
        { class: 'section-head' },
        h('h2', { id: 'timeline-title' }, 'Memory over time'),
        h(
          'ul',
          { class: 'legend', 'aria-label': 'Legend' },
          h('li', { class: 'live' }, h('i'), 'live'),
          h('li', { class: 'reserved' }, h('i'), 'reserved'),
          device_used && h('li', { class: 'device_used' }, h('i'), 'device used'),
          this.failures_ns.length > 0 && h('li', { class: 'failure' }, h('i'), 'request failed'),
          this.drops_ns.length > 0 && h('li', { class: 'drop' }, h('i'), 'events lost'),
        ),
        this.state,
        h(
          'div',
          { class: 'buttons', role: 'toolbar', 'aria-label': 'View' },
          this.button('Peak', 'Go to the reserved peak (P)', () => this.goToPeak()),
          this.fit_button,
          this.button('\u2212', 'Zoom out (\u2212)', () => this.zoomBy(2)),
          this.button('+', 'Zoom in (+)', () => this.zoomBy(0.5)),
          this.button('All', 'Show the whole recording (Home)', () => this.reset()),
        ),
      ),
      stage,
      this.minimap.element,
      this.spoken,
      h('div', { class: 'chart-foot' }, this.table_details, h('p', { class: 'help', id: 'chart-help' }, HELP)),
    );
  }

  private button(text: string, hint: string, act: () => void): HTMLButtonElement {
    const button = h('button', { type: 'button', title: hint, 'aria-label': hint }, text);
    button.addEventListener('click', act);
    return button;
  }

  private describe(): string {
    const { accounting, time_ns } = this.device.peak;
    return `Chart of live, reserved and device-used memory from ${formatTime(this.device.begin_ns, 1e6)} to ${formatTime(this.device.end_ns, 1e6)}. Reserved memory peaks at ${formatBytes(accounting.reserved_bytes)} at ${formatTime(time_ns, 1e6)}; live memory at ${formatBytes(this.device.live_peak.bytes)}.`;
  }

  private highest(): number {
    return Math.max(1, this.device.live_peak.bytes, this.device.peak.accounting.reserved_bytes, this.device.device_used_peak.bytes);
  }

  private scene(): PlotScene {
    const { accounting, time_ns } = this.device.peak;
    return {
      levels: this.levels,
      view: this.view,
      ...this.heights(),
      steps: this.steps,
      peak: accounting.reserved_bytes > 0 ? { time_ns, reserved_bytes: accounting.reserved_bytes } : null,
      failures_ns: this.failures_ns,
      drops_ns: this.drops_ns,
      has_device_used: this.device.device_used_peak.bytes > 0,
    };
  }

  // From zero to the highest of the whole recording, so that heights mean the same at every zoom; or fitted to the view.
  private heights(): { low_bytes: number; high_bytes: number } {
    if (!this.fits) return { low_bytes: 0, high_bytes: this.highest() * 1.08 };
    const extent = this.levels.envelope('live', this.view.begin_ns, this.view.end_ns, 1);
    const low = extent.least[0];
    const high = Math.max(extent.most[0], low + 1024);
    const margin = (high - low) * 0.08;
    return { low_bytes: Math.max(0, low - margin), high_bytes: high + margin };
  }

  private scale(): PlotScale {
    return new PlotScale(this.plot.width, this.plot.height, { view: this.view, ...this.heights() });
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
      this.updateTable();
    });
  }

  private setView(view: Viewport): void {
    this.view = within(view, this.whole);
    this.schedule();
  }

  private zoomBy(factor: number): void {
    this.setView(zoomed(this.view, this.whole, factor, this.focus_ns()));
  }

  // What zooming by key or button keeps in place.
  private focus_ns(): number {
    const { begin_ns, end_ns } = this.view;
    return this.cursor_ns !== null && this.cursor_ns >= begin_ns && this.cursor_ns <= end_ns ? this.cursor_ns : (begin_ns + end_ns) / 2;
  }

  private center(time_ns: number): void {
    const half = lengthOf(this.view) / 2;
    this.setView({ begin_ns: time_ns - half, end_ns: time_ns + half });
  }

  private reset(): void {
    this.fits = false;
    this.fit_button.setAttribute('aria-pressed', 'false');
    this.setView(this.whole);
  }

  private toggleFit(): void {
    this.fits = !this.fits;
    this.fit_button.setAttribute('aria-pressed', String(this.fits));
    this.schedule();
  }

  private goToPeak(): void {
    const { time_ns, accounting } = this.device.peak;
    if (accounting.reserved_bytes === 0) return;
    const half = Math.min(lengthOf(this.view), lengthOf(this.whole) / 20) / 2;
    this.setView({ begin_ns: time_ns - half, end_ns: time_ns + half });
    this.setCursor(time_ns, true);
  }

  private stepEvent(by: -1 | 1): void {
    const series = this.levels.steps('live');
    if (series === null || series.times_ns.length === 0) return;
    const times_ns = series.times_ns;
    const now_ns = this.cursor_ns ?? this.focus_ns();
    let index = series.changesAt(now_ns) - 1;
    if (by > 0) ++index;
    else while (index > 0 && times_ns[index] >= now_ns) --index;
    const time_ns = times_ns[Math.max(0, Math.min(times_ns.length - 1, index))];
    this.setCursor(time_ns, true);
    if (time_ns < this.view.begin_ns || time_ns > this.view.end_ns) this.center(time_ns);
  }

  private clampTime(time_ns: number): number {
    return Math.max(this.view.begin_ns, Math.min(this.view.end_ns, time_ns));
  }

  private setCursor(time_ns: number | null, speak = false): void {
    this.cursor_ns = time_ns;
    if (speak) this.spoken.textContent = this.readoutRows().map(([name, value]) => `${name} ${value}`).join(', ');
    this.schedule();
  }

  private setBrush(from: number | null, to: number | null): void {
    this.brush = from === null || to === null ? null : { from_ns: this.clampTime(this.scale().timeAt(from)), to_ns: this.clampTime(this.scale().timeAt(to)) };
    this.schedule();
  }

  private select(from: number, to: number): void {
    const a = this.clampTime(this.scale().timeAt(Math.min(from, to)));
    const b = this.clampTime(this.scale().timeAt(Math.max(from, to)));
    this.brush = null;
    this.setView({ begin_ns: a, end_ns: b });
  }

  private drawOverlay(): void {
    if (!this.overlay.resize()) return;
    const context = this.overlay.begin();
    const scale = this.scale();
    const theme = readTheme(this.element);
    if (this.brush !== null) {
      const from = scale.x(Math.min(this.brush.from_ns, this.brush.to_ns));
      const to = scale.x(Math.max(this.brush.from_ns, this.brush.to_ns));
      context.fillStyle = theme.live;
      context.globalAlpha = 0.12;
      context.fillRect(from, scale.top, to - from, scale.bottom - scale.top);
      context.globalAlpha = 1;
    }
    const visible = this.cursor_ns !== null && this.cursor_ns >= this.view.begin_ns && this.cursor_ns <= this.view.end_ns;
    this.readout.hidden = !visible;
    if (!visible || this.cursor_ns === null) return;
    const x = scale.x(this.cursor_ns);
    context.strokeStyle = theme.text;
    context.globalAlpha = 0.55;
    context.lineWidth = 1 / this.overlay.scale;
    context.beginPath();
    context.moveTo(this.overlay.crisp(x), scale.top);
    context.lineTo(this.overlay.crisp(x), scale.bottom);
    context.stroke();
    context.globalAlpha = 1;
    const levels = this.levels.at(this.cursor_ns);
    for (const [bytes, color] of [[levels.device_used, theme.device_used], [levels.reserved, theme.reserved], [levels.live, theme.live]] as const) {
      const y = scale.y(bytes);
      if (y < scale.top - 1 || y > scale.bottom + 1 || (bytes === 0 && color === theme.device_used)) continue;
      context.fillStyle = color;
      context.strokeStyle = theme.surface;
      context.lineWidth = 1.5;
      context.beginPath();
      context.arc(x, y, 3.5, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    }
    this.showReadout(x);
  }

  // Name, value as people read it, value in bytes.
  private readoutRows(): [string, string, string, string][] {
    if (this.cursor_ns === null) return [];
    const levels = this.levels.at(this.cursor_ns);
    const step = this.steps.at(this.cursor_ns);
    const at_most = this.levels.exact ? '' : '\u2264 ';
    const rows: [string, string, string, string][] = [['time', formatTime(this.cursor_ns, Math.max(1, lengthOf(this.view) / 5000)), '', 'time']];
    if (step !== null) rows.push(['step', String(step), '', 'step']);
    rows.push(['live', at_most + formatBytes(levels.live), groupDigits(levels.live), 'live']);
    rows.push(['reserved', at_most + formatBytes(levels.reserved), groupDigits(levels.reserved), 'reserved']);
    if (this.device.device_used_peak.bytes > 0) {
      rows.push(['device used', at_most + formatBytes(levels.device_used), groupDigits(levels.device_used), 'device_used']);
    }
    return rows;
  }

  private showReadout(x: number): void {
    const rows = this.readoutRows();
    replaceChildren(
      this.readout,
      h('dl', {}, ...rows.flatMap(([name, value, exact, kind]) => [h('dt', { class: kind }, h('i'), name), h('dd', { 'data-kind': kind }, value), h('dd', { class: 'exact', 'data-exact': kind }, exact)])),
    );
    const width = this.readout.offsetWidth;
    const left = x + 14 + width > this.plot.width ? x - 14 - width : x + 14;
    this.readout.style.left = `${Math.max(0, left)}px`;
  }

  private updateTable(): void {
    if (!this.table_details.open) return;
    replaceChildren(this.table_place, timelineTable(this.levels, this.steps, this.view, this.device.device_used_peak.bytes > 0));
  }
}
