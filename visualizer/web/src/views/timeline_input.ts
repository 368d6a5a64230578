// Pointer, wheel and keys over the picture, as intentions. Positions are CSS pixels from the picture's left edge.

export interface PlotIntentions {
  zoom(factor: number, x: number | null): void;
  pan(share: number): void;
  panPixels(pixels: number): void;
  hover(x: number | null): void;
  brush(from: number | null, to: number | null): void;
  select(from: number, to: number): void;
  reset(): void;
  peak(): void;
  fit(): void;
  stepEvent(by: -1 | 1): void;
  centerMinimap(x: number): void;
}

const CLICK_PIXELS = 4; // a shorter drag is a click
const PIXELS_PER_LINE = 33; // of wheels that count lines

export function listenToPlot(stage: HTMLElement, minimap: HTMLElement, act: PlotIntentions): void {
  listenToPointer(stage, act);
  listenToWheel(stage, act);
  listenToKeys(stage, act);
  listenToMinimap(minimap, act);
}

function listenToPointer(stage: HTMLElement, act: PlotIntentions): void {
  let drag: { from: number; last: number; pans: boolean } | null = null;
  const position = (event: PointerEvent): number => event.clientX - stage.getBoundingClientRect().left;

  stage.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 && event.button !== 1) return;
    const x = position(event);
    drag = { from: x, last: x, pans: event.shiftKey || event.button === 1 };
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener('pointermove', (event) => {
    const x = position(event);
    act.hover(x);
    if (drag === null) return;
    if (drag.pans) act.panPixels(drag.last - x);
    else if (Math.abs(x - drag.from) >= CLICK_PIXELS) act.brush(drag.from, x);
    drag.last = x;
  });
  stage.addEventListener('pointerup', (event) => {
    const x = position(event);
    if (drag !== null && !drag.pans && Math.abs(x - drag.from) >= CLICK_PIXELS) act.select(drag.from, x);
    drag = null;
  });
  stage.addEventListener('pointercancel', () => {
    drag = null;
    act.brush(null, null);
  });
  stage.addEventListener('pointerleave', () => {
    if (drag === null) act.hover(null);
  });
  stage.addEventListener('dblclick', () => act.reset());
}

function listenToWheel(stage: HTMLElement, act: PlotIntentions): void {
  stage.addEventListener(
    'wheel',
    (event) => {
      event.preventDefault();
      const unit = event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? 1 : PIXELS_PER_LINE;
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) act.panPixels(event.deltaX * unit);
      else if (event.shiftKey) act.panPixels(event.deltaY * unit);
      else act.zoom(Math.exp(event.deltaY * unit * 0.002), event.clientX - stage.getBoundingClientRect().left);
    },
    { passive: false },
  );
}

function listenToKeys(stage: HTMLElement, act: PlotIntentions): void {
  const actions: Record<string, (event: KeyboardEvent) => void> = {
    ArrowLeft: (event) => (event.shiftKey ? act.stepEvent(-1) : act.pan(-0.15)),
    ArrowRight: (event) => (event.shiftKey ? act.stepEvent(1) : act.pan(0.15)),
    '+': () => act.zoom(0.5, null),
    '=': () => act.zoom(0.5, null),
    '-': () => act.zoom(2, null),
    Home: () => act.reset(),
    Escape: () => act.hover(null),
    p: () => act.peak(),
    f: () => act.fit(),
  };
  stage.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = actions[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action(event);
  });
}

function listenToMinimap(minimap: HTMLElement, act: PlotIntentions): void {
  const center = (event: PointerEvent): void => act.centerMinimap(event.clientX - minimap.getBoundingClientRect().left);
  minimap.addEventListener('pointerdown', (event) => {
    minimap.setPointerCapture(event.pointerId);
    center(event);
  });
  minimap.addEventListener('pointermove', (event) => {
    if (event.buttons === 1) center(event);
  });
}
