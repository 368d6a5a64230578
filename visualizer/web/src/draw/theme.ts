// The colours and fonts of the canvases, taken from the style sheet so that each stands in one place.

export interface Theme {
  readonly text: string;
  readonly muted: string;
  readonly line: string;
  readonly stripe: string;
  readonly surface: string;
  readonly live: string;
  readonly live_fill: string;
  readonly live_range: string;
  readonly reserved: string;
  readonly device_used: string;
  readonly peak: string;
  readonly failure: string;
  readonly drop: string;
  readonly font: string;
}

export function readTheme(element: Element): Theme {
  const style = getComputedStyle(element);
  const color = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    text: color('text'),
    muted: color('muted'),
    line: color('line'),
    stripe: color('stripe'),
    surface: color('surface'),
    live: color('live'),
    live_fill: color('live-fill'),
    live_range: color('live-range'),
    reserved: color('reserved'),
    device_used: color('device-used'),
    peak: color('peak'),
    failure: color('failure'),
    drop: color('drop'),
    font: style.fontFamily,
  };
}
