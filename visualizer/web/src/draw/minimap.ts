// The strip below the picture: the whole recording, with the window that is shown.

import type { LevelSource } from '../model/levels.ts';
import { lengthOf, type Viewport } from '../model/viewport.ts';
import type { Canvas } from './canvas.ts';
import { PLOT_MARGIN } from './plot.ts';
import type { Theme } from './theme.ts';

export function minimapTime(x: number, width: number, whole: Viewport): number {
  const inner = Math.max(1, width - PLOT_MARGIN.left - PLOT_MARGIN.right);
  return whole.begin_ns + ((x - PLOT_MARGIN.left) / inner) * lengthOf(whole);
}

export function drawMinimap(canvas: Canvas, levels: LevelSource, whole: Viewport, view: Viewport, high_bytes: number, theme: Theme): void {
  const context = canvas.begin();
  const left = PLOT_MARGIN.left;
  const width = Math.max(1, canvas.width - left - PLOT_MARGIN.right);
  const y = (bytes: number): number => canvas.height - 1 - (bytes / high_bytes) * (canvas.height - 3);
  const columns = Math.round(width);
  for (const [level, color] of [['reserved', theme.line], ['live', theme.live_fill]] as const) {
    const { most } = levels.envelope(level, whole.begin_ns, whole.end_ns, columns);
    context.fillStyle = color;
    for (let column = 0; column < columns; ++column) {
      context.fillRect(left + (column * width) / columns, y(most[column]), width / columns + 0.5, canvas.height - y(most[column]));
    }
  }
  const begin = left + ((view.begin_ns - whole.begin_ns) / lengthOf(whole)) * width;
  const end = Math.max(begin + 2, left + ((view.end_ns - whole.begin_ns) / lengthOf(whole)) * width);
  context.fillStyle = theme.surface;
  context.globalAlpha = 0.7;
  context.fillRect(left, 0, begin - left, canvas.height);
  context.fillRect(end, 0, left + width - end, canvas.height);
  context.globalAlpha = 1;
  context.strokeStyle = theme.device_used;
  context.lineWidth = 1;
  context.strokeRect(canvas.crisp(begin), 0.5, Math.max(1, end - begin - 1), canvas.height - 1);
}
