// The picture of memory over time. Draws what it is given; knows neither elements nor input.

import { formatTime } from '../base/format.ts';
import type { LevelName, LevelSource } from '../model/levels.ts';
import type { StepIndex } from '../model/step_index.ts';
import type { StepSeries } from '../model/step_series.ts';
import { byteTicks, timeTicks } from '../model/ticks.ts';
import { lengthOf, type Viewport } from '../model/viewport.ts';
import type { Canvas } from './canvas.ts';
import type { Theme } from './theme.ts';

export const PLOT_MARGIN = { left: 72, right: 14, top: 24, bottom: 28 } as const;

export interface PlotScene {
  readonly levels: LevelSource;
  readonly view: Viewport;
  readonly low_bytes: number; // the bottom of the picture
  readonly high_bytes: number; // its top
  readonly steps: StepIndex;
  readonly peak: { readonly time_ns: number; readonly reserved_bytes: number } | null;
  readonly failures_ns: Float64Array;
  readonly drops_ns: Float64Array;
  readonly has_device_used: boolean;
}

// Where times and bytes are on the canvas.
export class PlotScale {
  readonly left: number = PLOT_MARGIN.left;
  readonly top: number = PLOT_MARGIN.top;
  readonly right: number;
  readonly bottom: number;
  private readonly scene: Pick<PlotScene, 'view' | 'low_bytes' | 'high_bytes'>;

  constructor(width: number, height: number, scene: Pick<PlotScene, 'view' | 'low_bytes' | 'high_bytes'>) {
    this.right = Math.max(this.left + 1, width - PLOT_MARGIN.right);
    this.bottom = Math.max(this.top + 1, height - PLOT_MARGIN.bottom);
    this.scene = scene;
  }

  get width(): number {
    return this.right - this.left;
  }

  x(time_ns: number): number {
    return this.left + ((time_ns - this.scene.view.begin_ns) / lengthOf(this.scene.view)) * this.width;
  }

  y(bytes: number): number {
    const { low_bytes, high_bytes } = this.scene;
    return this.bottom - ((bytes - low_bytes) / (high_bytes - low_bytes)) * (this.bottom - this.top);
  }

  timeAt(x: number): number {
    return this.scene.view.begin_ns + ((x - this.left) / this.width) * lengthOf(this.scene.view);
  }
}

type Context = CanvasRenderingContext2D;

export function drawPlot(canvas: Canvas, scene: PlotScene, theme: Theme): void {
  const context = canvas.begin();
  const scale = new PlotScale(canvas.width, canvas.height, scene);
  context.lineJoin = 'round';
  context.font = `11px ${theme.font}`;
  drawSteps(context, canvas, scale, scene, theme);
  drawByteAxis(context, canvas, scale, scene, theme);
  context.save();
  context.beginPath();
  context.rect(scale.left, scale.top, scale.width, scale.bottom - scale.top);
  context.clip();
  drawLive(context, canvas, scale, scene, theme);
  if (scene.has_device_used) {
    drawLevel(context, canvas, scale, scene, 'device_used', { color: theme.device_used, width: 1.25, dash: [5, 3] });
  }
  drawLevel(context, canvas, scale, scene, 'reserved', { color: theme.reserved, width: 1.75, dash: [] });
  drawMarks(context, canvas, scale, scene.drops_ns, theme.drop);
  drawMarks(context, canvas, scale, scene.failures_ns, theme.failure);
  context.restore();
  drawPeak(context, canvas, scale, scene, theme);
  drawTimeAxis(context, canvas, scale, scene, theme);
}

// Alternating stripes, each step's number above it where there is room.
function drawSteps(context: Context, canvas: Canvas, scale: PlotScale, scene: PlotScene, theme: Theme): void {
  const { times_ns, numbers } = scene.steps;
  const first = Math.max(0, firstAfter(times_ns, scene.view.begin_ns) - 1);
  const last = firstAfter(times_ns, scene.view.end_ns);
  if (last <= first) return;
  const striped = scale.width / (last - first) >= 4;
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  let free_from = scale.left;
  for (let i = first; i < last; ++i) {
    const begin = Math.max(scale.left, scale.x(times_ns[i]));
    const end = Math.min(scale.right, i + 1 < times_ns.length ? scale.x(times_ns[i + 1]) : scale.right);
    if (striped && numbers[i] % 2 === 1) {
      context.fillStyle = theme.stripe;
      context.fillRect(begin, scale.top, end - begin, scale.bottom - scale.top);
    }
    if (striped && begin > scale.left + 1) {
      context.fillStyle = theme.line;
      context.fillRect(canvas.crisp(begin) - 0.5 / canvas.scale, scale.top - 6, 1 / canvas.scale, 6);
    }
    const long = `step ${numbers[i]}`;
    const room = end - Math.max(begin, free_from);
    const text = room >= context.measureText(long).width + 8 ? long : String(numbers[i]);
    if (room < context.measureText(text).width + 8) continue;
    context.fillStyle = theme.muted;
    context.fillText(text, (begin + end) / 2, scale.top - 12);
    free_from = end;
  }
}

function drawByteAxis(context: Context, canvas: Canvas, scale: PlotScale, scene: PlotScene, theme: Theme): void {
  const ticks = byteTicks(scene.low_bytes, scene.high_bytes, (scale.bottom - scale.top) / 52);
  const decimals = Math.max(0, Math.ceil(-Math.log10(ticks.step / ticks.unit.bytes) - 1e-9));
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  context.lineWidth = 1 / canvas.scale;
  for (const bytes of ticks.values) {
    const y = canvas.crisp(scale.y(bytes));
    context.strokeStyle = theme.line;
    context.beginPath();
    context.moveTo(scale.left, y);
    context.lineTo(scale.right, y);
    context.stroke();
    context.fillStyle = theme.muted;
    context.fillText(`${(bytes / ticks.unit.bytes).toFixed(decimals)} ${bytes === 0 ? '' : ticks.unit.name}`.trim(), scale.left - 8, y);
  }
}

function drawTimeAxis(context: Context, canvas: Canvas, scale: PlotScale, scene: PlotScene, theme: Theme): void {
  const ticks = timeTicks(scene.view.begin_ns, scene.view.end_ns, scale.width / 110);
  context.textBaseline = 'top';
  context.strokeStyle = theme.muted;
  context.fillStyle = theme.muted;
  context.lineWidth = 1 / canvas.scale;
  context.beginPath();
  const axis = canvas.crisp(scale.bottom);
  context.moveTo(scale.left, axis);
  context.lineTo(scale.right, axis);
  for (const time_ns of ticks.values) {
    const x = canvas.crisp(scale.x(time_ns));
    context.moveTo(x, axis);
    context.lineTo(x, axis + 4);
    const text = formatTime(time_ns, ticks.step);
    const half = context.measureText(text).width / 2;
    context.textAlign = 'center';
    context.fillText(text, Math.min(Math.max(x, scale.left + half), scale.right - half), scale.bottom + 9);
  }
  context.stroke();
}

// Live memory as an area. Where a pixel holds many changes: solid up to the smallest, pale up to the largest.
function drawLive(context: Context, canvas: Canvas, scale: PlotScale, scene: PlotScene, theme: Theme): void {
  const path = exactPath(scale, scene, 'live');
  if (path !== null) {
    context.fillStyle = theme.live_fill;
    context.beginPath();
    traceSteps(context, path);
    context.lineTo(path.xs[path.xs.length - 1], scale.bottom);
    context.lineTo(path.xs[0], scale.bottom);
    context.fill();
    stroke(context, theme.live, 1.5, []);
    context.beginPath();
    traceSteps(context, path);
    context.stroke();
    return;
  }
  const columns = Math.round(scale.width * canvas.scale);
  const { least, most } = scene.levels.envelope('live', scene.view.begin_ns, scene.view.end_ns, columns);
  fillBetween(context, scale, columns, (column) => scale.y(most[column]), () => scale.bottom, theme.live_range);
  fillBetween(context, scale, columns, (column) => scale.y(least[column]), () => scale.bottom, theme.live_fill);
  stroke(context, theme.live, 1, []);
  strokeColumns(context, scale, columns, (column) => scale.y(most[column]));
}

interface Stroke {
  readonly color: string;
  readonly width: number;
  readonly dash: number[];
}

function drawLevel(context: Context, canvas: Canvas, scale: PlotScale, scene: PlotScene, level: LevelName, style: Stroke): void {
  stroke(context, style.color, style.width, style.dash);
  const path = exactPath(scale, scene, level);
  if (path !== null) {
    context.beginPath();
    traceSteps(context, path);
    context.stroke();
  } else {
    const columns = Math.round(scale.width * canvas.scale);
    const { most } = scene.levels.envelope(level, scene.view.begin_ns, scene.view.end_ns, columns);
    strokeColumns(context, scale, columns, (column) => scale.y(most[column]));
  }
  context.setLineDash([]);
}

function drawMarks(context: Context, canvas: Canvas, scale: PlotScale, times_ns: Float64Array, color: string): void {
  context.fillStyle = color;
  const first = firstAfter(times_ns, scale.timeAt(scale.left));
  let last_x = -Infinity;
  for (let i = first; i < times_ns.length; ++i) {
    const x = scale.x(times_ns[i]);
    if (x > scale.right) break;
    if (x - last_x < 1) continue;
    last_x = x;
    context.fillRect(canvas.crisp(x) - 0.5, scale.top, 1, scale.bottom - scale.top);
    context.beginPath();
    context.moveTo(x - 5, scale.top);
    context.lineTo(x + 5, scale.top);
    context.lineTo(x, scale.top + 8);
    context.fill();
  }
}

function drawPeak(context: Context, canvas: Canvas, scale: PlotScale, scene: PlotScene, theme: Theme): void {
  if (scene.peak === null) return;
  const x = scale.x(scene.peak.time_ns);
  if (x < scale.left - 0.5 || x > scale.right + 0.5) return;
  const y = scale.y(scene.peak.reserved_bytes);
  stroke(context, theme.peak, 1, [2, 3]);
  context.beginPath();
  context.moveTo(canvas.crisp(x), Math.max(scale.top, y));
  context.lineTo(canvas.crisp(x), scale.bottom);
  context.stroke();
  context.setLineDash([]);
  if (y < scale.top || y > scale.bottom) return;
  context.fillStyle = theme.peak;
  context.strokeStyle = theme.surface;
  context.lineWidth = 2;
  context.beginPath();
  context.arc(x, y, 4.5, 0, 2 * Math.PI);
  context.fill();
  context.stroke();
  drawPeakLabel(context, scale, x, y, theme);
}

function drawPeakLabel(context: Context, scale: PlotScale, x: number, y: number, theme: Theme): void {
  const text = 'reserved peak';
  context.font = `600 11px ${theme.font}`;
  const width = context.measureText(text).width + 12;
  const left = x + 8 + width > scale.right ? x - 8 - width : x + 8;
  const top = Math.min(Math.max(y + 7, scale.top + 2), scale.bottom - 20);
  context.fillStyle = theme.surface;
  context.globalAlpha = 0.88;
  context.beginPath();
  context.roundRect(left, top, width, 18, 4);
  context.fill();
  context.globalAlpha = 1;
  context.fillStyle = theme.peak;
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  context.fillText(text, left + 6, top + 9.5);
  context.font = `11px ${theme.font}`;
}

// A staircase: at xs[i] the height becomes ys[i].
interface StepPath {
  readonly xs: number[];
  readonly ys: number[];
}

// The changes themselves, if there are few enough to be told apart.
function exactPath(scale: PlotScale, scene: PlotScene, level: LevelName): StepPath | null {
  const series: StepSeries | null = scene.levels.steps(level);
  if (series === null) return null;
  const first = series.changesAt(scene.view.begin_ns);
  const last = series.changesAt(scene.view.end_ns);
  if (last - first > scale.width / 2) return null;
  const xs = [scale.left];
  const ys = [scale.y(series.valueAfter(first))];
  for (let i = first; i < last; ++i) {
    xs.push(scale.x(series.times_ns[i]));
    ys.push(scale.y(series.values[i]));
  }
  xs.push(scale.right);
  ys.push(ys[ys.length - 1]);
  return { xs, ys };
}

function traceSteps(context: Context, { xs, ys }: StepPath): void {
  context.moveTo(xs[0], ys[0]);
  for (let i = 1; i < xs.length; ++i) {
    context.lineTo(xs[i], ys[i - 1]);
    context.lineTo(xs[i], ys[i]);
  }
}

function fillBetween(
  context: Context,
  scale: PlotScale,
  columns: number,
  upper: (column: number) => number,
  lower: (column: number) => number,
  color: string,
): void {
  const width = scale.width / columns;
  context.fillStyle = color;
  context.beginPath();
  context.moveTo(scale.left, lower(0));
  for (let column = 0; column < columns; ++column) {
    const y = upper(column);
    context.lineTo(scale.left + column * width, y);
    context.lineTo(scale.left + (column + 1) * width, y);
  }
  context.lineTo(scale.right, lower(columns - 1));
  context.fill();
}

function strokeColumns(context: Context, scale: PlotScale, columns: number, y: (column: number) => number): void {
  const width = scale.width / columns;
  context.beginPath();
  for (let column = 0; column < columns; ++column) context.lineTo(scale.left + (column + 0.5) * width, y(column));
  context.stroke();
}

function stroke(context: Context, color: string, width: number, dash: number[]): void {
  context.strokeStyle = color;
  context.lineWidth = width;
  context.setLineDash(dash);
}

// The first index whose time is not before `time_ns`.
function firstAfter(times_ns: Float64Array, time_ns: number): number {
  let i = 0;
  let high = times_ns.length;
  while (i < high) {
    const middle = (i + high) >>> 1;
    if (times_ns[middle] < time_ns) i = middle + 1;
    else high = middle;
  }
  return i;
}
