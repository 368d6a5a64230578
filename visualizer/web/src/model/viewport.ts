// The window of time that is shown. Immutable values; every change stays within the recording. Pure.

export interface Viewport {
  readonly begin_ns: number;
  readonly end_ns: number;
}

// No closer than this: recordings have a resolution of nanoseconds.
const SHORTEST_NS = 100;

export function wholeOf(begin_ns: number, end_ns: number): Viewport {
  return { begin_ns, end_ns: Math.max(end_ns, begin_ns + SHORTEST_NS) };
}

export function lengthOf(view: Viewport): number {
  return view.end_ns - view.begin_ns;
}

// The nearest window to `view` that lies within `whole`.
export function within(view: Viewport, whole: Viewport): Viewport {
  const length = Math.min(lengthOf(whole), Math.max(SHORTEST_NS, lengthOf(view)));
  const begin_ns = Math.min(Math.max(view.begin_ns, whole.begin_ns), whole.end_ns - length);
  return { begin_ns, end_ns: begin_ns + length };
}

// Makes the window `factor` times as long; `fixed_ns` keeps its place on the screen.
export function zoomed(view: Viewport, whole: Viewport, factor: number, fixed_ns: number): Viewport {
  const length = Math.max(SHORTEST_NS, lengthOf(view) * factor);
  const share = (fixed_ns - view.begin_ns) / lengthOf(view);
  const begin_ns = fixed_ns - share * length;
  return within({ begin_ns, end_ns: begin_ns + length }, whole);
}

export function panned(view: Viewport, whole: Viewport, by_ns: number): Viewport {
  return within({ begin_ns: view.begin_ns + by_ns, end_ns: view.end_ns + by_ns }, whole);
}
